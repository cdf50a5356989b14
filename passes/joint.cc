// Reverse mode over the functional graph: backward nodes are appended behind the forward ones, in
// reverse order of their forward nodes.
#include <fmt/format.h>

#include "base/dense_map.h"
#include "ir/text.h"
#include "ops/opdef.h"
#include "passes/passes.h"
#include "passes/reverse_mode.h"
#include "passes/strides.h"

namespace tandem::passes {
namespace {

using ir::Node;
using ir::Value;
using ops::Tensor;

class Joint {
 public:
  Joint(ir::Graph& graph, GraphCtx& ctx)
      : graph_(graph),
        ctx_(ctx),
        tail_(first_write_back(graph)),
        builder_(graph, tail_),
        reverse_(builder_) {}

  void run() {
    std::vector<Node*> forward;
    for (Node* node = graph_.first(); node != tail_; node = node->next) forward.push_back(node);
    mark_inputs();
    reverse_.find_needs(forward);
    seed();
    builder_.stamp().backward = true;
    reverse_.visit(forward);
    gather_writes(forward.empty() ? graph_.first() : forward.back()->next);
    add_gradients();
  }

 private:
  void mark_inputs() {
    for (const Value* input : graph_.inputs()) {
      if (input->requires_grad && !is_float(input->type.dtype))
        ctx_.diagnostics.add(fmt::format("input %{} is {}: only floats have gradients", input->name,
                                         to_string(input->type)));
      if (input->requires_grad) reverse_.mark(input);
    }
    ctx_.diagnostics.finish();
  }

  void seed() {
    if (ctx_.gradients == Gradients::ones) return seed_loss();
    size_t count = graph_.outputs().size();
    for (size_t i = 0; i < count; ++i) {
      Value* value = graph_.outputs()[i].value;
      if (value != nullptr && reverse_.needs(value))
        add_tangent(value, {ir::Subject::Kind::output, static_cast<uint32_t>(i)},
                    fmt::format("tangent{}", i));
    }
    seed_mutated_inputs();
  }

  /// Who wrote to an input may go on with its new value, unless it was written outside of history.
  /// A new value that depends on nothing ends the history of the old one.
  void seed_mutated_inputs() {
    for (const Node* node = tail_; node != nullptr; node = node->next) {
      const Value* input = std::get<Value*>(node->args[0]);
      Value* value = std::get<Value*>(node->args[1]);
      if (!node->no_grad && (reverse_.needs(value) || input->requires_grad))
        add_tangent(value, {ir::Subject::Kind::input, input->index}, "tangent_" + input->name);
    }
  }

  void add_tangent(const Value* value, ir::Subject subject, const std::string& name) {
    Value* tangent =
        graph_.add_input(graph_.free_input_name(name),
                         ir::Type::tensor(value->type.dtype, value->type.sizes), ir::Role::tangent);
    tangent->subject = subject;
    reverse_.accumulate(value, {builder_, tangent});
  }

  void seed_loss() {
    Value* loss = graph_.outputs().empty() ? nullptr : graph_.outputs()[0].value;
    if (loss == nullptr || loss->type.numel() != sym::Expr(1))
      throw UserError("the first output must be a loss of one element" +
                      (loss == nullptr ? std::string() : ", not " + to_string(loss->type)));
    if (!reverse_.needs(loss))
      throw UserError("the loss does not depend on anything that requires a gradient");
    reverse_.accumulate(loss, ops::full(builder_, loss->type.sizes, 1, loss->type.dtype));
  }

  /// Of an input: empty where no history leads to it, zeros where only zero came of it.
  Tensor gradient_of(const Value* input) {
    if (!input->requires_grad || !reverse_.is_reached(input)) return {};
    if (const Tensor grad = reverse_.gradient(input)) return grad;
    return ops::full(builder_, input->type.sizes, 0, input->type.dtype);
  }

  /// What custom functions write to inputs in backward, each reading what the one before has
  /// written, is one write of each such input at the end.
  void gather_writes(Node* first) {
    DenseMap<Value, Value*> now;
    for (Node* node = first; node != tail_; node = node->next) {
      for (size_t i = 0; i < node->args.size(); ++i) {
        if (node->op->mutates() && i == 0) continue;
        const ir::Arg read = ir::map_operands(node->args[i], [&](Value* operand) {
          return now.at(operand) == nullptr ? operand : now.at(operand);
        });
        if (read != node->args[i]) graph_.set_arg(node, i, read);
      }
      if (!node->op->mutates()) continue;
      now[std::get<Value*>(node->args[0])] = std::get<Value*>(node->args[1]);
      graph_.erase(node);
    }
    ir::Builder end(graph_);
    end.stamp().backward = end.stamp().no_grad = true;
    for (Value* input : graph_.inputs())
      if (now.at(input) != nullptr) end.call("aten.copy_", {input, now.at(input)});
  }

  /// A gradient lies in memory as its input does.
  void add_gradients() {
    for (const Value* input : graph_.inputs()) {
      if (ir::comes_with_backward(input->role) || input->role == ir::Role::seed) continue;
      const Tensor grad = gradient_of(input);
      graph_.add_output({grad ? grad.value() : nullptr,
                         ir::OutputKind::gradient,
                         input->name,
                         memory_order(input->type),
                         {ir::Subject::Kind::input, input->index}});
    }
  }

  ir::Graph& graph_;
  GraphCtx& ctx_;
  Node* tail_;
  ir::Builder builder_;
  ReverseMode reverse_;
};

}  // namespace

void joint(ir::Graph& graph, GraphCtx& ctx) {
  if (ctx.gradients != Gradients::none) Joint(graph, ctx).run();
}

}  // namespace tandem::passes
