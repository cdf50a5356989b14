// What follows from its position alone needs no memory and no operand: a constant, or a ramp along
// one dimension, is made where it is read. Masks that compare ramps are then seen as such by
// schedule, which leaves out what a causal mask hides.
#include "ops/positional.h"

#include <algorithm>

#include "ir/rewrite.h"
#include "passes/passes.h"

namespace tandem::passes {
namespace {

using ir::Builder;
using ir::Match;
using ir::Node;
using ir::Value;

/// A number argument of a fill is a double.
constexpr int64_t kExact = int64_t{1} << 53;

Value* filled(Builder& builder, const ir::Type& type, int64_t number) {
  if (number > kExact || number < -kExact) return nullptr;
  return ops::full(builder, type.sizes, static_cast<double>(number), type.dtype).value();
}

Value* ramp(Builder& builder, const ir::Type& type, const ops::Ramp& ramp) {
  const sym::Expr count = type.sizes[static_cast<size_t>(ramp.dim)];
  ir::Sizes sizes(type.sizes.size(), sym::Expr(1));
  sizes[static_cast<size_t>(ramp.dim)] = count;
  const ops::Tensor line =
      ops::call(builder, "aten.arange.start_step",
                {ramp.start, ramp.start + count * ramp.step, ramp.step, type.dtype});
  return ops::expand(ops::reshape(line, sizes), type.sizes).value();
}

/// A result of the graph keeps the memory, and the strides, that its op gives it.
bool may_be(const Value& old, const Value& value) {
  const bool leaves =
      std::ranges::any_of(old.uses, [](const ir::Use& use) { return use.node == nullptr; });
  return !leaves || !value.node->op->is_view();
}

bool reads(const Node& node) {
  bool any = false;
  ir::for_each_operand(node.args, [&](const Value*) { any = true; });
  return any && !node.op->is_view();
}

}  // namespace

void positional(ir::Graph& graph, GraphCtx&) {
  ops::PositionalValues known(graph.pool());
  for (const Node* node = graph.first(); node != nullptr; node = node->next) known.visit(*node);
  const auto made = [&known](Builder& builder, const Match& match) -> Value* {
    const Value* result = match.root().results[0];
    const ops::PositionalValues::Formula* formula = known.of(result);
    if (formula == nullptr) return nullptr;
    if (const std::optional<int64_t> number = ops::constant_of(*formula))
      return filled(builder, result->type, *number);
    const std::optional<ops::Ramp> line = ops::ramp_of(*formula);
    return line ? ramp(builder, result->type, *line) : nullptr;
  };
  ir::Rewriter({{ir::node_that(reads), made}}).run(graph, {.allows = may_be});
}

}  // namespace tandem::passes
