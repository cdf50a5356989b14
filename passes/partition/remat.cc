// After a choice, backward still reads forward values that are not saved. Each gets a copy of the
// node that makes it, and that node's operands in turn (copies.h).
#include "passes/partition/copies.h"
#include "passes/passes.h"

namespace tandem::passes {

using ir::Node;
using ir::Value;

void remat(ir::Graph& graph, GraphCtx& ctx) {
  const Halves halves(graph);
  DenseMap<Value, char> saved;
  for (const ir::Output& output : graph.outputs())
    if (output.kind == ir::OutputKind::saved) saved[output.value] = true;
  // New nodes are in no half, so copies are at hand.
  Copies copies(
      graph, [&](const Value* value) { return !halves.is_forward(value) || saved.at(value) != 0; });
  std::vector<Node*> nodes;
  for (Node* node = graph.first(); node != nullptr; node = node->next) nodes.push_back(node);
  for (Node* node : nodes) {
    node->backward = !halves.is_forward(node);
    if (node->backward) copies.serve(*node);
  }
  for (size_t i = 0; i < graph.outputs().size(); ++i) {
    const ir::Output& output = graph.outputs()[i];
    if (output.kind == ir::OutputKind::gradient && output.value != nullptr)
      graph.set_output(i, copies.available(output.value, first_write_back(graph)));
  }
  ctx.notes.push_back("remat: " + std::to_string(copies.made()) + " nodes are computed again");
}

}  // namespace tandem::passes
