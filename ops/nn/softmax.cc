// Softmax and its kin, by decomposition into maximum, exp and sum: over one row they fuse to a
// single kernel. 16-bit operands are widened first and the result is rounded once.
#include <algorithm>
#include <cmath>

#include "ops/elements.h"
#include "ops/families.h"

namespace tandem::ops {
namespace {

/// The dimension that is normalised; none of a 0-d tensor.
std::vector<int64_t> normalised(const Call& c, int64_t rank) {
  int64_t dim = c.dim("dim", rank);
  return rank == 0 ? std::vector<int64_t>{} : std::vector<int64_t>{dim};
}

Tensor widened(Tensor x) { return to(x, compute_type(x.dtype())); }

/// A tensor without elements has no maximum.
bool has_maximum(Tensor x, const std::vector<int64_t>& dims) {
  return std::ranges::none_of(dims, [&](int64_t dim) { return x.size(dim) == sym::Expr(0); });
}

/// x - max(x): the largest is 0, so exp never overflows.
Tensor shifted(Tensor x, const std::vector<int64_t>& dims) {
  return has_maximum(x, dims) ? x - amax(x, dims, true) : x;
}

Types softmax_types(const Call& c) {
  const ir::Type& self = c.type("self");
  need_float(c, "self");
  if (c.boolean("half_to_float")) c.fail("half_to_float is for other devices than the CPU");
  c.dim("dim", self.rank());
  return {ir::Type::tensor(self.dtype, self.sizes)};
}

// exp(x - m) * (1 / sum(exp(x - m))): the sum is at least 1, and a row needs one division instead
// of one for each element, at the price of half an ulp.
Tensors softmax_parts(Builder& b, const Call& c) {
  Tensor x{b, c.value("self")};
  std::vector<int64_t> dims = normalised(c, x.rank());
  Tensor e = exp(shifted(widened(x), dims));
  return {to(e * reciprocal(sum(e, dims, true)), c.result()->type.dtype)};
}
// x - m - log(sum(exp(x - m)))
Tensors log_softmax_parts(Builder& b, const Call& c) {
  Tensor x{b, c.value("self")};
  std::vector<int64_t> dims = normalised(c, x.rank());
  Tensor s = shifted(widened(x), dims);
  return {to(s - log(sum(exp(s), dims, true)), c.result()->type.dtype)};
}

/// Calls the backward op with the forward's result.
Gradients through(std::string_view op, Builder& b, const Call& c, Grads g) {
  Tensor result{b, c.result()};
  return {{"self", call(b, op, {g[0], result, c.arg("dim"), c.type("self").dtype})}};
}

const Samples kSamples = {"$[3, 4], 1, false",
                          "$[3, 4], 0, false",
                          "$[2, 3, 5], -1, false",
                          "$[2, 3, 5], 1, false",
                          "$[], 0, false",
                          "$[0, 3], 1, false",
                          "$[3, 0], 1, false",
                          "$[4, 3]{1, 4}, 1, false",
                          "$[7, 67], 1, false",
                          "$[2, 1000], 1, false",
                          "$[6, 5]:special, 1, false"};

const OpDef kSoftmax{.schema = "aten::_softmax(Tensor self, int dim, bool half_to_float) -> Tensor",
                     .types = softmax_types,
                     .decompose = softmax_parts,
                     .vjp = [](Builder& b, const Call& c,
                               Grads g) { return through("aten._softmax_backward_data", b, c, g); },
                     .samples = kSamples,
                     .batch = batch_along_dims};
const OpDef kLogSoftmax{
    .schema = "aten::_log_softmax(Tensor self, int dim, bool half_to_float) -> Tensor",
    .types = softmax_types,
    .decompose = log_softmax_parts,
    .vjp = [](Builder& b, const Call& c,
              Grads g) { return through("aten._log_softmax_backward_data", b, c, g); },
    .samples = kSamples,
    .batch = batch_along_dims};

Types backward_types(const Call& c) {
  if (!same_sizes(c.type("grad_output").sizes, c.type("output").sizes))
    c.fail(c.describe("grad_output") + " and " + c.describe("output") + " differ in sizes");
  c.dim("dim", c.type("output").rank());
  return {ir::Type::tensor(c.dtype("input_dtype", DType::f32), c.type("output").sizes)};
}
const Samples kBackwardSamples = {"f32[3, 4], f32[3, 4]:positive, 1, f32",
                                  "f64[3, 4], f64[3, 4]:positive, 0, f64", "f32[], f32[], 0, f32",
                                  "f32[0, 3], f32[0, 3], 1, f32"};
// y = softmax(x): dx = y (dy - sum(dy y))
const OpDef kSoftmaxBackward{.schema =
                                 "aten::_softmax_backward_data(Tensor grad_output, Tensor output, "
                                 "int dim, ScalarType input_dtype) "
                                 "-> Tensor",
                             .types = backward_types,
                             .decompose = [](Builder& b, const Call& c) -> Tensors {
                               Tensor y = widened({b, c.value("output")});
                               Tensor g = widened({b, c.value("grad_output")});
                               Tensor dot = sum(g * y, normalised(c, y.rank()), true);
                               return {to((g - dot) * y, c.result()->type.dtype)};
                             },
                             .samples = kBackwardSamples,
                             .batch = batch_along_dims};
// y = log_softmax(x): dx = dy - exp(y) sum(dy)
const OpDef kLogSoftmaxBackward{
    .schema =
        "aten::_log_softmax_backward_data(Tensor grad_output, Tensor output, int dim, ScalarType "
        "input_dtype) -> Tensor",
    .types = backward_types,
    .decompose = [](Builder& b, const Call& c) -> Tensors {
      Tensor y = widened({b, c.value("output")});
      Tensor g = widened({b, c.value("grad_output")});
      Tensor total = sum(g, normalised(c, y.rank()), true);
      return {to(g - exp(y) * total, c.result()->type.dtype)};
    },
    .samples = kBackwardSamples,
    .batch = batch_along_dims};

Types composite_types(const Call& c) {
  DType dtype = c.dtype("dtype", c.type("self").dtype);
  if (!is_float(dtype)) c.fail("needs a float dtype, not " + c.describe("self"));
  c.dim("dim", c.type("self").rank());
  return {ir::Type::tensor(dtype, c.type("self").sizes)};
}
template <bool log>
Tensors composite(Builder& b, const Call& c) {
  Tensor x = to(Tensor{b, c.value("self")}, c.result()->type.dtype);
  return {call(b, log ? "aten._log_softmax" : "aten._softmax", {x, c.arg("dim"), false})};
}
const Samples kCompositeSamples = {"$[3, 4], 1", "$[2, 3, 5], 1", "$[3, 4], -1, f64", "$[], 0"};
const OpDef kSoftmaxInt{
    .schema = "aten::softmax.int(Tensor self, int dim, ScalarType? dtype=None) -> Tensor",
    .types = composite_types,
    .decompose = composite<false>,
    .samples = kCompositeSamples};
const OpDef kLogSoftmaxInt{
    .schema = "aten::log_softmax.int(Tensor self, int dim, ScalarType? dtype=None) -> Tensor",
    .types = composite_types,
    .decompose = composite<true>,
    .samples = kCompositeSamples};

// exp(x - m) * (1 / sum(exp(x - m))), where rows of nothing but -inf have m = 0 and, for 1 / 0, 0:
// they give zeros, at the price of two selections a row and none an element. By its backward, the
// one of softmax, zeros have a gradient of zero.
Tensors safe_softmax_parts(Builder& b, const Call& c) {
  Tensor x = widened(to(Tensor{b, c.value("self")}, c.result()->type.dtype));
  const std::vector<int64_t> dims = normalised(c, x.rank());
  if (!has_maximum(x, dims)) return {to(x, c.result()->type.dtype)};
  Tensor most = amax(x, dims, true);
  Tensor blind = compare("eq", most, -HUGE_VAL);
  Tensor e = exp(x - where(blind, 0.0, most));
  Tensor scale = where(blind, 0.0, reciprocal(sum(e, dims, true)));
  return {to(e * scale, c.result()->type.dtype)};
}
const OpDef kSafeSoftmax{
    .schema = "aten::_safe_softmax(Tensor self, int dim, ScalarType? dtype=None) -> Tensor",
    .types = composite_types,
    .decompose = safe_softmax_parts,
    .vjp = [](Builder& b, const Call& c,
              Grads g) { return through("aten._softmax_backward_data", b, c, g); },
    .samples = {"$[3, 4], 1", "$[2, 3, 5], 1", "$[3, 4], -1, f64", "$[], 0", "$[0, 3], 1",
                "$[9, 1]:special, 1", "$[1, 40]:special, 0", "i64[3, 4], 0, f32", "i64[3], 0"},
    .batch = batch_along_dims};

const OpDef* const kOps[] = {&kSoftmax,    &kLogSoftmax,    &kSoftmaxBackward, &kLogSoftmaxBackward,
                             &kSoftmaxInt, &kLogSoftmaxInt, &kSafeSoftmax};

}  // namespace

Family softmax_family() { return kOps; }

}  // namespace tandem::ops
