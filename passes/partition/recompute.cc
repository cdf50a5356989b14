// Problem: where one program owns the whole step nothing is saved between programs, but what
// backward reads lives from forward on, and a checkpoint region asks that it does not. Approach:
// what backward reads of such a region is copied right before its first reader there (copies.h), so
// a region's values live in forward as long as forward needs them, and once more in backward.
#include "passes/partition/copies.h"
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
    reads |= is_overwritten(base) && base->role != ir::Role::parameter;
  });
  return reads;
}

}  // namespace

void recompute(ir::Graph& graph, GraphCtx& ctx) {
  DenseMap<Node, char> asked;  // asked before uses change
  std::vector<Node*> readers;
  for (Node* node = graph.first(); node != nullptr; node = node->next) {
    asked[node] = !node->backward && asked_to_recompute(*node) && !reads_what_changes(*node);
    if (node->backward && !node->op->mutates()) readers.push_back(node);
  }
  Copies copies(graph, [&](const Value* value) {
    return value->node == nullptr || asked.at(value->node) == 0;
  });
  for (Node* reader : readers) copies.serve(*reader);
  if (copies.made() > 0)
    ctx.notes.push_back("recompute: " + std::to_string(copies.made()) +
                        " nodes are computed again");
}

}  // namespace tandem::passes
