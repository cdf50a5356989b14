// Rewrites that give the same bits with fewer nodes. Each rule is an equation over one node and
// what made its operand, most of them data alone (ir/rewrite.h). A value that the caller sees keeps
// memory of its own: it is never folded into an input or another output. Runs after reverse mode,
// where values have no history to lose.
#include <algorithm>

#include "ir/rewrite.h"
#include "ops/opdef.h"
#include "ops/tensor.h"
#include "passes/known.h"
#include "passes/passes.h"

namespace tandem::passes {
namespace {

using ir::any_call;
using ir::anything;
using ir::arg_that;
using ir::Builder;
using ir::call;
using ir::keep;
using ir::kept;
using ir::Match;
using ir::Node;
using ir::node_that;
using ir::Value;

Value* operand(const Node& node) { return std::get<Value*>(node.args[0]); }

// --- numbers

bool is_one(const ir::Arg& arg) { return is_number(arg, 1); }
bool is_zero(const ir::Arg& arg) { return is_number(arg, 0); }
bool is_minus_zero(const ir::Arg& arg) { return is_number(arg, -0.0); }

std::string why_not_exact(const Match& sum) {
  return is_float(sum.value("x")->type.dtype) ? "-0.0 + 0.0 is 0.0" : "";
}

/// Of integers 1 and 0 are some of the bits.
std::string why_not_truth(const Match& both) {
  return both.value("x")->type.dtype == DType::boolean ? "" : "bits of integers";
}

// --- casts

/// Every value of `narrow` is one of `wide`, and converts on to any third type as it does itself.
bool holds(DType wide, DType narrow) {
  if (wide == narrow) return true;
  if (narrow == DType::boolean) return is_int(wide) || is_float(wide);
  bool same_class = (is_float(wide) && is_float(narrow)) || (is_int(wide) && is_int(narrow));
  bool changes_sign = narrow != DType::u8 && wide == DType::u8;
  return same_class && !changes_sign && size_of(wide) > size_of(narrow);
}

bool casts(const Node& node) { return ops::def_of(node).casts; }

/// cast(x, type of x) = x; cast(cast(x, A), B) = cast(x, B) where A holds every value of x
Value* cast(Builder& builder, const Match& match) {
  Value* x = operand(match.root());
  const DType target = match.root().results[0]->type.dtype;
  const bool is_twice =
      x->node != nullptr && casts(*x->node) && holds(x->type.dtype, operand(*x->node)->type.dtype);
  if (is_twice) x = operand(*x->node);
  if (x->type.dtype == target) return x;
  return is_twice ? ops::to({builder, x}, target).value() : nullptr;
}

// --- shapes

bool reorders(const Node& node) { return ops::def_of(node).order != nullptr; }
bool keeps_order(const Node& node) { return ops::def_of(node).keeps_order; }
bool repeats(const Node& node) { return ops::def_of(node).repeats; }

/// permute(permute(x, p), q) = permute(x, p[q]); permute(x, 0 1 2 …) = x
Value* permuted_twice(Builder& builder, const Match& match) {
  Value* x = operand(match.root());
  std::vector<int64_t> order = ops::def_of(match.root()).order(match.root().call());
  const bool is_twice = x->node != nullptr && reorders(*x->node);
  if (is_twice) {
    const std::vector<int64_t> first = ops::def_of(*x->node).order(x->node->call());
    for (int64_t& dim : order) dim = first[static_cast<size_t>(dim)];
    x = operand(*x->node);
  }
  if (std::is_sorted(order.begin(), order.end())) return x;
  return is_twice ? ops::permute({builder, x}, order).value() : nullptr;
}

/// f(f(x, s), t) = f(x, t); f(x, sizes of x) = x
template <bool (*is)(const Node&), ops::Tensor (*f)(ops::Tensor, const ir::Sizes&)>
Value* resized_twice(Builder& builder, const Match& match) {
  Value* x = operand(match.root());
  const ir::Sizes& sizes = match.root().results[0]->type.sizes;
  const bool is_twice = x->node != nullptr && is(*x->node);
  if (is_twice) x = operand(*x->node);
  if (x->type.sizes == sizes) return x;
  return is_twice ? f({builder, x}, sizes).value() : nullptr;
}

/// A slice as long as its operand in steps of 1 is all of it: the types tell the length.
Value* whole_slice(Builder&, const Match& match) {
  return match.root().call().integer("step") == sym::Expr(1) ? operand(match.root()) : nullptr;
}

/// pad(x, 0 0 …) = x; TensorFlow's "same" padding, worked out per layer, often comes to nothing
bool is_nothing(const ir::Arg& pad) {
  const ir::Ints* widths = std::get_if<ir::Ints>(&pad);
  return widths != nullptr &&
         std::ranges::all_of(*widths, [](const sym::Expr& width) { return width == sym::Expr(0); });
}

/// cat([x]) = x
Value* single_part(Builder&, const Match& match) {
  const ir::Values& parts = std::get<ir::Values>(match.root().args[0]);
  return parts.size() == 1 ? parts[0] : nullptr;
}

/// Each an equation, from the left to the right; what broadcasts or promotes is refused by its
/// type.
std::vector<ir::Rule> rules() {
  const ir::ArgPattern x = keep("x");
  const ir::Replacement is_x = kept("x");
  return {
      {call("aten::mul", {x, arg_that(is_one)}).commutes(), is_x},
      // Not floor or truncating division, which round.
      {call("aten::div.Tensor", {x, arg_that(is_one)}), is_x},
      {call("aten::div.Scalar", {x, arg_that(is_one)}), is_x},
      {call("aten::add", {x, arg_that(is_minus_zero)}), is_x},
      {call("aten::add", {x, arg_that(is_zero)}), is_x, why_not_exact},
      {call("aten::sub", {x, arg_that(is_zero)}), is_x},
      {call("aten::pow", {x, arg_that(is_one)}), is_x},
      {call("aten::bitwise_and", {x, arg_that(is_one)}).commutes(), is_x, why_not_truth},
      {call("aten::bitwise_or", {x, arg_that(is_zero)}).commutes(), is_x, why_not_truth},
      {call("aten::logical_and", {x, arg_that(is_one)}).commutes(), is_x, why_not_truth},
      {call("aten::logical_or", {x, arg_that(is_zero)}).commutes(), is_x, why_not_truth},
      {call("aten::neg", {call("aten::neg", {x})}), is_x},
      {call("aten::logical_not", {call("aten::logical_not", {x})}), is_x},
      {call("aten::where", {anything(), x, x}), is_x},
      {call("aten::clone", {x}).whatever_else(), is_x},
      {call("aten::alias", {x}), is_x},
      {call("aten::detach", {x}), is_x},
      {call("tandem::with_history", {anything(), x}), is_x},
      {call("tandem::zero_gradient", {anything(), x}), is_x},
      {call("aten::constant_pad_nd", {x, arg_that(is_nothing)}).whatever_else(), is_x},
      {any_call({"aten::slice"}), whole_slice},
      {any_call({"aten::cat"}), single_part},
      {node_that(casts), cast},
      {node_that(reorders), permuted_twice},
      {node_that(keeps_order), resized_twice<keeps_order, ops::reshape>},
      {node_that(repeats), resized_twice<repeats, ops::expand>},
  };
}

// --- the walk

bool is_output(const Value* value) {
  return std::any_of(value->uses.begin(), value->uses.end(),
                     [](const ir::Use& use) { return use.node == nullptr; });
}

const Value* memory_of(const Value* value) {
  while (value->node != nullptr && value->node->op->is_view())
    value = std::get<Value*>(value->node->args[0]);
  return value;
}

}  // namespace

void constant_fold(ir::Graph& graph, GraphCtx&) {
  static const ir::Rewriter kRewriter(rules());
  // The caller would see memory shared that was not. A signature says what shares it, and a result
  // with the history of another value is the memory that it joins to that.
  const bool is_signature = graph.role().kind == ir::GraphRole::Kind::signature;
  kRewriter.run(graph, {.allows = [&](const Value& old, const Value& value) {
                  const bool shares = memory_of(&value)->node == nullptr || is_output(&value);
                  return is_signature || !is_output(&old) || !shares;
                }});
}

}  // namespace tandem::passes
