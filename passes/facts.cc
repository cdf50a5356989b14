// One check per fact; the pass runner calls it after each pass that gives or must keep one.
#include <fmt/format.h>

#include <algorithm>

#include "ops/opdef.h"
#include "passes/passes.h"

namespace tandem::passes {
namespace {

using ir::Node;

bool is_write_back(const Node& node) {
  const ir::Value* const* target = std::get_if<ir::Value*>(&node.args[0]);
  bool at_end = true;
  for (const Node* after = node.next; after != nullptr; after = after->next)
    at_end &= after->op->mutates();
  return node.op->schema.name == "aten::copy_" && target != nullptr && (*target)->node == nullptr &&
         at_end;
}

/// Reads of a backward node that forward does not save.
bool reads_forward(const ir::Graph& graph, const Node& node) {
  bool reads = false;
  ir::for_each_operand(node.args, [&](const ir::Value* operand) {
    bool is_forward = operand->node == nullptr ? !ir::comes_with_backward(operand->role)
                                               : !operand->node->backward;
    bool is_saved =
        std::any_of(operand->uses.begin(), operand->uses.end(), [&](const ir::Use& use) {
          return use.node == nullptr && graph.outputs()[use.arg].kind == ir::OutputKind::saved;
        });
    reads |= node.backward && is_forward && !is_saved;
  });
  return reads;
}

std::string contradiction(const ir::Graph& graph, const Node& node, Facts facts) {
  const ops::OpDef& def = ops::def_of(node);
  if (node.op->mutates()) return (facts & kFunctional) && !is_write_back(node) ? "mutates" : "";
  if ((facts & kCore) && def.lower == nullptr && !def.opaque) return "has no lowering";
  if ((facts & kSeparate) && reads_forward(graph, node)) return "reads what forward does not save";
  bool open = def.vjp == nullptr && def.no_grad.empty();
  if ((facts & kDifferentiable) && open) return "has no gradient";
  int seed = def.random ? node.op->schema.find("seed") : -1;
  bool unseeded =
      seed >= 0 && std::holds_alternative<ir::None>(node.args[static_cast<size_t>(seed)]);
  if ((facts & kPure) && unseeded) return "has no seed";
  return "";
}

}  // namespace

ir::Node* first_write_back(const ir::Graph& graph) {
  Node* first = nullptr;
  for (Node* node = graph.last(); node != nullptr && node->op->mutates(); node = node->prev)
    first = node;
  return first;
}

std::vector<Diagnostic> check_facts(const ir::Graph& graph, Facts facts) {
  std::vector<Diagnostic> problems;
  for (const Node* node = graph.first(); node != nullptr; node = node->next) {
    std::string problem = contradiction(graph, *node, facts);
    if (!problem.empty())
      problems.push_back(
          {fmt::format("[{}] {}", node->op->schema.full_name(), problem), node->origin.place});
  }
  return problems;
}

}  // namespace tandem::passes
