// A function of the user's with a backward of the user's. The forward stands in the graph, outside
// of history; this node hands its outputs on, and reverse mode writes the body of the backward
// where the node's gradient is asked for. The body is a graph of the module: gradients of the
// outputs, then what forward saved; one result for each operand of the function, or none.
#include <fmt/format.h>

#include <map>

#include "base/diagnostic.h"
#include "ir/graph.h"
#include "ops/families.h"
#include "ops/types.h"

namespace tandem::ops {
namespace {

using ir::Builder;
using ir::Call;

/// A body may write to what it is given: gradients, which nobody else reads, and inputs that come
/// as they are then (passes/later_inputs.cc), but not to what forward saved, which lives on.
void write(Builder& b, const Call& c, const ir::Node& node, ir::Value* target, ir::Value* value) {
  const ir::Value* written = std::get<ir::Value*>(node.args[0]);
  if (written->node == nullptr && written->index < c.result_count()) return;
  if (target->role != ir::Role::later)
    throw Unsupported(
        fmt::format("[{}] the backward of a custom function writes to %{}, which it "
                    "did not make",
                    c.op().schema.full_name(), written->name));
  b.call("aten.copy_", {target, value});
}

/// Writes the nodes of `body` with `arguments` for its inputs; its results.
ir::Values write_body(Builder& b, const Call& c, const ir::Graph& body,
                      const ir::Values& arguments) {
  std::map<const ir::Value*, ir::Value*> known;
  for (size_t i = 0; i < arguments.size(); ++i) known[body.inputs()[i]] = arguments[i];
  for (const ir::Node* node = body.first(); node != nullptr; node = node->next) {
    if (node->op->mutates()) {  // of its inputs, at its end
      write(b, c, *node, known.at(std::get<ir::Value*>(node->args[0])),
            known.at(std::get<ir::Value*>(node->args[1])));
      continue;
    }
    std::vector<ir::Arg> args;
    for (const ir::Arg& arg : node->args)
      args.push_back(ir::map_operands(arg, [&](ir::Value* v) { return known.at(v); }));
    const ir::Node* made = b.call(*node->op, std::move(args));
    for (size_t i = 0; i < node->results.size(); ++i) known[node->results[i]] = made->results[i];
  }
  ir::Values results;
  for (const ir::Output& output : body.outputs())
    results.push_back(output.value == nullptr ? nullptr : known.at(output.value));
  return results;
}

void check_body(const Call& c, const ir::Graph& body, const ir::Values& arguments) {
  if (arguments.size() != body.inputs().size())
    c.fail(fmt::format("@{} takes {} arguments, not {}", body.name(), body.inputs().size(),
                       arguments.size()));
  for (size_t i = 0; i < arguments.size(); ++i) {
    const ir::Type& wanted = body.inputs()[i]->type;
    const ir::Type& given = arguments[i]->type;
    if (wanted.dtype != given.dtype || wanted.sizes.size() != given.sizes.size())
      c.fail(fmt::format("@{} takes {} for '{}', not {}", body.name(), to_string(wanted),
                         body.inputs()[i]->name, to_string(given)));
  }
}

/// By input: the result of the body that is its gradient.
std::vector<int64_t> kept_of(const Call& c, size_t results) {
  std::vector<int64_t> kept = c.constants("kept");
  const size_t inputs = c.values("inputs").size();
  if (kept.size() != inputs)
    c.fail(fmt::format("'kept' has {} numbers for {} inputs", kept.size(), inputs));
  for (int64_t number : kept)
    if (number < 0 || static_cast<size_t>(number) >= results)
      c.fail(fmt::format("'kept' names result {} of {}", number, results));
  return kept;
}

/// An output that was saved has the history of this node, as in eager: the gradient of the gradient
/// goes through it.
ir::Value* handed_on(const Call& c, ir::Value* saved) {
  const ir::Values& outputs = c.values("outputs");
  for (size_t i = 0; i < outputs.size(); ++i)
    if (outputs[i] == saved) return c.result(i);
  return saved;
}

Gradients custom_vjp(Builder& b, const Call& c, std::span<const Tensor> grads) {
  const ir::Graph* body = b.graph().module().find(c.string("body"));
  if (body == nullptr) c.fail("there is no graph @" + c.string("body"));
  ir::Values arguments;
  for (size_t i = 0; i < grads.size(); ++i)
    arguments.push_back((grads[i] ? grads[i] : zeros_like({b, c.result(i)})).value());
  for (ir::Value* saved : c.values("saved")) arguments.push_back(handed_on(c, saved));
  check_body(c, *body, arguments);
  ir::Values results = write_body(b, c, *body, arguments);
  const ir::Values& inputs = c.values("inputs");
  const std::vector<int64_t> kept = kept_of(c, results.size());
  Gradients gradients;
  for (size_t i = 0; i < inputs.size(); ++i) {
    ir::Value* grad = results[static_cast<size_t>(kept[i])];
    if (grad == nullptr || !is_float(inputs[i]->type.dtype)) continue;
    gradients.push_back({"inputs", sum_to({b, grad}, inputs[i]->type), static_cast<int32_t>(i)});
  }
  return gradients;
}

const OpDef kCustomGradient{
    .schema =
        "tandem::custom_gradient(Tensor[] outputs, Tensor[] inputs, Tensor[] saved, int[] "
        "kept, str body) -> Tensor[]",
    .types = [](const Call& c) -> Types {
      Types types;
      for (const ir::Value* output : c.values("outputs"))
        types.push_back(ir::Type::tensor(output->type.dtype, output->type.sizes));
      return types;
    },
    .decompose = [](Builder& b, const Call& c) -> Tensors {
      Tensors outputs;
      for (ir::Value* output : c.values("outputs")) outputs.emplace_back(b, output);
      return outputs;
    },
    .vjp = custom_vjp,
    .hands_on = "outputs",
    .samples = {}};

const OpDef* const kOps[] = {&kCustomGradient};

}  // namespace

Family custom_gradient_family() { return kOps; }

}  // namespace tandem::ops
