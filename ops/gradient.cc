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
    if (!is_float(type.dtype)) c.fail("an output is " + to_string(type) + ", not a float");
    if (tangents.empty() && !sym::known_eq(type.numel(), 1))
      c.fail("an output without a tangent is " + to_string(type) + ", not one number");
    if (tangents.empty()) continue;
    const ir::Type& given = tangents[i]->type;
    if (given.dtype != type.dtype || given.sizes != type.sizes)
      c.fail("an output is " + to_string(type) + ", its tangent " + to_string(given));
  }
  Types types;
  for (const ir::Value* input : c.values("inputs")) {
    if (!is_float(input->type.dtype)) c.fail("a gradient for " + to_string(input->type));
    types.push_back(ir::Type::tensor(input->type.dtype, input->type.sizes));
  }
  return types;
}

const OpDef kGradient{
    .schema =
        "tandem::gradient(Tensor[] outputs, Tensor[] tangents, Tensor[] inputs, bool "
        "create_graph=False) -> Tensor[]",
    .types = gradient_types,
    .no_grad = "the pass inner_gradients writes it in ops that have gradients",
    .samples = {}};

const OpDef* const kOps[] = {&kGradient};

}  // namespace

Family gradient_family() { return kOps; }

}  // namespace tandem::ops
