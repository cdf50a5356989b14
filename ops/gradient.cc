// Gradients as values of the program: what torch.autograd.grad is in a graph. The pass
// inner_gradients writes reverse mode in its place, so it has no loops and no rule of its own.
#include <fmt/format.h>

#include "ops/families.h"
#include "ops/types.h"

namespace tandem::ops {
namespace {

using ir::Call;

Types gradient_types(const Call& c) {
  const ir::Values& outputs = c.values("outputs");
  const ir::Values& tangents = c.values("tangents");
  if (!tangents.empty() && tangents.size() != outputs.size())
    c.fail(fmt::format("{} tangents for {} outputs", tangents.size(), outputs.size()));
  for (size_t i = 0; i < outputs.size(); ++i) {
    const ir::Type& type = outputs[i]->type;
    if (!is_float(type.dtype) && !is_complex(type.dtype))
      c.fail("an output is " + to_string(type) + ", not a float");
    if (tangents.empty() && !sym::known_eq(type.numel(), 1))
      c.fail("an output without a tangent is " + to_string(type) + ", not one number");
    if (tangents.empty()) continue;
    const ir::Type& given = tangents[i]->type;
    if (given.dtype != type.dtype || given.sizes != type.sizes)
      c.fail("an output is " + to_string(type) + ", its tangent " + to_string(given));
  }
  Types types;
  for (const ir::Value* input : c.values("inputs")) {
    if (!is_float(input->type.dtype) && !is_complex(input->type.dtype))
      c.fail("a gradient for " + to_string(input->type));
    types.push_back(ir::Type::tensor(input->type.dtype, input->type.sizes));
  }
  return types;
}

/// Of both parts of each, d/dre + i d/dim.
ComplexResults gradient_of_parts(const ComplexCall& c) {
  const auto parts = [&](const ir::Values& values) {
    Tensors found;
    for (const ir::Value* value : values) {
      const ComplexParts z = c.given(value);
      found.push_back(z.re);
      if (z.im) found.push_back(z.im);
    }
    return found;
  };
  const ir::Values& inputs = c.whole.values("inputs");
  const Tensors made =
      call_many(c.builder, c.whole.op().name(),
                {parts(c.whole.values("outputs")), parts(c.whole.values("tangents")), parts(inputs),
                 c.whole.arg("create_graph")});
  ComplexResults results;
  size_t next = 0;
  for (const ir::Value* input : inputs) {
    const Tensor re = made[next++];
    results.push_back({re, is_complex(input->type.dtype) ? made[next++] : Tensor()});
  }
  return results;
}

const OpDef kGradient{
    .schema =
        "tandem::gradient(Tensor[] outputs, Tensor[] tangents, Tensor[] inputs, bool "
        "create_graph=False) -> Tensor[]",
    .types = gradient_types,
    .no_grad = "the pass inner_gradients writes it in ops that have gradients",
    .samples = {},
    .complex = {gradient_of_parts}};

const OpDef* const kOps[] = {&kGradient};

}  // namespace

Family gradient_family() { return kOps; }

}  // namespace tandem::ops
