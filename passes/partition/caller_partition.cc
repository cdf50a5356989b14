// Problem: who compiles may know better than any price what its backward should find saved.
// Approach: its function looks at the joint graph and names values; it decides nothing else. What
// forward cannot have is an error, and what backward could not make a second time without its
// giving something else is saved beside what was named, as are inputs, so that no function makes a
// wrong gradient.
#include <fmt/format.h>

#include <algorithm>

#include "base/diagnostic.h"
#include "ir/text.h"
#include "passes/partition/budget.h"
#include "passes/partition/cut.h"
#include "passes/partition/partition.h"

namespace tandem::passes {
namespace {

using ir::Node;
using ir::Value;

/// Once each, in graph order: inputs first.
ir::Values sorted(const ir::Graph& graph, const ir::Values& named) {
  DenseMap<Value, char> is_named;
  for (const Value* value : named) is_named[value] = 1;
  ir::Values values;
  for (Value* input : graph.inputs())
    if (is_named.at(input) != 0) values.push_back(input);
  for (const Node* node = graph.first(); node != nullptr; node = node->next)
    for (Value* result : node->results)
      if (is_named.at(result) != 0) values.push_back(result);
  return values;
}

void check(const ir::Graph& graph, const Halves& halves, const ir::Values& named,
           const std::string& name) {
  for (const Value* value : named) {
    if (value == nullptr) throw UserError(fmt::format("[partition] '{}' gives no value", name));
    if (!halves.is_forward(value))
      throw UserError(
          fmt::format("[partition] '{}': %{} is no value of forward, which cannot save it", name,
                      ir::value_names(graph).at(value)));
  }
}

/// Inputs that backward, or what it computes again, reads: nothing makes them.
void add_inputs(const ir::Graph& graph, const Halves& halves, ir::Values& saved) {
  DenseMap<Node, char> runs_behind;
  for (const Node* node : computed_again(graph, halves, saved)) runs_behind[node] = 1;
  for (Value* input : graph.inputs()) {
    const auto reads = [&](const ir::Use& use) {
      if (use.node == nullptr) return graph.outputs()[use.arg].kind == ir::OutputKind::gradient;
      return runs_behind.at(use.node) != 0 || !halves.is_forward(use.node);
    };
    if (halves.is_forward(input) && std::ranges::any_of(input->uses, reads)) saved.push_back(input);
  }
}

/// With what must be there beside it.
ir::Values completed(const ir::Graph& graph, const Halves& halves, ir::Values saved,
                     std::vector<std::string>& notes) {
  for (bool is_whole = false; !is_whole;) {
    is_whole = true;
    for (const Node* node : computed_again(graph, halves, saved)) {
      if (gives_the_same_again(*node)) continue;
      saved.insert(saved.end(), node->results.begin(), node->results.end());
      notes.push_back(fmt::format("partition: saves {} too: a second run could give something else",
                                  ir::to_string(*node)));
      is_whole = false;
    }
  }
  add_inputs(graph, halves, saved);
  return sorted(graph, saved);
}

}  // namespace

ir::Values caller_choice(ir::Graph& graph, GraphCtx& ctx) {
  const CallerPartition& partition = ctx.caller_partition;
  const std::string before = ir::to_string(graph);
  const ir::Values named = partition.run(graph);
  if (ir::to_string(graph) != before)
    throw UserError(
        fmt::format("[partition] '{}' edits the graph; a partition only chooses, joint_passes edit",
                    partition.name));
  const Halves halves(graph);
  check(graph, halves, named, partition.name);
  return completed(graph, halves, sorted(graph, named), ctx.notes);
}

}  // namespace tandem::passes
