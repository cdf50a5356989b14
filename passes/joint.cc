// Reverse mode over the functional graph: backward nodes are appended behind the forward ones, in
// reverse order of their forward nodes. A gradient that is absent is zero and is never
// materialised; two contributions add.
#include <fmt/format.h>

#include "base/check.h"
#include "base/dense_map.h"
#include "ir/text.h"
#include "ops/opdef.h"
#include "passes/passes.h"
#include "passes/strides.h"

namespace tandem::passes {
namespace {

using ir::Node;
using ir::Value;
using ops::Tensor;

class Joint {
 public:
  Joint(ir::Graph& graph, PassCtx& ctx)
      : graph_(graph), ctx_(ctx), tail_(first_write_back(graph)), builder_(graph, tail_) {}

  void run() {
    std::vector<Node*> forward;
    for (Node* node = graph_.first(); node != tail_; node = node->next) forward.push_back(node);
    find_needs(forward);
    seed();
    builder_.stamp().backward = true;
    for (size_t i = forward.size(); i-- > 0;) visit(*forward[i]);
    add_gradients();
  }

 private:
  static bool differentiable(const Node& node) {
    return !node.no_grad && ops::def_of(node).vjp != nullptr;
  }

  /// Values that an input with requires_grad reaches.
  void find_needs(const std::vector<Node*>& forward) {
    for (const Value* input : graph_.inputs()) {
      if (input->requires_grad && !is_float(input->type.dtype))
        ctx_.diagnostics.add(fmt::format("input %{} is {}: only floats have gradients", input->name,
                                         to_string(input->type)));
      needs_[input] = input->requires_grad;
    }
    ctx_.diagnostics.finish();
    for (const Node* node : forward) {
      // A value written under no_grad keeps the history of what it replaced.
      bool any = false;
      ir::for_each_operand(node->args, [&](const Value* v) { any |= needs_.at(v); });
      bool keeps_history = node->op->schema.name == "tandem::with_history";
      if (!any || !(differentiable(*node) || keeps_history)) continue;
      for (const Value* result : node->results) needs_[result] = is_float(result->type.dtype);
    }
  }

  void seed() {
    std::string_view seed = ctx_.option("seed", "tangents");
    if (seed != "ones" && seed != "tangents")
      throw UserError(
          fmt::format("gradients start from 'tangents' or 'ones', not from '{}'", seed));
    if (seed == "ones") return seed_loss();
    size_t count = graph_.outputs().size();
    for (size_t i = 0; i < count; ++i) {
      Value* value = graph_.outputs()[i].value;
      if (value != nullptr && needs_.at(value)) add_tangent(value, fmt::format("tangent{}", i));
    }
    seed_mutated_inputs();
  }

  /// Who wrote to an input may go on with its new value, unless it was written outside of history.
  /// A new value that depends on nothing ends the history of the old one.
  void seed_mutated_inputs() {
    for (const Node* node = tail_; node != nullptr; node = node->next) {
      const Value* input = std::get<Value*>(node->args[0]);
      Value* value = std::get<Value*>(node->args[1]);
      if (!node->no_grad && (needs_.at(value) || input->requires_grad))
        add_tangent(value, "tangent_" + input->name);
    }
  }

  void add_tangent(const Value* value, const std::string& name) {
    Value* tangent =
        graph_.add_input(graph_.free_input_name(name),
                         ir::Type::tensor(value->type.dtype, value->type.sizes), ir::Role::tangent);
    accumulate(value, {builder_, tangent});
  }

  void seed_loss() {
    Value* loss = graph_.outputs().empty() ? nullptr : graph_.outputs()[0].value;
    if (loss == nullptr || loss->type.numel() != sym::Expr(1))
      throw UserError("the first output must be a loss of one element" +
                      (loss == nullptr ? std::string() : ", not " + to_string(loss->type)));
    if (!needs_.at(loss))
      throw UserError("the loss does not depend on anything that requires a gradient");
    accumulate(loss, ops::full(builder_, loss->type.sizes, 1, loss->type.dtype));
  }

  void accumulate(const Value* value, Tensor grad) {
    TD_CHECK(grad.sizes() == value->type.sizes && grad.dtype() == value->type.dtype)
        << "gradient " << to_string(grad.type()) << " of a value " << to_string(value->type);
    Tensor& sum = grads_[value];
    sum = sum ? sum + grad : grad;
  }

  void visit(const Node& node) {
    const ops::OpDef& def = ops::def_of(node);
    if (def.vjp == nullptr) return;
    std::vector<Tensor> grads;
    bool any = false;
    for (const Value* result : node.results) {
      grads.push_back(grads_.at(result));
      any |= static_cast<bool>(grads.back());
    }
    bool wanted = false;
    ir::for_each_operand(node.args, [&](const Value* v) { wanted |= needs_.at(v); });
    if (!any || !wanted) return;
    builder_.stamp().origin = node.origin;
    builder_.stamp().origin.forward = node.id;
    builder_.stamp().region = node.region;
    for (const ops::Gradient& gradient : def.vjp(builder_, node.call(), grads))
      pass_on(node, gradient);
  }

  void pass_on(const Node& node, const ops::Gradient& gradient) {
    int number = node.op->schema.find(gradient.param);
    TD_CHECK(number >= 0) << node.op->name() << " has no parameter " << gradient.param;
    const ir::Arg& arg = node.args[static_cast<size_t>(number)];
    const Value* operand = nullptr;
    if (Value* const* one = std::get_if<Value*>(&arg)) operand = *one;
    if (const ir::Values* many = std::get_if<ir::Values>(&arg))
      operand = (*many)[static_cast<size_t>(gradient.element)];
    if (operand == nullptr || !gradient.grad || !needs_.at(operand)) return;
    TD_CHECK(gradient.grad.sizes() == operand->type.sizes)
        << node.op->name() << ": gradient of " << gradient.param << " is "
        << to_string(gradient.grad.type()) << ", the operand " << to_string(operand->type);
    accumulate(operand, gradient.grad);
  }

  /// A gradient lies in memory as its input does.
  void add_gradients() {
    for (const Value* input : graph_.inputs()) {
      if (input->role == ir::Role::tangent || input->role == ir::Role::seed) continue;
      Tensor grad = input->requires_grad ? grads_.at(input) : Tensor();
      graph_.add_output({grad ? grad.value() : nullptr, ir::OutputKind::gradient, input->name,
                         memory_order(input->type)});
    }
  }

  ir::Graph& graph_;
  PassCtx& ctx_;
  Node* tail_;
  ir::Builder builder_;
  DenseMap<Value, char> needs_;
  DenseMap<Value, Tensor> grads_;
};

}  // namespace

void joint(ir::Graph& graph, PassCtx& ctx) { Joint(graph, ctx).run(); }

}  // namespace tandem::passes
