// One formula, two readings: written once over `auto`, on elements it is the lowering (one kernel,
// computed in f32 and rounded once), on tensors the decomposition that second derivatives flow
// through.
#pragma once

#include <array>
#include <string_view>
#include <vector>

#include "ops/elements.h"

namespace tandem::ops {

inline Tensor operator<(Tensor a, double b) { return compare("lt", a, b); }
inline Tensor operator<=(Tensor a, double b) { return compare("le", a, b); }
inline Tensor operator>(Tensor a, double b) { return compare("gt", a, b); }
inline Tensor operator>=(Tensor a, double b) { return compare("ge", a, b); }
inline Tensor both(Tensor a, Tensor b) { return call(a.builder(), "aten.logical_and", {a, b}); }
inline Tensor either(Tensor a, Tensor b) { return call(a.builder(), "aten.logical_or", {a, b}); }
inline Tensor pick(Tensor cond, Tensor a, Tensor b) { return where(cond, a, b); }
inline Tensor pick(Tensor cond, Tensor a, double b) { return where(cond, a, b); }
inline Tensor pick(Tensor cond, double a, Tensor b) { return where(cond, a, b); }
inline Element pick(Element cond, Element a, Element b) { return choose(cond, a, b); }
inline Element pick(Element cond, Element a, double b) { return choose(cond, a, a.number(b)); }
inline Element pick(Element cond, double a, Element b) { return choose(cond, b.number(a), b); }
inline Element clamp(Element x, double lo, double hi) {
  return min(max(x, x.number(lo)), x.number(hi));
}

/// Names of the tensor parameters, in schema order.
std::vector<std::string_view> tensor_params(const ir::Call& call);

/// F(call, x), F(call, x, y) or F(call, x, y, z) over the tensor arguments.
template <auto F, class T>
auto apply_formula(const ir::Call& call, const std::vector<T>& x) {
  if constexpr (std::is_invocable_v<decltype(F), const ir::Call&, T>)
    return called<F>(call, x[0]);
  else if constexpr (std::is_invocable_v<decltype(F), const ir::Call&, T, T>)
    return called<F>(call, x[0], x[1]);
  else
    return called<F>(call, x[0], x[1], x[2]);
}

template <auto F>
Definition formula(Lowering& lowering, const ir::Call& call) {
  DType compute = compute_type(call.result()->type.dtype);
  return map_definition(call, [&lowering, call, compute](size_t, const Index& index) {
    std::vector<Element> elements;
    for (std::string_view name : tensor_params(call))
      elements.push_back(operand(lowering, call, name, index, compute));
    return apply_formula<F>(call, elements).value();
  });
}

template <auto F>
Tensors unfolded(ir::Builder& builder, const ir::Call& call) {
  DType result = call.result()->type.dtype;
  Tensors operands;
  for (std::string_view name : tensor_params(call))
    operands.push_back(to(Tensor{builder, call.value(name)}, compute_type(result)));
  return {to(apply_formula<F>(call, operands), result)};
}

/// Operand `param` as a tensor: a number becomes one without dimensions, of the call's dtype.
Tensor tensor_of(ir::Builder& builder, const ir::Call& call, std::string_view param, DType dtype);

/// Gradient of y = f(self): Slope(x, y) times that of y.
template <auto Slope>
Gradients slope_vjp(ir::Builder& b, const ir::Call& c, std::span<const Tensor> g) {
  return {{"self", g[0] * called<Slope>(Tensor{b, c.value("self")}, Tensor{b, c.result()})}};
}

/// Gradient of y = f(self, other): Grads(g, a, b, y) gives both; a number's is left out.
template <auto Grads>
Gradients pair_vjp(ir::Builder& builder, const ir::Call& c, std::span<const Tensor> g) {
  DType dtype = common_dtype(c, {"self", "other"});
  std::array<Tensor, 2> operands{tensor_of(builder, c, "self", dtype),
                                 tensor_of(builder, c, "other", dtype)};
  std::array<Tensor, 2> grads =
      called<Grads>(g[0], operands[0], operands[1], Tensor{builder, c.result()});
  Gradients found;
  for (size_t i = 0; i < 2; ++i) {
    std::string_view name = i == 0 ? "self" : "other";
    if (is_tensor(c, name) && grads[i]) found.push_back({name, sum_to(grads[i], c.type(name))});
  }
  return found;
}

/// Type of self, which must be a float.
Types float_same(const ir::Call& call);
/// Of a gradient op: grad_output's dtype, broadcast with the second tensor.
Types backward_types(const ir::Call& call);

}  // namespace tandem::ops
