// One walk in program order. An op that can fail is left where it is even when its operands are
// known: its error belongs to the call, not to loading.
#include "passes/known.h"

#include <algorithm>
#include <cmath>

#include "ir/writes.h"
#include "ops/opdef.h"

namespace tandem::passes {
namespace {

using ir::Node;
using ir::Value;

bool is_fixed(const sym::Expr& size) { return size.constant().has_value(); }

bool has_fixed_sizes(const Value* value) {
  return value->type.is_tensor() && std::ranges::all_of(value->type.sizes, is_fixed);
}

bool is_fixed(const ir::Arg& arg) {
  if (const sym::Expr* one = std::get_if<sym::Expr>(&arg)) return is_fixed(*one);
  if (const ir::Ints* many = std::get_if<ir::Ints>(&arg))
    return std::ranges::all_of(*many, [](const sym::Expr& each) { return is_fixed(each); });
  return true;
}

}  // namespace

std::optional<double> number_of(const ir::Arg& arg) {
  if (const double* number = std::get_if<double>(&arg)) return *number;
  if (const bool* flag = std::get_if<bool>(&arg)) return *flag;
  if (const sym::Expr* expr = std::get_if<sym::Expr>(&arg))
    return expr->constant() ? std::optional<double>(static_cast<double>(*expr->constant()))
                            : std::nullopt;
  Value* const* value = std::get_if<Value*>(&arg);
  bool is_fill = value != nullptr && (*value)->node != nullptr &&
                 (*value)->node->op->schema.name == "aten::full";
  return is_fill ? number_of((*value)->node->call().arg("fill_value")) : std::nullopt;
}

bool is_number(const ir::Arg& arg, double wanted) {
  std::optional<double> number = number_of(arg);
  return number && *number == wanted && std::signbit(*number) == std::signbit(wanted);
}

bool has_constants(const ir::Graph& graph) {
  return std::ranges::any_of(graph.inputs(), [](const Value* input) { return input->constant; });
}

KnownValues::KnownValues(const ir::Graph& graph) {
  for (const Value* input : graph.inputs())
    known_[input] = input->constant && !ir::is_written(input);
  for (const Node* node = graph.first(); node != nullptr; node = node->next) {
    bool known = is_known(*node);
    for (const Value* result : node->results) known_[result] = known;
  }
}

bool KnownValues::is_known(const Node& node) const {
  const ops::OpDef& def = ops::def_of(node);
  if (node.op->mutates() || def.random || def.can_fail) return false;
  bool known = std::ranges::all_of(node.args, [](const ir::Arg& arg) { return is_fixed(arg); }) &&
               std::ranges::all_of(node.results, has_fixed_sizes);
  ir::for_each_operand(node.args, [&](const Value* operand) { known &= has(operand); });
  return known;
}

}  // namespace tandem::passes
