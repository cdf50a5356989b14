// A gradient that has a gradient. The joint graph holds the backward as nodes like others, so what
// computes the gradients is a function of inputs and tangents:
//   (x_1 … x_n, t_1 … t_m) ↦ (dL/dx_1 … dL/dx_n),   L = sum_j <y_j(x), t_j>
// Here it becomes a graph of its own, and reverse mode can go through it as through any other. It
// computes forward values again from the inputs, because only they have a history outside.
#include <fmt/format.h>

#include <algorithm>

#include "base/dense_map.h"
#include "base/diagnostic.h"
#include "ir/data_sizes.h"
#include "passes/passes.h"

namespace tandem::passes {
namespace {

using ir::Node;
using ir::OutputKind;
using ir::Value;

/// What only forward was for goes: its results, and what it writes.
void keep_gradients_alone(ir::Graph& graph) {
  for (Node* node = first_write_back(graph); node != nullptr;) {
    Node* next = node->next;
    graph.erase(node);
    node = next;
  }
  const std::vector<ir::Output> outputs = graph.outputs();
  graph.clear_outputs();
  for (const ir::Output& output : outputs)
    if (output.kind == OutputKind::gradient && output.value != nullptr)
      graph.add_output({output.value, OutputKind::output, "", output.order});
}

/// All nodes are forward ones now, and no region asks for them to be computed again.
void begin_anew(ir::Graph& graph) {
  for (Node* node = graph.first(); node != nullptr; node = node->next) {
    node->backward = false;
    node->region = 0;
    node->policy = ir::RecomputePolicy::none;
    node->memory_budget.reset();
    node->origin.forward = -1;
  }
  for (Value* input : graph.inputs()) {
    if (input->role != ir::Role::tangent) continue;
    input->role = ir::Role::input;
    input->subject = {};
    input->requires_grad = true;
  }
}

/// Forward has run: what could fail in it has not.
void erase_what_nothing_reads(ir::Graph& graph) {
  for (Node* node = graph.last(); node != nullptr;) {
    Node* previous = node->prev;
    bool used = ir::gives_number(*node);  // it may be a size
    for (const Value* result : node->results) used |= !result->uses.empty();
    if (!used) graph.erase(node);
    node = previous;
  }
}

bool binds_a_size(const Value* input) {
  return !input->type.is_tensor() ||
         std::any_of(input->type.sizes.begin(), input->type.sizes.end(),
                     [](sym::Expr size) { return !size.is_constant(); });
}

/// Behind all other inputs, as a call takes it.
void put_seed_last(ir::Graph& graph) {
  const ir::Values inputs = graph.inputs();
  for (Value* input : inputs) {
    if (input->role != ir::Role::seed || input == inputs.back()) continue;
    Value* last = graph.add_input(graph.free_input_name(input->name), input->type, ir::Role::seed);
    graph.replace_all_uses(input, last);
    graph.erase_input(input);
    std::swap(last->name, input->name);
  }
}

/// A gradient of it would write once more.
void check_writes_nothing(const ir::Graph& graph) {
  for (const Value* input : graph.inputs())
    if (input->role == ir::Role::later)
      throw Unsupported(
          fmt::format("[differentiable_backward] a gradient of a gradient (create_graph), where "
                      "the backward of a custom function writes to input %{}",
                      graph.inputs().at(input->subject.number)->name));
}

}  // namespace

std::vector<std::string> inputs_of_gradients(const ir::Graph& graph) {
  DenseMap<Value, char> read;
  for (const ir::Output& output : graph.outputs())
    if (output.kind == OutputKind::gradient && output.value != nullptr) read[output.value] = 1;
  for (const Node* node = graph.last(); node != nullptr; node = node->prev) {
    bool runs = ir::gives_number(*node);
    for (const Value* result : node->results) runs |= read.at(result) != 0;
    if (runs) ir::for_each_operand(node->args, [&](const Value* operand) { read[operand] = 1; });
  }
  std::vector<std::string> names;
  for (const Value* input : graph.inputs())
    if (read.at(input) != 0 || binds_a_size(input)) names.push_back(input->name);
  return names;
}

void differentiable_backward(ir::Graph& graph, GraphCtx&) {
  check_writes_nothing(graph);
  const std::vector<std::string> kept = inputs_of_gradients(graph);
  keep_gradients_alone(graph);
  begin_anew(graph);
  erase_what_nothing_reads(graph);
  const ir::Values inputs = graph.inputs();
  for (Value* input : inputs)
    if (std::find(kept.begin(), kept.end(), input->name) == kept.end()) graph.erase_input(input);
  put_seed_last(graph);
}

}  // namespace tandem::passes
