// Operators that run in the caller's own framework: what a front end cannot express otherwise. The
// node names a function of the caller by number, and its result types are given, not inferred. Its
// gradient is the next function of the caller, which gets the inputs again: nothing opaque has to
// live from forward to backward. The one behind it is the gradient of that. None is merged,
// computed twice or removed.
#include <fmt/format.h>

#include "base/diagnostic.h"
#include "ops/families.h"
#include "ops/types.h"

namespace tandem::ops {
namespace {

using ir::Builder;
using ir::Call;

std::vector<ir::Type> float_types(const Tensors& tensors) {
  std::vector<ir::Type> types;
  for (const Tensor& tensor : tensors)
    if (is_float(tensor.dtype())) types.push_back(tensor.type());
  return types;
}

ir::Arg operands(const Tensors& tensors) { return Operand(tensors).arg; }

// One gradient for each float input, from the inputs and one gradient for each float result; zeros
// stand for gradients that are absent.
Gradients host_vjp(Builder& b, const Call& c, std::span<const Tensor> grads) {
  Tensors inputs;
  for (ir::Value* input : c.values("inputs")) inputs.emplace_back(b, input);
  Tensors given;
  for (size_t i = 0; i < grads.size(); ++i)
    if (is_float(c.result(i)->type.dtype))
      given.push_back(grads[i] ? grads[i] : zeros_like({b, c.result(i)}));
  const ir::Op& op = *b.graph().ops().find("tandem.host_backward");
  ir::Node* node = b.call_typed(op,
                                {operands(inputs), operands(given), c.arg("sizes"),
                                 c.integer("function") + 1, c.arg("label"), Expr(1)},
                                float_types(inputs));
  Gradients gradients;
  for (size_t i = 0, next = 0; i < inputs.size(); ++i)
    if (is_float(inputs[i].dtype()))
      gradients.push_back({"inputs", {b, node->results[next++]}, static_cast<int32_t>(i)});
  return gradients;
}

// The gradient of the gradient is one more function: it gets inputs and gradients, then a tangent
// for each gradient of an input, and gives a gradient for each float among the former.
Gradients second_vjp(Builder& b, const Call& c, std::span<const Tensor> tangents) {
  if (c.constant("order") != 1)
    throw Unsupported(
        fmt::format("[{}] runs outside of the program, and has no gradients beyond the second "
                    "(create_graph=True)",
                    c.string("label")));
  Tensors inputs;
  for (std::string_view name : {"inputs", "grads"})
    for (ir::Value* input : c.values(name)) inputs.emplace_back(b, input);
  Tensors given;
  for (size_t i = 0; i < tangents.size(); ++i)
    given.push_back(tangents[i] ? tangents[i] : zeros_like({b, c.result(i)}));
  const ir::Op& op = *b.graph().ops().find("tandem.host_backward");
  ir::Node* node = b.call_typed(op,
                                {operands(inputs), operands(given), c.arg("sizes"),
                                 c.integer("function") + 1, c.arg("label"), Expr(2)},
                                float_types(inputs));
  const size_t count = c.values("inputs").size();
  Gradients gradients;
  for (size_t i = 0, next = 0; i < inputs.size(); ++i) {
    if (!is_float(inputs[i].dtype())) continue;
    const bool is_input = i < count;
    gradients.push_back({is_input ? "inputs" : "grads",
                         {b, node->results[next++]},
                         static_cast<int32_t>(is_input ? i : i - count)});
  }
  return gradients;
}

std::string never(const Call&, const Target&) { return ""; }

const OpDef kHost{
    .schema = "tandem::host(Tensor[] inputs, SymInt[] sizes, int function, str label) -> Tensor[]",
    .vjp = host_vjp,
    .fast = {{RouteKind::host, never}},
    .can_fail = true,
    .opaque = true};
const OpDef kHostBackward{
    .schema =
        "tandem::host_backward(Tensor[] inputs, Tensor[] grads, SymInt[] sizes, int "
        "function, str label, int order=1) -> Tensor[]",
    .vjp = second_vjp,
    .fast = {{RouteKind::host, never}},
    .can_fail = true,
    .opaque = true};

const OpDef* const kOps[] = {&kHost, &kHostBackward};

}  // namespace

Family host_family() { return kOps; }

}  // namespace tandem::ops
