// Problem: a region that is compiled once knows nothing of the place it is called from. Its weights
// are operands there, which no pass can fold, pack or quantize. Approach: where weights are
// constant, a call becomes the nodes of its body again, each with a copy of its own. After
// functionalize, behind which nothing shares memory, so a result that is an operand may stand for
// itself.
#include "ops/bodies.h"
#include "passes/copied.h"
#include "passes/passes.h"

namespace tandem::passes {
namespace {

using ir::Node;
using ir::Value;

/// Gives the first of the nodes that stand for it, or what follows.
Node* inline_call(ir::Graph& graph, Node* node) {
  const ir::Graph& body = *graph.module().find(node->call().string("body"));
  const ir::Values operands = node->call().values("operands");
  Moved moved;
  const ir::Values tensors = tensors_of(body);
  for (size_t i = 0; i < tensors.size(); ++i) moved[tensors[i]] = operands[i];
  Node* const before = node->prev;
  copy_nodes(body, graph, moved, node);
  for (Node* made = before == nullptr ? graph.first() : before->next; made != node;
       made = made->next)
    made->no_grad = made->no_grad || node->no_grad;
  for (size_t i = 0; i < node->results.size(); ++i)
    graph.replace_all_uses(node->results[i], at(moved, body.outputs()[i].value));
  graph.erase(node);
  return before == nullptr ? graph.first() : before->next;
}

bool is_call(const Node& node) {
  const std::vector<ops::Route>& routes = ops::def_of(node).fast;
  return !routes.empty() && routes[0].kind == ops::RouteKind::call;
}

}  // namespace

void inline_calls(ir::Graph& graph, GraphCtx&) {
  for (Node* node = graph.first(); node != nullptr;)
    node = is_call(*node) ? inline_call(graph, node) : node->next;
}

}  // namespace tandem::passes
