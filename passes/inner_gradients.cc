// Gradients that the program itself asks for (torch.autograd.grad in a graph, so the backward of a
// training step in one graph): each tandem::gradient node becomes reverse mode over the nodes
// before it. What is written stands outside of history unless `create_graph` asks for gradients of
// gradients; then it is made of ops that have gradients, as all nodes before it are.
#include "ops/opdef.h"
#include "passes/passes.h"
#include "passes/reverse_mode.h"

namespace tandem::passes {
namespace {

using ir::Node;
using ops::Tensor;

bool creates_graph(const Node& node) { return node.call().boolean("create_graph"); }

bool asks(const Node& node) { return node.op->schema.name == "tandem::gradient"; }

/// d sum_i <outputs_i, tangents_i> / d inputs_k; tangents are ones where none are given.
void seed(ReverseMode& reverse, ir::Builder& builder, const ir::Call& call) {
  const ir::Values& outputs = call.values("outputs");
  const ir::Values& tangents = call.values("tangents");
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!reverse.needs(outputs[i])) continue;
    const ir::Type& type = outputs[i]->type;
    reverse.accumulate(outputs[i], tangents.empty() ? ops::full(builder, type.sizes, 1, type.dtype)
                                                    : Tensor(builder, tangents[i]));
  }
}

void expand(ir::Graph& graph, Node* node, const std::vector<Node*>& before) {
  const ir::Call call = node->call();
  ir::Builder builder(graph, node);
  builder.stamp().no_grad = node->no_grad || !creates_graph(*node);
  builder.stamp().backward = !creates_graph(*node);
  builder.stamp().origin = node->origin;
  ReverseMode reverse(builder);
  const ir::Values& inputs = call.values("inputs");
  for (const ir::Value* input : inputs) reverse.mark(input);
  reverse.find_needs(before);
  seed(reverse, builder, call);
  reverse.visit(before);
  for (size_t i = 0; i < inputs.size(); ++i) {
    Tensor gradient = reverse.gradient(inputs[i]);
    if (!gradient) gradient = ops::full(builder, inputs[i]->type.sizes, 0, inputs[i]->type.dtype);
    graph.replace_all_uses(node->results[i], gradient.value());
  }
  graph.erase(node);
}

}  // namespace

void inner_gradients(ir::Graph& graph, GraphCtx& ctx) {
  std::vector<Node*> before;
  Node* next = nullptr;
  for (Node* node = graph.first(); node != nullptr; node = next) {
    next = node->next;
    if (!asks(*node)) {
      before.push_back(node);
      continue;
    }
    const bool has_history = creates_graph(*node);
    expand(graph, node, before);
    if (has_history) decompose_composite(graph, ctx);
    before.clear();
    for (Node* each = graph.first(); each != next; each = each->next) before.push_back(each);
  }
}

}  // namespace tandem::passes
