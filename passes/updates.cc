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

/// Where forward or backward write to a parameter, the formula is of what they leave, and its write
/// is the last.
void follow_write(ir::Graph& graph, ir::Node* first, const ir::Value* input) {
  ir::Node* const tail = first_write_back(graph);
  for (ir::Node* write = tail; write != nullptr; write = write->next) {
    if (std::get<ir::Value*>(write->args[0]) != input) continue;
    ir::Value* left = std::get<ir::Value*>(write->args[1]);
    for (ir::Node* node = first; node != tail; node = node->next)
      for (size_t i = 0; i < node->args.size(); ++i)
        graph.set_arg(node, i, ir::map_operands(node->args[i], [&](ir::Value* operand) {
                        return operand == input ? left : operand;
                      }));
    return graph.erase(write);
  }
}

}  // namespace

void updates(ir::Graph& graph, GraphCtx& ctx) {
  if (!ctx.updates) return;
  ir::Node* const tail = first_write_back(graph);
  const ir::Node* before = tail == nullptr ? graph.last() : tail->prev;
  ir::Builder builder(graph, tail);
  builder.stamp().no_grad = true;
  builder.stamp().backward = true;
  const std::vector<NewValue> values = ctx.updates(builder, take_gradients(graph));
  ir::Node* const first = before == nullptr ? graph.first() : before->next;
  for (const NewValue& write : values) follow_write(graph, first, write.input);
  ir::Builder end(graph);
  for (const NewValue& write : values) end.call("aten.copy_", {write.input, write.value});
}

}  // namespace tandem::passes
