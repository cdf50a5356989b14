// Activations that shrink what is near 0, and mish, celu, logit; formulas as in activation.cc.
#include <limits>

#include "ops/families.h"
#include "ops/formula.h"

namespace tandem::ops {
namespace {

const Samples kSamples = {"$[3, 4]",       "$[]",           "$[0, 3]",
                          "$[4, 3]{1, 4}", "$[64]:special", "$[2, 3, 5]"};
const Samples kBackwardSamples = {"$[3, 4], $[3, 4]", "$[], $[]", "$[0], $[0]",
                                  "$[4, 3]{1, 4}, $[4, 3]"};

Tensor self_of(Builder& b, const Call& c) { return {b, c.value("self")}; }

// --- mish, celu
// -----------------------------------------------------------------------------------

/// tanh(log(1 + exp(x))) = n / (n + 2), n = exp(x) (exp(x) + 2); above 20 that is 1.
template <class T>
T mish_factor(T x) {
  T power = exp(pick(x > 20.0, 20.0, x));
  T n = power * (power + 2.0);
  return n / (n + 2.0);
}
// d(x t) = t + x s(x) (1 - t^2), s the sigmoid
constexpr auto kMishGrad = [](const Call&, auto g, auto x) {
  auto t = mish_factor(x);
  return g * (t + x * sigmoid(x) * (1.0 - t * t));
};
const OpDef kMish{.schema = "aten::mish(Tensor self) -> Tensor",
                  .types = float_same,
                  .lower = unary<[](Element x) { return x * mish_factor(x); }>,
                  .vjp = [](Builder& b, const Call& c, Grads g) -> Gradients {
                    return {{"self", call(b, "aten.mish_backward", {g[0], self_of(b, c)})}};
                  },
                  .samples = kSamples,
                  .pointwise = true,
                  .inplace = true,
                  .out = true};
const OpDef kMishBackward{
    .schema = "aten::mish_backward(Tensor grad_output, Tensor self) -> Tensor",
    .types = backward_types,
    .lower = formula<kMishGrad>,
    .decompose = unfolded<kMishGrad>,
    .samples = kBackwardSamples,
    .pointwise = true};

const OpDef kCelu{
    .schema = "aten::celu(Tensor self, Scalar alpha=1.0) -> Tensor",
    .types = [](const Call& c) -> Types {
      if (c.floating("alpha") == 0) c.fail("alpha must not be 0");
      return float_same(c);
    },
    .decompose = [](Builder& b, const Call& c) -> Tensors {
      return {call(b, "aten.elu", {self_of(b, c), c.arg("alpha"), 1.0, 1.0 / c.floating("alpha")})};
    },
    .samples = {"$[3, 4]", "$[5], 0.5", "$[0]", "$[64]:special", "$[3], 0"},
    .inplace = true,
    .out = true};

// --- hardshrink, softshrink
// -----------------------------------------------------------------------

// x outside [-lambd, lambd], else 0; a NaN stays
constexpr auto kHardshrinkValue = [](const Call& c, auto x) {
  double lambd = c.floating("lambd");
  return pick(both(x >= -lambd, x <= lambd), 0.0, x);
};
// dy where x is outside [-lambd, lambd]; 0 inside and where x is NaN, as in eager's vector loop
constexpr auto kShrinkGrad = [](const Call& c, auto g, auto x) {
  double lambd = c.floating("lambd");
  return pick(x > lambd, g, pick(x < -lambd, g, 0.0));
};
// x moved toward 0 by lambd; x * 0 inside, so that a NaN stays
constexpr auto kSoftshrinkValue = [](const Call& c, auto x) {
  double lambd = c.floating("lambd");
  return pick(x > lambd, x - lambd, pick(x < -lambd, x + lambd, x * 0.0));
};
Types softshrink_types(const Call& c) {
  if (!(c.floating("lambd") >= 0)) c.fail(c.describe("lambd") + " must not be negative");
  return float_same(c);
}
const OpDef kHardshrink{
    .schema = "aten::hardshrink(Tensor self, Scalar lambd=0.5) -> Tensor",
    .types = float_same,
    .lower = formula<kHardshrinkValue>,
    .vjp = [](Builder& b, const Call& c, Grads g) -> Gradients {
      return {{"self", call(b, "aten.hardshrink_backward", {g[0], self_of(b, c), c.arg("lambd")})}};
    },
    .samples = {"$[3, 4]", "$[]", "$[5], 0.25", "$[0, 3]", "$[4, 3]{1, 4}", "$[64]:special"},
    .pointwise = true,
    .out = true};
const OpDef kHardshrinkBackward{
    .schema = "aten::hardshrink_backward(Tensor grad_out, Tensor self, Scalar lambd) -> Tensor",
    .types = backward_types,
    .lower = formula<kShrinkGrad>,
    .decompose = unfolded<kShrinkGrad>,
    .samples = {"$[3, 4], $[3, 4], 0.5", "$[0], $[0], 1"},
    .pointwise = true};
const OpDef kSoftshrink{
    .schema = "aten::softshrink(Tensor self, Scalar lambd=0.5) -> Tensor",
    .types = softshrink_types,
    .lower = formula<kSoftshrinkValue>,
    .vjp = [](Builder& b, const Call& c, Grads g) -> Gradients {
      return {{"self", call(b, "aten.softshrink_backward", {g[0], self_of(b, c), c.arg("lambd")})}};
    },
    .samples = {"$[3, 4]", "$[]", "$[5], 0.25", "$[0, 3]", "$[4, 3]{1, 4}", "$[64]:special",
                "$[3], -1"},
    .pointwise = true,
    .out = true};
const OpDef kSoftshrinkBackward{
    .schema = "aten::softshrink_backward(Tensor grad_output, Tensor self, Scalar lambd) -> Tensor",
    .types = backward_types,
    .lower = formula<kShrinkGrad>,
    .decompose = unfolded<kShrinkGrad>,
    .samples = {"$[3, 4], $[3, 4], 0.5", "$[0], $[0], 1"},
    .pointwise = true};

// --- logit
// ----------------------------------------------------------------------------------------

bool has_eps(const Call& c) { return c.has("eps") && c.floating("eps") >= 0; }
/// log(x / (1 - x)) of x put into [eps, 1 - eps].
Element logit_value(const Call& c, Element x) {
  if (has_eps(c)) x = clamp(x, c.floating("eps"), 1 - c.floating("eps"));
  return log(x / (1.0 - x));
}
// dy / (x (1 - x)) inside [eps, 1 - eps]; outside and at NaN 0, or NaN where no eps is given (as in
// eager's vector loop)
constexpr auto kLogitGrad = [](const Call& c, auto g, auto x) {
  double eps = has_eps(c) ? c.floating("eps") : 0;
  double outside = has_eps(c) ? 0 : std::numeric_limits<double>::quiet_NaN();
  return pick(both(x >= eps, x <= 1 - eps), g / (x * (1.0 - x)), outside);
};
const OpDef kLogit{
    .schema = "aten::logit(Tensor self, float? eps=None) -> Tensor",
    .types = unary_float,
    .lower = formula<[](const Call& c, Element x) { return logit_value(c, x); }>,
    .vjp = [](Builder& b, const Call& c, Grads g) -> Gradients {
      return {{"self", call(b, "aten.logit_backward", {g[0], self_of(b, c), c.arg("eps")})}};
    },
    .samples = {"$[3, 4]:unit", "$[3, 4]:unit, 0.3", "$[], 0.1", "$[0]", "$[67]:special",
                "$[64]:special, 0.01", "$[4, 3]{1, 4}:unit", "$[5]:unit, -1"},
    .sample_dtypes = DTypes::all,
    .pointwise = true,
    .inplace = true,
    .out = true};
const OpDef kLogitBackward{
    .schema = "aten::logit_backward(Tensor grad_output, Tensor self, float? eps=None) -> Tensor",
    .types = backward_types,
    .lower = formula<kLogitGrad>,
    .decompose = unfolded<kLogitGrad>,
    .samples = {"$[3, 4], $[3, 4]:unit", "$[3, 4], $[3, 4]:unit, 0.3", "$[0], $[0]"},
    .pointwise = true};

const OpDef* const kOps[] = {
    &kMish,       &kMishBackward,       &kCelu,  &kHardshrink,   &kHardshrinkBackward,
    &kSoftshrink, &kSoftshrinkBackward, &kLogit, &kLogitBackward};

}  // namespace

Family shrink_family() { return kOps; }

}  // namespace tandem::ops
