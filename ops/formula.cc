// What formulas ask of the call: its tensor parameters, and the type rules of activations.
#include "ops/formula.h"

namespace tandem::ops {

using ir::Call;

std::vector<std::string_view> tensor_params(const Call& c) {
  std::vector<std::string_view> names;
  for (const ir::Param& param : c.op().schema.params)
    if (param.type == ir::ParamType::tensor) names.push_back(param.name);
  return names;
}

Tensor tensor_of(ir::Builder& b, const Call& c, std::string_view param, DType dtype) {
  if (is_tensor(c, param)) return {b, c.value(param)};
  return call(b, "aten.full", {ir::Sizes{}, c.arg(param), dtype});
}

Types float_same(const Call& c) {
  Types types = unary_same(c);
  if (!is_float(types[0].dtype)) c.fail("needs a float dtype, not " + to_string(types[0]));
  return types;
}

Types backward_types(const Call& c) {
  std::vector<std::string_view> names = tensor_params(c);
  const ir::Type& grad = c.type(names[0]);
  const ir::Type& other = c.type(names[1]);
  if (!is_float(promote(grad.dtype, other.dtype))) need_float(c, names[0]);
  return {ir::Type::tensor(grad.dtype, broadcast(c, grad.sizes, other.sizes))};
}

}  // namespace tandem::ops
