// Rewrites that give the same bits with fewer nodes. Each rule is an equation over one node and
// what made its operand; operands come first, so one walk is enough. Rules stand in one table by
// op. A value that the caller sees keeps memory of its own: it is never folded into an input or
// another output. Runs after reverse mode, where values have no history to lose.
#include <algorithm>
#include <array>
#include <cmath>

#include "ops/opdef.h"
#include "ops/tensor.h"
#include "passes/passes.h"

namespace tandem::passes {
namespace {

using ir::Builder;
using ir::Node;
using ir::Value;

/// The value that the node's result equals, or null. May add nodes before it.
using Apply = Value* (*)(Builder&, const Node&);

struct Rule {
  std::string_view op;  // "aten::mul", every overload
  Apply apply;
};

Value* operand(const Node& node, size_t number = 0) { return std::get<Value*>(node.args[number]); }

bool is_tensor(const ir::Arg& arg) { return std::holds_alternative<Value*>(arg); }

/// A number argument, or the number that a fill repeats.
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

bool has_alpha_one(const Node& node) { return is_number(node.call().arg("alpha"), 1); }

const Node* made_by(const Value* value, std::string_view op) {
  bool is = value->node != nullptr && value->node->op->schema.name == op;
  return is ? value->node : nullptr;
}

// --- arithmetic
// -----------------------------------------------------------------------------------

/// x * 1 = x, 1 * x = x
Value* times_one(Builder&, const Node& node) {
  if (is_number(node.args[1], 1)) return operand(node);
  Value* const* other = std::get_if<Value*>(&node.args[1]);  // or a number that a call tells
  return other != nullptr && is_number(node.args[0], 1) ? *other : nullptr;
}

/// x / 1 = x; not floor or truncating division, which round
Value* by_one(Builder&, const Node& node) {
  bool rounds = node.op->schema.find("rounding_mode") >= 0;
  return !rounds && is_number(node.args[1], 1) ? operand(node) : nullptr;
}

/// x + 0 = x for integers; for floats x + -0.0 = x, since -0.0 + 0.0 is 0.0
Value* plus_zero(Builder&, const Node& node) {
  bool is_exact = is_float(node.results[0]->type.dtype) ? is_number(node.args[1], -0.0)
                                                        : is_number(node.args[1], 0);
  return is_exact && has_alpha_one(node) ? operand(node) : nullptr;
}

/// x - 0 = x
Value* minus_zero(Builder&, const Node& node) {
  return is_number(node.args[1], 0) && has_alpha_one(node) ? operand(node) : nullptr;
}

/// x ^ 1 = x
Value* to_the_one(Builder&, const Node& node) {
  return is_tensor(node.args[0]) && is_number(node.args[1], 1) ? operand(node) : nullptr;
}

/// -(-x) = x
Value* negated_twice(Builder&, const Node& node) {
  const Node* inner = made_by(operand(node), "aten::neg");
  return inner == nullptr ? nullptr : operand(*inner);
}

/// !!x = x for bool
Value* inverted_twice(Builder&, const Node& node) {
  const Node* inner = made_by(operand(node), "aten::logical_not");
  return inner == nullptr ? nullptr : operand(*inner);
}

/// where(c, x, x) = x
Value* same_choice(Builder&, const Node& node) {
  return is_tensor(node.args[1]) && node.args[1] == node.args[2] ? operand(node, 1) : nullptr;
}

// --- copies and casts
// -----------------------------------------------------------------------------

/// clone(x) = alias(x) = x
Value* same(Builder&, const Node& node) { return operand(node); }

/// with_history(old, new) = new
Value* updated(Builder&, const Node& node) { return operand(node, 1); }

/// Every value of `narrow` is one of `wide`, and converts on to any third type as it does itself.
bool holds(DType wide, DType narrow) {
  if (wide == narrow) return true;
  if (narrow == DType::boolean) return is_int(wide) || is_float(wide);
  bool same_class = (is_float(wide) && is_float(narrow)) || (is_int(wide) && is_int(narrow));
  bool changes_sign = narrow != DType::u8 && wide == DType::u8;
  return same_class && !changes_sign && size_of(wide) > size_of(narrow);
}

/// cast(x, type of x) = x; cast(cast(x, A), B) = cast(x, B) where A holds every value of x
Value* cast(Builder& builder, const Node& node) {
  Value* x = operand(node);
  DType target = node.results[0]->type.dtype;
  if (const Node* inner = made_by(x, "aten::_to_copy");
      inner && holds(x->type.dtype, operand(*inner)->type.dtype)) {
    x = operand(*inner);
    return x->type.dtype == target ? x : ops::to({builder, x}, target).value();
  }
  return x->type.dtype == target ? x : nullptr;
}

// --- shapes
// ---------------------------------------------------------------------------------------

bool is_reorder(const Node& node) {
  const std::string& name = node.op->schema.name;
  return name == "aten::permute" || name == "aten::transpose" || name == "aten::t";
}

/// Dimension i of the result is dimension order[i] of the operand.
std::vector<int64_t> order_of(const Node& node) {
  int64_t rank = node.results[0]->type.rank();
  ir::Call call = node.call();
  if (node.op->schema.name == "aten::permute") return call.dims("dims", rank);
  std::vector<int64_t> order;
  for (int64_t i = 0; i < rank; ++i) order.push_back(i);
  if (node.op->schema.name == "aten::transpose")
    std::swap(order[static_cast<size_t>(call.dim("dim0", rank))],
              order[static_cast<size_t>(call.dim("dim1", rank))]);
  else
    std::reverse(order.begin(), order.end());
  return order;
}

/// permute(permute(x, p), q) = permute(x, p[q]); permute(x, 0 1 2 …) = x
Value* permuted_twice(Builder& builder, const Node& node) {
  if (node.results[0]->type.rank() == 0) return operand(node);
  std::vector<int64_t> order = order_of(node);
  const Node* inner = operand(node)->node;
  bool is_twice = inner != nullptr && is_reorder(*inner);
  if (is_twice) {
    std::vector<int64_t> first = order_of(*inner);
    for (int64_t& dim : order) dim = first[static_cast<size_t>(dim)];
  }
  Value* x = is_twice ? operand(*inner) : operand(node);
  if (std::is_sorted(order.begin(), order.end())) return x;
  return is_twice ? ops::permute({builder, x}, order).value() : nullptr;
}

bool keeps_order(const Node& node) {
  static constexpr std::array<std::string_view, 5> kReshapes = {
      "aten::reshape", "aten::view", "aten::_unsafe_view", "aten::squeeze", "aten::unsqueeze"};
  return std::find(kReshapes.begin(), kReshapes.end(), node.op->schema.name) != kReshapes.end();
}

/// reshape(reshape(x, s), t) = reshape(x, t); reshape(x, sizes of x) = x
Value* reshaped_twice(Builder& builder, const Node& node) {
  const Node* inner = operand(node)->node;
  const ir::Sizes& sizes = node.results[0]->type.sizes;
  bool is_twice = inner != nullptr && keeps_order(*inner);
  Value* x = is_twice ? operand(*inner) : operand(node);
  if (x->type.sizes == sizes) return x;
  return is_twice ? ops::reshape({builder, x}, sizes).value() : nullptr;
}

/// expand(expand(x, s), t) = expand(x, t); expand(x, sizes of x) = x
Value* expanded_twice(Builder& builder, const Node& node) {
  const Node* inner = made_by(operand(node), "aten::expand");
  const ir::Sizes& sizes = node.results[0]->type.sizes;
  Value* x = inner != nullptr ? operand(*inner) : operand(node);
  if (x->type.sizes == sizes) return x;
  return inner != nullptr ? ops::expand({builder, x}, sizes).value() : nullptr;
}

/// x[0:n] = x where n is the size: a slice as long as its operand in steps of 1 is all of it
Value* whole_slice(Builder&, const Node& node) {
  return operand(node)->type.sizes == node.results[0]->type.sizes &&
                 node.call().integer("step") == sym::Expr(1)
             ? operand(node)
             : nullptr;
}

/// pad(x, 0 0 …) = x; TensorFlow's "same" padding, worked out per layer, often comes to nothing
Value* padded_by_nothing(Builder&, const Node& node) {
  const ir::Ints& pad = node.call().ints("pad");
  const auto is_zero = [](const sym::Expr& width) { return width == sym::Expr(0); };
  return std::all_of(pad.begin(), pad.end(), is_zero) ? operand(node) : nullptr;
}

/// cat([x]) = x
Value* single_part(Builder&, const Node& node) {
  const ir::Values& parts = std::get<ir::Values>(node.args[0]);
  return parts.size() == 1 ? parts[0] : nullptr;
}

constexpr Rule kRules[] = {
    {"aten::mul", times_one},
    {"aten::div", by_one},
    {"aten::add", plus_zero},
    {"aten::sub", minus_zero},
    {"aten::pow", to_the_one},
    {"aten::neg", negated_twice},
    {"aten::logical_not", inverted_twice},
    {"aten::where", same_choice},
    {"aten::clone", same},
    {"aten::alias", same},
    {"aten::detach", same},
    {"tandem::with_history", updated},
    {"aten::_to_copy", cast},
    {"aten::permute", permuted_twice},
    {"aten::transpose", permuted_twice},
    {"aten::t", permuted_twice},
    {"aten::reshape", reshaped_twice},
    {"aten::view", reshaped_twice},
    {"aten::_unsafe_view", reshaped_twice},
    {"aten::squeeze", reshaped_twice},
    {"aten::unsqueeze", reshaped_twice},
    {"aten::expand", expanded_twice},
    {"aten::slice", whole_slice},
    {"aten::constant_pad_nd", padded_by_nothing},
    {"aten::cat", single_part},
};

// --- the walk
// -------------------------------------------------------------------------------------

bool is_output(const Value* value) {
  return std::any_of(value->uses.begin(), value->uses.end(),
                     [](const ir::Use& use) { return use.node == nullptr; });
}

const Value* memory_of(const Value* value) {
  while (value->node != nullptr && value->node->op->is_view())
    value = std::get<Value*>(value->node->args[0]);
  return value;
}

/// The caller would see memory shared that was not. A signature says what shares it, and a result
/// with the history of another value is the memory that it joins to that.
bool would_share(const ir::Graph& graph, const Value* old, const Value* replacement) {
  if (graph.role().kind == ir::GraphRole::Kind::signature) return false;
  return is_output(old) && (memory_of(replacement)->node == nullptr || is_output(replacement));
}

void fold(ir::Graph& graph, Node& node) {
  const Rule* rule = std::find_if(std::begin(kRules), std::end(kRules), [&](const Rule& each) {
    return each.op == node.op->schema.name;
  });
  if (rule == std::end(kRules)) return;
  Builder builder(graph, &node);
  builder.stamp() = Builder::stamp_of(node);
  Value* result = node.results[0];
  Value* equal = rule->apply(builder, node);
  bool fits = equal != nullptr && equal->type.dtype == result->type.dtype &&
              equal->type.sizes == result->type.sizes;
  if (!fits || would_share(graph, result, equal)) return;
  if (equal->node != nullptr) equal->node->policy = std::max(equal->node->policy, node.policy);
  graph.replace_all_uses(result, equal);
  graph.erase(&node);
}

}  // namespace

void constant_fold(ir::Graph& graph, GraphCtx&) {
  for (Node* node = graph.first(); node != nullptr;) {
    Node* next = node->next;
    if (!node->op->mutates()) fold(graph, *node);
    node = next;
  }
}

}  // namespace tandem::passes
