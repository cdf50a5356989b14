// Derivatives along tangents of inputs, where operators have rules for the other way alone.
// Approach: a gradient is linear in what it starts from, so of the joint graph's gradients
//   g(u) = Jᵀ u,   the gradient of <g(u), t> by u is J t,
// whatever u is. `linearize` makes the u (the tangents of results) what gradients are asked of;
// `jvp` goes backwards through all nodes once more, from tangents t of the inputs, and puts ones
// where u was (a rule may be linear in value and not in form, as exp(log u + x) is): what computed
// g is then mostly read by nothing. So every operator that has a second gradient has this, control
// flow included, and one that has none says so.
#include <fmt/format.h>

#include "base/diagnostic.h"
#include "passes/passes.h"
#include "passes/reverse_mode.h"

namespace tandem::passes {
namespace {

using ir::Node;
using ir::Value;
using ops::Tensor;

ir::Values starts_of(const ir::Graph& graph) {
  ir::Values starts;
  for (Value* input : graph.inputs())
    if (input->role == ir::Role::tangent) starts.push_back(input);
  return starts;
}

/// A write with a history had a tangent of its own. Others (running statistics) stay.
void check_writes(const ir::Graph& graph) {
  for (const Value* start : starts_of(graph))
    if (start->subject.kind == ir::Subject::Kind::input)
      throw Unsupported(fmt::format(
          "[jvp] the function writes input %{}: the derivative of what it wrote has no place among "
          "its results",
          graph.inputs().at(start->subject.number)->name));
}

Value* add_tangent(ir::Graph& graph, const Value& input) {
  Value* tangent =
      graph.add_input(graph.free_input_name("tangent_" + input.name),
                      ir::Type::tensor(input.type.dtype, input.type.sizes), ir::Role::tangent);
  tangent->subject = {ir::Subject::Kind::input, input.index};
  return tangent;
}

/// Tangents of the inputs that gradients reach, each where its gradient starts the way back.
void seed(ir::Graph& graph, ir::Builder& builder, ReverseMode& reverse) {
  const std::vector<ir::Output> outputs = graph.outputs();
  for (const ir::Output& output : outputs) {
    if (output.kind != ir::OutputKind::gradient || output.value == nullptr) continue;
    const Value& input = *graph.inputs().at(output.subject.number);
    reverse.accumulate(output.value, Tensor(builder, add_tangent(graph, input)));
  }
}

/// Derivatives say of which result they are.
void set_outputs(ir::Graph& graph, const ir::Values& starts, const ir::Values& derivatives) {
  const std::vector<ir::Output> outputs = graph.outputs();
  graph.clear_outputs();
  for (const ir::Output& output : outputs)
    if (output.kind == ir::OutputKind::output) graph.add_output(output);
  for (size_t i = 0; i < starts.size(); ++i)
    graph.add_output({derivatives[i], ir::OutputKind::output, "", {}, starts[i]->subject});
}

}  // namespace

void linearize(ir::Graph& graph, GraphCtx&) {
  check_writes(graph);
  for (Value* input : graph.inputs()) input->requires_grad = input->role == ir::Role::tangent;
}

void jvp(ir::Graph& graph, GraphCtx&) {
  const ir::Values starts = starts_of(graph);
  Node* const tail = first_write_back(graph);
  std::vector<Node*> nodes;
  for (Node* node = graph.first(); node != tail; node = node->next) nodes.push_back(node);
  ir::Builder builder(graph, tail);
  builder.stamp().backward = true;
  ReverseMode reverse(builder);
  for (const Value* start : starts) reverse.mark(start);
  reverse.find_needs(nodes);
  seed(graph, builder, reverse);
  reverse.visit(nodes);
  ir::Values derivatives;
  for (const Value* start : starts) {
    const Tensor derivative = reverse.gradient(start);
    derivatives.push_back(
        derivative ? derivative.value()
                   : ops::full(builder, start->type.sizes, 0, start->type.dtype).value());
  }
  set_outputs(graph, starts, derivatives);
  ir::Builder front(graph, graph.first());
  for (Value* start : starts) {
    graph.replace_all_uses(start,
                           ops::full(front, start->type.sizes, 1, start->type.dtype).value());
    graph.erase_input(start);
  }
}

}  // namespace tandem::passes
