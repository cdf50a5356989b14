// Replaces ops by what they are made of. New nodes stand where the old one stood and are visited in
// turn, so nested decompositions unfold in one walk.
#include "passes/decompose.h"

#include <algorithm>

#include "base/check.h"
#include "ir/data_sizes.h"
#include "ops/opdef.h"
#include "passes/passes.h"

namespace tandem::passes {

using ir::Node;

bool is_composite(const Node& node) {
  const ops::OpDef& def = ops::def_of(node);
  return !node.op->mutates() && def.decompose != nullptr &&
         (def.composite == nullptr || def.composite(node.call()));
}

Node* decompose(ir::Graph& graph, Node* node) {
  return decompose(graph, node, ops::def_of(*node).decompose);
}

Node* decompose(ir::Graph& graph, Node* node, ops::DecomposeRule rule) {
  Node* before = node->prev;
  ir::Builder builder(graph, node);
  builder.stamp() = ir::Builder::stamp_of(*node);
  ops::Tensors results = rule(builder, node->call());
  TD_CHECK(results.size() == node->results.size()) << "decomposition of " << node->op->name();
  for (size_t i = 0; i < results.size(); ++i) {
    if (!results[i]) continue;
    TD_CHECK(results[i].type().dtype == node->results[i]->type.dtype)
        << "dtype of " << node->op->name();
    graph.replace_all_uses(node->results[i], results[i].value());
  }
  Node* first = before == nullptr ? graph.first() : before->next;
  Node* next = first == node ? node->next : first;
  graph.erase(node);
  return next;
}

void decompose_where(ir::Graph& graph, const std::function<bool(const Node&)>& wanted) {
  for (Node* node = graph.first(); node != nullptr;) {
    const bool is_wanted = !node->op->mutates() && ops::def_of(*node).decompose != nullptr;
    node = is_wanted && wanted(*node) ? decompose(graph, node) : node->next;
  }
}

void decompose_composite(ir::Graph& graph, GraphCtx& ctx) {
  decompose_where(graph, [&](const Node& node) {
    const ops::OpDef& def = ops::def_of(node);
    if (std::ranges::find(ctx.kept, node.op->name()) != ctx.kept.end()) return false;
    if (def.composite != nullptr) return def.composite(node.call());
    if (ir::data_dim(*node.op, node.args) >= 0) return true;
    return def.vjp == nullptr && def.no_grad.empty();
  });
}

void decompose_core(ir::Graph& graph, GraphCtx&) {
  decompose_where(graph, [](const Node& node) {
    const ops::OpDef& def = ops::def_of(node);
    if (def.opaque) return false;
    return def.lower == nullptr || (def.composite != nullptr && def.composite(node.call()));
  });
}

}  // namespace tandem::passes
