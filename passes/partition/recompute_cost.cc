// Problem: which values to compute again depends on how long that takes, and nothing of it is
// scheduled yet. Approach: operations counted from shapes, bytes from types, at the rates that
// schedule compares its candidates by (Tuning::Rates).
#include "passes/partition/recompute_cost.h"

#include "ops/opdef.h"
#include "passes/partition/bans.h"

namespace tandem::passes {
namespace {

using ir::Node;
using ir::Value;

double elements_of(const Value& value) {
  if (!value.type.is_tensor()) return 0;
  return static_cast<double>(typical_bytes(&value)) /
         static_cast<double>(size_of(value.type.dtype));
}

double last_size(const Value& value) {
  const ir::Sizes& sizes = value.type.sizes;
  return sizes.empty() ? 1 : static_cast<double>(typical_size(sizes.back()));
}

/// Steps of the sum of one element of a product.
double terms_of(const Node& node) {
  const ops::ProductFactors names = ops::factors_of(*node.op);
  const Value& right = *node.call().value(names.right);
  if (ops::def_of(node).multiplies != ops::ProductKind::convolution)
    return last_size(*node.call().value(names.left));
  return elements_of(right) / static_cast<double>(typical_size(right.type.sizes.at(0)));
}

}  // namespace

double product_flops(const Node& node) {
  if (ops::def_of(node).multiplies == ops::ProductKind::none) return 0;
  return 2 * elements_of(*node.results.at(0)) * terms_of(node);
}

double operations_of(const Node& node, const Tuning::Rates& rates) {
  const ops::OpDef& def = ops::def_of(node);
  if (node.op->is_view()) return 0;
  double made = 0;
  double largest = 0;
  for (const Value* result : node.results) made += elements_of(*result);
  if (def.multiplies != ops::ProductKind::none) return product_flops(node);
  if (def.random) return made * static_cast<double>(rates.draw_operations);
  ir::for_each_operand(
      node.args, [&](const Value* operand) { largest = std::max(largest, elements_of(*operand)); });
  return std::max(made, def.pointwise ? 0 : largest) *
         static_cast<double>(rates.element_operations);
}

double microseconds_again(const Node& node, const Target& target) {
  const Tuning::Rates& rates = target.tuning.rates;
  double work = operations_of(node, rates) / static_cast<double>(rates.lane_flops) / target.lanes();
  if (is_light(node)) return work / target.cores;
  double bytes = 0;
  ir::for_each_operand(node.args, [&](const Value* operand) {
    bytes += static_cast<double>(typical_bytes(operand));
  });
  for (const Value* result : node.results) bytes += static_cast<double>(typical_bytes(result));
  work += bytes / static_cast<double>(rates.memory);
  return work / target.cores + static_cast<double>(rates.launch_ns) / 1e3;
}

}  // namespace tandem::passes
