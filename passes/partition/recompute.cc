// Problem: where one program owns the whole step nothing is saved between programs, but what
// backward reads lives from forward on, and a checkpoint region asks that it does not. Approach:
// what backward reads of such a region is copied right before its first reader there (copies.h), so
// a region's values live in forward as long as forward needs them, and once more in backward. A
// partition is the same wish for what it would not save.
#include "ir/writes.h"
#include "passes/partition/budget.h"
#include "passes/partition/copies.h"
#include "passes/partition/cut.h"
#include "passes/passes.h"

namespace tandem::passes {

using ir::Node;
using ir::Value;

namespace {

/// What forward itself overwrites may have its new value before a copy would read the old one: a
/// kernel that does both writes first. Parameters are written by updates, which come last.
bool reads_what_changes(const Node& node) {
  bool reads = false;
  ir::for_each_operand(node.args, [&](Value* operand) {
    const Value* base = base_of(operand);
    reads |= ir::is_written(base) && base->role != ir::Role::parameter;
  });
  return reads;
}

using Nodes = DenseMap<Node, char>;

size_t copy_for_backward(ir::Graph& graph, const Nodes& again) {
  const Halves halves(graph);
  std::vector<Node*> readers;
  for (Node* node = graph.first(); node != nullptr; node = node->next)
    if ((node->backward || halves.needs_tangent(node)) && !node->op->mutates())
      readers.push_back(node);
  Copies copies(graph, [&](const Value* value) {
    return value->node == nullptr || again.at(value->node) == 0 || reads_what_changes(*value->node);
  });
  for (Node* reader : readers) copies.serve(*reader);
  return copies.made();
}

bool is_asked(const Node& node) { return !node.backward && asked_to_recompute(node); }

Nodes asked_by_policy(const ir::Graph& graph) {
  Nodes asked;
  for (const Node* node = graph.first(); node != nullptr; node = node->next)
    asked[node] = is_asked(*node);
  return asked;
}

bool asks_for_nothing(const ir::Graph& graph) {
  for (const Node* node = graph.first(); node != nullptr; node = node->next)
    if (is_asked(*node)) return false;
  return true;
}

}  // namespace

size_t recompute_unsaved(ir::Graph& graph, const ir::Values& saved) {
  Nodes again = asked_by_policy(graph);
  for (const Node* node : computed_again(graph, Halves(graph), saved)) again[node] = true;
  return copy_for_backward(graph, again);
}

void recompute(ir::Graph& graph, GraphCtx& ctx) {
  size_t copies = 0;
  if (ctx.partition == Partition::none || !is_whole_step(graph)) {
    if (asks_for_nothing(graph)) return;  // most programs
    copies = copy_for_backward(graph, asked_by_policy(graph));
  } else {
    const ir::Values saved = chosen_values(graph, ctx);
    describe_choice(graph, ctx, saved);
    copies = recompute_unsaved(graph, saved);
  }
  if (copies > 0)
    ctx.notes.push_back("recompute: " + std::to_string(copies) + " nodes are computed again");
}

}  // namespace tandem::passes
