// Each node's rule is asked in reverse order, with the gradients of its results; what it gives is
// added to the gradients of its operands. Nodes outside of history have no rule to ask.
#include "passes/reverse_mode.h"

#include <fmt/format.h>

#include "base/check.h"
#include "base/diagnostic.h"

namespace tandem::passes {

using ir::Node;
using ir::Value;
using ops::Tensor;

namespace {

/// Sizes that depend on symbols without ranges may be equal in a way that nobody can prove.
bool may_be_equal(const ir::Sizes& a, const ir::Sizes& b) {
  bool may = a.size() == b.size();
  for (size_t i = 0; may && i < a.size(); ++i) may = !sym::known_ne(a[i], b[i]);
  return may;
}

void expect_sizes(const Node& node, const ops::Gradient& gradient, const ir::Type& operand) {
  if (gradient.grad.sizes() == operand.sizes) return;
  const std::string problem = fmt::format("gradient of {} is {}, the operand {}", gradient.param,
                                          to_string(gradient.grad.type()), to_string(operand));
  TD_CHECK(may_be_equal(gradient.grad.sizes(), operand.sizes))
      << node.op->name() << ": " << problem;
  throw Unsupported(fmt::format("[{}] {}: that these sizes are equal does not follow from the "
                                "ranges of their symbols; narrower ranges are accepted",
                                node.op->schema.full_name(), problem),
                    node.origin.place);
}

bool differentiable(const Node& node) { return !node.no_grad && ops::def_of(node).vjp != nullptr; }

}  // namespace

void ReverseMode::find_needs(const std::vector<Node*>& nodes) {
  for (const Node* node : nodes) {
    // A value written under no_grad keeps the history of what it replaced, and has no other one.
    bool keeps_history = node->op->schema.name == "tandem::with_history";
    bool any = false;
    if (keeps_history)
      any = needs_.at(std::get<Value*>(node->args[0]));
    else
      ir::for_each_operand(node->args, [&](const Value* v) { any |= needs_.at(v); });
    if (!any || !(differentiable(*node) || keeps_history)) continue;
    for (const Value* result : node->results) needs_[result] = is_float(result->type.dtype);
  }
}

void ReverseMode::visit(const std::vector<Node*>& nodes) {
  for (size_t i = nodes.size(); i-- > 0;) visit(*nodes[i]);
}

void ReverseMode::accumulate(const Value* value, Tensor grad) {
  TD_CHECK(grad.sizes() == value->type.sizes && grad.dtype() == value->type.dtype)
      << "gradient " << to_string(grad.type()) << " of a value " << to_string(value->type);
  Tensor& sum = grads_[value];
  sum = sum ? sum + grad : grad;
  reached_[value] = 1;
}

void ReverseMode::visit(const Node& node) {
  const ops::OpDef& def = ops::def_of(node);
  if (def.vjp == nullptr) return;
  std::vector<Tensor> grads;
  bool any = false;
  bool reached = false;
  for (const Value* result : node.results) {
    grads.push_back(grads_.at(result));
    any |= static_cast<bool>(grads.back());
    reached |= is_reached(result);
  }
  bool wanted = false;
  ir::for_each_operand(node.args, [&](const Value* v) { wanted |= needs_.at(v); });
  if (!reached || !wanted) return;
  if (any) return write_gradients(node, grads);
  // Only zero came: zero is what all operands get.
  ir::for_each_operand(node.args, [&](const Value* v) { reached_[v] |= needs_.at(v); });
}

void ReverseMode::write_gradients(const Node& node, const std::vector<Tensor>& grads) {
  builder_.stamp().origin = node.origin;
  builder_.stamp().origin.forward = node.id;
  builder_.stamp().region = node.region;
  for (const ops::Gradient& gradient : ops::def_of(node).vjp(builder_, node.call(), grads))
    pass_on(node, gradient);
}

void ReverseMode::pass_on(const Node& node, const ops::Gradient& gradient) {
  int number = node.op->schema.find(gradient.param);
  TD_CHECK(number >= 0) << node.op->name() << " has no parameter " << gradient.param;
  const ir::Arg& arg = node.args[static_cast<size_t>(number)];
  const Value* operand = nullptr;
  if (Value* const* one = std::get_if<Value*>(&arg)) operand = *one;
  if (const ir::Values* many = std::get_if<ir::Values>(&arg))
    operand = (*many)[static_cast<size_t>(gradient.element)];
  if (operand == nullptr || !needs_.at(operand)) return;
  reached_[operand] = 1;
  if (!gradient.grad) return;
  expect_sizes(node, gradient, operand->type);
  accumulate(operand, gradient.grad);
}

}  // namespace tandem::passes
