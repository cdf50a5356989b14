// What losses share: the computation in f32 and the reduction at the end.
#pragma once

#include "ops/families.h"
#include "ops/types.h"

namespace tandem::ops::loss {

enum Reduction : int64_t { kNone = 0, kMean = 1, kSum = 2 };

inline int64_t reduction_of(const Call& c) {
  int64_t reduction = c.constant("reduction");
  if (reduction < kNone || reduction > kSum)
    c.fail("reduction must be 0 (none), 1 (mean) or 2 (sum)");
  return reduction;
}
inline Tensor tensor(Builder& b, const Call& c, std::string_view name) {
  return {b, c.value(name)};
}
inline Tensor widened(Tensor x) { return to(x, compute_type(to_float(x.dtype()))); }
inline Tensor wide(Builder& b, const Call& c, std::string_view name) {
  return widened(tensor(b, c, name));
}
inline Tensor log1p(Tensor x) { return call(x.builder(), "aten.log1p", {x}); }

/// Elements of a loss reduced as asked and rounded to the result's dtype.
inline Tensor reduced(const Call& c, Tensor loss) {
  int64_t reduction = reduction_of(c);
  if (reduction == kMean) loss = call(loss.builder(), "aten.mean", {loss});
  if (reduction == kSum) loss = sum_all(loss);
  return to(loss, c.result()->type.dtype);
}
inline Types pair_types(const Call& c) {
  DType dtype = common_dtype(c, {"self", "target"});
  if (!is_float(dtype)) c.fail("needs a float dtype, not " + c.describe("self"));
  Sizes sizes = broadcast(c, c.type("self").sizes, c.type("target").sizes);
  return {ir::Type::tensor(dtype, reduction_of(c) == kNone ? sizes : Sizes{})};
}
/// Result of a loss over operands that broadcast together.
inline Types broadcast_types(const Call& c, std::initializer_list<std::string_view> params) {
  Promotion promotion;
  Sizes sizes;
  for (std::string_view name : params) {
    need_number(c, name);
    promotion.add(c.type(name));
    sizes = broadcast(c, sizes, c.type(name).sizes);
  }
  DType dtype = to_float(promotion.result(c));
  return {ir::Type::tensor(dtype, reduction_of(c) == kNone ? sizes : Sizes{})};
}

}  // namespace tandem::ops::loss
