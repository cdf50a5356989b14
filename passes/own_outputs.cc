// Results that are handed out as tensors of their own: a caller who writes to one must not change
// an input, a constant or another result. What the graph returns twice, or hands through, is
// copied; so is what lies in another order of dimensions than row-major. Memory of a view is made
// by the schedule, which gives every result a place.
#include <set>

#include "ops/opdef.h"
#include "passes/passes.h"

namespace tandem::passes {
namespace {

bool is_own(const ir::Output& output) {
  return output.kind != ir::OutputKind::saved && output.value != nullptr &&
         output.value->type.is_tensor();
}

/// Numbers of results that lie within an input, as the graph's signature says.
std::set<size_t> within_inputs(const ir::Graph& graph) {
  std::set<size_t> numbers;
  const ir::Graph* signature = graph.module().find(ir::GraphRole::Kind::signature, graph);
  if (signature == nullptr) return numbers;
  for (const ir::Value* value : signature->inputs())
    if (value->role == ir::Role::result && !value->within.base.empty())
      numbers.insert(value->subject.number);
  return numbers;
}

ir::Value* clone(ir::Graph& graph, const ir::Output& output, ir::Node* before) {
  ir::Builder builder(graph, before);
  builder.stamp().backward = output.kind == ir::OutputKind::gradient;
  ops::Tensor value(builder, output.value);
  if (!output.order.empty()) value = ops::permute(value, output.order);
  return ops::call(builder, "aten.clone", {value}).value();
}

}  // namespace

bool has_order(const ir::Graph& graph) {
  for (const ir::Output& output : graph.outputs())
    if (!output.order.empty()) return true;
  return false;
}

void own_outputs(ir::Graph& graph, GraphCtx&) {
  ir::Node* const tail = first_write_back(graph);
  const std::set<size_t> handed = within_inputs(graph);
  std::set<const ir::Value*> given;
  for (size_t i = 0; i < graph.outputs().size(); ++i) {
    const ir::Output output = graph.outputs()[i];
    if (!is_own(output) || handed.contains(i)) continue;
    bool is_free = output.value->node != nullptr && given.insert(output.value).second;
    if (!is_free || !output.order.empty()) graph.set_output(i, clone(graph, output, tail));
  }
}

}  // namespace tandem::passes
