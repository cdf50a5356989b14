// A training step is a joint graph whose gradients stay inside: an optimizer's formula reads them,
// and what it makes is written to the inputs that it is of. Which formula is the caller's to say;
// here is what all have in common: where the nodes stand, that they are outside of history, and
// that all writes come last, as in every functional graph.
#include "passes/passes.h"

namespace tandem::passes {
namespace {

/// Takes the gradients off the outputs, in the order of the parameters.
std::vector<ParameterGradient> take_gradients(ir::Graph& graph) {
  const std::vector<ir::Output> outputs = graph.outputs();
  graph.clear_outputs();
  std::vector<ParameterGradient> gradients;
  for (const ir::Output& output : outputs) {
    if (output.kind != ir::OutputKind::gradient) {
      graph.add_output(output);
      continue;
    }
    if (output.value != nullptr && output.subject.kind == ir::Subject::Kind::input)
      gradients.push_back({graph.inputs()[output.subject.number], output.value});
  }
  return gradients;
}

}  // namespace

void updates(ir::Graph& graph, GraphCtx& ctx) {
  if (!ctx.updates) return;
  ir::Builder builder(graph, first_write_back(graph));
  builder.stamp().no_grad = true;
  builder.stamp().backward = true;
  const std::vector<NewValue> values = ctx.updates(builder, take_gradients(graph));
  ir::Builder tail(graph);
  for (const NewValue& write : values) tail.call("aten.copy_", {write.input, write.value});
}

}  // namespace tandem::passes
