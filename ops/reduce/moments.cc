// Variances, standard deviations, and both with their means. Two passes (mean, then squared
// distances): exact where one-pass sums cancel, and one kernel over rows all the same.
#include <algorithm>
#include <cmath>

#include "ops/families.h"
#include "ops/reduce/reductions.h"

namespace tandem::ops {
namespace {

Tensor self_of(Builder& b, const Call& c) { return {b, c.value("self")}; }
Tensor result_of(Builder& b, const Call& c, size_t i = 0) { return {b, c.result(i)}; }
Tensor widened(Tensor x) { return to(x, compute_type(to_float(x.dtype()))); }

/// Degrees of freedom that are subtracted: `correction`, or `unbiased` as 1 or 0.
double correction(const Call& c) {
  if (c.op().schema.find("unbiased") >= 0) return c.boolean("unbiased") ? 1 : 0;
  return c.has("correction") ? c.floating("correction") : 1;
}
/// max(n - correction, 0): a number where n is known.
Operand freedom(const Call& c) {
  Expr n = reduced_count(c);
  double less = correction(c);
  if (n.constant()) return std::max(static_cast<double>(*n.constant()) - less, 0.0);
  if (less != std::floor(less)) c.fail_unknown("with a fractional correction a size", n);
  return sym::max(n - static_cast<int64_t>(less), 0);
}

Tensor squared_size(Tensor x) {
  if (!is_complex(x.dtype())) return x * x;
  const Tensor re = call(x.builder(), "aten.real", {x});
  const Tensor im = call(x.builder(), "aten.imag", {x});
  return re * re + im * im;
}

struct Moments {
  Tensor mean;  // dimensions kept
  Tensor variance;
};
/// Mean and variance in the compute type.
Moments moments(Builder& b, const Call& c) {
  Tensor x = widened(self_of(b, c));
  std::vector<int64_t> dims = reduced_dims(c);
  Tensor center = mean(x, dims, true);
  Tensor distance = x - center;
  Tensor squares = sum(squared_size(distance), dims, keeps_dims(c));
  return {center, call(b, "aten.div.Scalar", {squares, freedom(c)})};
}
/// d var = 2 (x - mean) / freedom dx
Tensor variance_grad(Builder& b, const Call& c, Tensor grad) {
  Tensor x = widened(self_of(b, c));
  Tensor distance = x - mean(x, reduced_dims(c), true);
  Tensor scaled = call(b, "aten.div.Scalar", {widened(grad) * 2, freedom(c)});
  return to(against_self(scaled, c) * distance, c.type("self").dtype);
}
/// d sqrt(var) = dvar / (2 std), 0 where std is 0.
Tensor deviation_grad(Builder& b, const Call& c, Tensor grad) {
  Tensor deviation = widened(result_of(b, c));
  Tensor scaled = where(compare("eq", deviation, 0.0), 0.0, widened(grad) / (deviation * 2));
  return variance_grad(b, c, scaled);
}

Types float_reduced(const Call& c) {
  if (!is_complex(c.type("self").dtype)) need_float(c, "self");
  return reduced_types(c, part_type(c.type("self").dtype));
}
Types with_mean(const Call& c) {
  return {float_reduced(c)[0], reduced_types(c, c.type("self").dtype)[0]};
}

template <bool root, bool mean>
Tensors spread(Builder& b, const Call& c) {
  Moments m = moments(b, c);
  DType dtype = c.result()->type.dtype;
  Tensors results{to(root ? sqrt(m.variance) : m.variance, dtype)};
  if (mean)
    results.push_back(to(reshape(m.mean, c.result(1)->type.sizes), c.result(1)->type.dtype));
  return results;
}
template <bool root>
Gradients spread_vjp(Builder& b, const Call& c, Grads g) {
  Tensor grad;
  if (g[0]) grad = root ? deviation_grad(b, c, g[0]) : variance_grad(b, c, g[0]);
  if (g.size() > 1 && g[1]) {
    Tensor shared = call(b, "aten.div.Scalar", {g[1], reduced_count(c)});
    Tensor of_mean = against_self(shared, c);
    grad = grad ? grad + of_mean : of_mean;
  }
  return {{"self", grad}};
}

const Samples kCorrectionSamples = {"$[3, 4], [1]",
                                    "$[3, 4], [0], correction=0",
                                    "$[2, 3, 4], [0, 2], keepdim=true",
                                    "$[3, 4]",
                                    "$[5, 40], [1], correction=2",
                                    "$[3, 1], [1]",
                                    "$[700], none, correction=1"};
const Samples kUnbiasedSamples = {"$[3, 4], [1]", "$[3, 4], [0], false, true",
                                  "$[2, 3, 4], [0, 2]"};
const Samples kAllSamples = {"$[3, 4]", "$[3, 4], false", "$[20]"};
#define TANDEM_SPREAD(Name, text, root)                                                           \
  const OpDef Name{.schema = "aten::" text "(Tensor self, bool unbiased=True) -> Tensor",         \
                   .types = float_reduced,                                                        \
                   .decompose = spread<root, false>,                                              \
                   .vjp = spread_vjp<root>,                                                       \
                   .samples = kAllSamples};                                                       \
  const OpDef Name##Dim{                                                                          \
      .schema =                                                                                   \
          "aten::" text                                                                           \
          ".dim(Tensor self, int[1]? dim, bool unbiased=True, bool keepdim=False) -> Tensor",     \
      .types = float_reduced,                                                                     \
      .decompose = spread<root, false>,                                                           \
      .vjp = spread_vjp<root>,                                                                    \
      .samples = kUnbiasedSamples};                                                               \
  const OpDef Name##Correction{                                                                   \
      .schema = "aten::" text                                                                     \
                ".correction(Tensor self, int[1]? dim=None, *, Scalar? correction=None, bool "    \
                "keepdim=False) -> Tensor",                                                       \
      .types = float_reduced,                                                                     \
      .decompose = spread<root, false>,                                                           \
      .vjp = spread_vjp<root>,                                                                    \
      .samples = kCorrectionSamples};                                                             \
  const OpDef Name##MeanAll{                                                                      \
      .schema = "aten::" text "_mean(Tensor self, bool unbiased=True) -> (Tensor, Tensor)",       \
      .types = with_mean,                                                                         \
      .decompose = spread<root, true>,                                                            \
      .vjp = spread_vjp<root>,                                                                    \
      .samples = kAllSamples};                                                                    \
  const OpDef Name##MeanDim{                                                                      \
      .schema = "aten::" text                                                                     \
                "_mean.dim(Tensor self, int[1]? dim, bool unbiased=True, bool keepdim=False) -> " \
                "(Tensor, Tensor)",                                                               \
      .types = with_mean,                                                                         \
      .decompose = spread<root, true>,                                                            \
      .vjp = spread_vjp<root>,                                                                    \
      .samples = kUnbiasedSamples};                                                               \
  const OpDef Name##Mean {                                                                        \
    .schema = "aten::" text                                                                       \
              "_mean.correction(Tensor self, int[1]? dim=None, *, Scalar? correction=None, bool " \
              "keepdim=False) -> (Tensor, Tensor)",                                               \
    .types = with_mean, .decompose = spread<root, true>, .vjp = spread_vjp<root>,                 \
    .samples = kCorrectionSamples                                                                 \
  }
TANDEM_SPREAD(kVar, "var", false);
TANDEM_SPREAD(kStd, "std", true);
#undef TANDEM_SPREAD

const OpDef* const kOps[] = {&kVar,           &kVarDim,     &kVarCorrection, &kVarMean,
                             &kVarMeanAll,    &kVarMeanDim, &kStd,           &kStdDim,
                             &kStdCorrection, &kStdMean,    &kStdMeanAll,    &kStdMeanDim};

}  // namespace

Family moments_family() { return kOps; }

}  // namespace tandem::ops
