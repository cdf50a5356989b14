// Activations. Each formula is written once over `auto` (formula.h). Gradients call ATen's
// *_backward ops, which are formulas of the same kind.
#include <fmt/format.h>

#include <cmath>

#include "ops/complex_functions.h"
#include "ops/families.h"
#include "ops/formula.h"

namespace tandem::ops {
namespace {

Tensor self_of(Builder& b, const Call& c) { return {b, c.value("self")}; }
Tensor result_of(Builder& b, const Call& c) { return {b, c.result()}; }

const Samples kSamples = {"$[3, 4]",       "$[]",           "$[0, 3]",
                          "$[4, 3]{1, 4}", "$[64]:special", "$[2, 3, 5]"};
const Samples kBackwardSamples = {"$[3, 4], $[3, 4]", "$[], $[]", "$[0], $[0]",
                                  "$[4, 3]{1, 4}, $[4, 3]"};

// --- sigmoid, tanh, silu, relu
// --------------------------------------------------------------------

const OpDef kSigmoid{.schema = "aten::sigmoid(Tensor self) -> Tensor",
                     .types = unary_float,
                     .lower = unary<[](Element x) { return sigmoid(x); }>,
                     .vjp = [](Builder& b, const Call& c, Grads g) -> Gradients {
                       return {{"self", call(b, "aten.sigmoid_backward", {g[0], result_of(b, c)})}};
                     },
                     .samples = kSamples,
                     .sample_dtypes = DTypes::numbers,
                     .pointwise = true,
                     .inplace = true,
                     .out = true,
                     .complex = {complex_function<complex::sigmoid>}};
// y = sigmoid(x): dx = dy y (1 - y)
constexpr auto kSigmoidGrad = [](const Call&, auto g, auto y) { return g * ((1.0 - y) * y); };
const OpDef kSigmoidBackward{
    .schema = "aten::sigmoid_backward(Tensor grad_output, Tensor output) -> Tensor",
    .types = backward_types,
    .lower = formula<kSigmoidGrad>,
    .decompose = unfolded<kSigmoidGrad>,
    .samples = kBackwardSamples,
    .pointwise = true};

const OpDef kTanh{.schema = "aten::tanh(Tensor self) -> Tensor",
                  .types = unary_float,
                  .lower = unary<[](Element x) { return tanh(x); }>,
                  .vjp = [](Builder& b, const Call& c, Grads g) -> Gradients {
                    return {{"self", call(b, "aten.tanh_backward", {g[0], result_of(b, c)})}};
                  },
                  .samples = kSamples,
                  .sample_dtypes = DTypes::numbers,
                  .pointwise = true,
                  .inplace = true,
                  .out = true,
                  .complex = {complex_function<complex::tanh>}};
// y = tanh(x): dx = dy (1 - y^2)
constexpr auto kTanhGrad = [](const Call&, auto g, auto y) { return g * (1.0 - y * y); };
const OpDef kTanhBackward{
    .schema = "aten::tanh_backward(Tensor grad_output, Tensor output) -> Tensor",
    .types = backward_types,
    .lower = formula<kTanhGrad>,
    .decompose = unfolded<kTanhGrad>,
    .samples = kBackwardSamples,
    .pointwise = true};

const OpDef kSilu{.schema = "aten::silu(Tensor self) -> Tensor",
                  .types =
                      [](const Call& c) {
                        return is_complex(c.type("self").dtype) ? unary_same(c) : float_same(c);
                      },
                  .lower = unary<[](Element x) { return x / (1.0 + exp(-x)); }>,
                  .vjp = [](Builder& b, const Call& c, Grads g) -> Gradients {
                    return {{"self", call(b, "aten.silu_backward", {g[0], self_of(b, c)})}};
                  },
                  .samples = kSamples,
                  .pointwise = true,
                  .inplace = true,
                  .out = true,
                  .complex = {.composition = [](Builder& b, const Call& c) -> Tensors {
                    const Tensor z = self_of(b, c);
                    return {z * sigmoid(z)};
                  }}};
// d(x s(x)) = s (1 + x (1 - s)) dx
constexpr auto kSiluGrad = [](const Call&, auto g, auto x) {
  auto s = sigmoid(x);
  return g * (s * (1.0 + x * (1.0 - s)));
};
const OpDef kSiluBackward{
    .schema = "aten::silu_backward(Tensor grad_output, Tensor self) -> Tensor",
    .types = backward_types,
    .lower = formula<kSiluGrad>,
    .decompose = unfolded<kSiluGrad>,
    .samples = kBackwardSamples,
    .pointwise = true};

const OpDef kRelu{
    .schema = "aten::relu(Tensor self) -> Tensor",
    .types =
        [](const Call& c) {
          if (c.type("self").dtype == DType::boolean) c.fail("bool has no relu");
          return unary_same(c);
        },
    .lower = unary<[](Element x) { return max(x, x.number(0)); }>,
    .vjp = [](Builder& b, const Call& c, Grads g) -> Gradients {
      return {{"self", call(b, "aten.threshold_backward", {g[0], result_of(b, c), 0})}};
    },
    .samples = kSamples,
    .sample_dtypes = DTypes::numbers,
    .pointwise = true,
    .inplace = true,
    .out = true};

// --- gelu
// -----------------------------------------------------------------------------------------

constexpr double kSqrtHalf = 0.70710678118654752440;
constexpr double kRootTwoOverPi = 0.79788456080286535588;
constexpr double kInverseRootTwoPi = 0.39894228040143267794;
constexpr double kCubic = 0.044715;

bool is_tanh(const Call& c) {
  std::string approximate = c.string("approximate");
  if (approximate != "none" && approximate != "tanh")
    c.fail("approximate must be \"none\" or \"tanh\", not \"" + approximate + "\"");
  return approximate == "tanh";
}

// tanh form: x (1 + tanh u)/2 = x / (1 + exp(-2u)), u = sqrt(2/pi) (x + 0.044715 x^3); one exp
// instead of a tanh.
constexpr auto kGeluValue = [](const Call& c, auto x) {
  if (!is_tanh(c)) return x * 0.5 * (1.0 + erf(x * kSqrtHalf));
  auto minus_two_u = x * ((x * x) * (-2 * kRootTwoOverPi * kCubic) - 2 * kRootTwoOverPi);
  return x / (1.0 + exp(minus_two_u));
};
// erf form: Phi(x) + x phi(x). tanh form with s = sigmoid(2u): s + x s (1 - s) 2u'.
constexpr auto kGeluGrad = [](const Call& c, auto g, auto x) {
  auto square = x * x;
  if (!is_tanh(c)) {
    auto cdf = 0.5 * (1.0 + erf(x * kSqrtHalf));
    return g * (cdf + x * (exp(square * -0.5) * kInverseRootTwoPi));
  }
  auto s = 1.0 / (1.0 + exp(x * (square * (-2 * kRootTwoOverPi * kCubic) - 2 * kRootTwoOverPi)));
  auto slope = 2 * kRootTwoOverPi + square * (6 * kRootTwoOverPi * kCubic);
  return g * (s + x * s * (1.0 - s) * slope);
};
const OpDef kGelu{
    .schema = "aten::gelu(Tensor self, *, str approximate=\"none\") -> Tensor",
    .types =
        [](const Call& c) {
          is_tanh(c);
          return float_same(c);
        },
    .lower = formula<kGeluValue>,
    .vjp = [](Builder& b, const Call& c, Grads g) -> Gradients {
      return {{"self", call(b, "aten.gelu_backward", {g[0], self_of(b, c), c.arg("approximate")})}};
    },
    .samples = {"$[3, 4]", "$[3, 4], approximate=\"tanh\"", "$[]", "$[0, 3]", "$[4, 3]{1, 4}",
                "$[67], approximate=\"tanh\"", "$[129]"},
    .pointwise = true,
    .inplace = true};
const OpDef kGeluBackward{
    .schema =
        "aten::gelu_backward(Tensor grad_output, Tensor self, *, str approximate=\"none\") -> "
        "Tensor",
    .types = backward_types,
    .lower = formula<kGeluGrad>,
    .decompose = unfolded<kGeluGrad>,
    .samples = {"$[3, 4], $[3, 4]", "$[3, 4], $[3, 4], approximate=\"tanh\"", "$[0], $[0]"},
    .pointwise = true};

// --- elu, softplus, leaky_relu
// --------------------------------------------------------------------

// x > 0: scale x; else alpha scale (exp(input_scale x) - 1)
constexpr auto kEluValue = [](const Call& c, auto x) {
  double scale = c.floating("scale");
  double negative = c.floating("alpha") * scale;
  return pick(x < 0.0, expm1(x * c.floating("input_scale")) * negative, x * scale);
};
// From x: input_scale alpha scale exp(input_scale x); from the result y: input_scale (y + alpha
// scale).
constexpr auto kEluGrad = [](const Call& c, auto g, auto x) {
  double scale = c.floating("scale");
  double negative = c.floating("alpha") * scale;
  double inner = c.floating("input_scale");
  if (c.boolean("is_result")) return pick(x > 0.0, g * scale, g * inner * (x + negative));
  return pick(x > 0.0, g * scale, g * (inner * negative) * exp(x * inner));
};
const OpDef kElu{
    .schema =
        "aten::elu(Tensor self, Scalar alpha=1, Scalar scale=1, Scalar input_scale=1) -> Tensor",
    .types = float_same,
    .lower = formula<kEluValue>,
    .vjp = [](Builder& b, const Call& c, Grads g) -> Gradients {
      return {{"self", call(b, "aten.elu_backward",
                            {g[0], c.arg("alpha"), c.arg("scale"), c.arg("input_scale"), false,
                             self_of(b, c)})}};
    },
    .samples = {"$[3, 4]", "$[5], 0.5", "$[5], 1.5, 2, 0.5", "$[0]", "$[64]:special"},
    .pointwise = true,
    .inplace = true,
    .out = true};
/// From a result, the operand's side of 0 is known only where the slope is not negative.
Types result_backward_types(const Call& c, std::string_view slope, std::string_view flag) {
  if (c.boolean(flag) && c.floating(slope) < 0)
    c.fail(fmt::format("{} must not be negative with {}", c.describe(slope), flag));
  return backward_types(c);
}
const OpDef kEluBackward{
    .schema =
        "aten::elu_backward(Tensor grad_output, Scalar alpha, Scalar scale, Scalar input_scale, "
        "bool "
        "is_result, Tensor self_or_result) -> Tensor",
    .types = [](const Call& c) { return result_backward_types(c, "alpha", "is_result"); },
    .lower = formula<kEluGrad>,
    .decompose = unfolded<kEluGrad>,
    .samples = {"$[3, 4], 1, 1, 1, false, $[3, 4]", "$[5], 0.5, 2, 0.5, true, $[5]"},
    .pointwise = true};

constexpr double kSeluAlpha = 1.6732632423543772848170429916717;
constexpr double kSeluScale = 1.0507009873554804934193349852946;
const OpDef kSelu{.schema = "aten::selu(Tensor self) -> Tensor",
                  .types = float_same,
                  .decompose = [](Builder& b, const Call& c) -> Tensors {
                    return {call(b, "aten.elu", {self_of(b, c), kSeluAlpha, kSeluScale})};
                  },
                  .samples = kSamples,
                  .inplace = true};

// log(1 + exp(beta x)) / beta; the identity where beta x > threshold
constexpr auto kSoftplusValue = [](const Call& c, auto x) {
  double beta = c.floating("beta");
  return pick(x * beta > c.floating("threshold"), x, log1p(exp(x * beta)) / beta);
};
constexpr auto kSoftplusGrad = [](const Call& c, auto g, auto x) {
  double beta = c.floating("beta");
  return pick(x * beta > c.floating("threshold"), g, g * sigmoid(x * beta));
};
const OpDef kSoftplus{
    .schema = "aten::softplus(Tensor self, Scalar beta=1, Scalar threshold=20) -> Tensor",
    .types = float_same,
    .lower = formula<kSoftplusValue>,
    .vjp = [](Builder& b, const Call& c, Grads g) -> Gradients {
      return {{"self", call(b, "aten.softplus_backward",
                            {g[0], self_of(b, c), c.arg("beta"), c.arg("threshold")})}};
    },
    .samples = {"$[3, 4]", "$[5], 2", "$[5], 0.5, 0.25", "$[0]", "$[64]:special"},
    .pointwise = true,
    .out = true};
const OpDef kSoftplusBackward{.schema =
                                  "aten::softplus_backward(Tensor grad_output, Tensor self, Scalar "
                                  "beta, Scalar threshold) -> Tensor",
                              .types = backward_types,
                              .lower = formula<kSoftplusGrad>,
                              .decompose = unfolded<kSoftplusGrad>,
                              .samples = {"$[3, 4], $[3, 4], 1, 20", "$[5], $[5], 2, 0.5"},
                              .pointwise = true};

constexpr auto kLeakyValue = [](const Call& c, auto x) {
  return pick(x > 0.0, x, x * c.floating("negative_slope"));
};
constexpr auto kLeakyGrad = [](const Call& c, auto g, auto x) {
  return pick(x > 0.0, g, g * c.floating("negative_slope"));
};
const OpDef kLeakyRelu{
    .schema = "aten::leaky_relu(Tensor self, Scalar negative_slope=0.01) -> Tensor",
    .types = float_same,
    .lower = formula<kLeakyValue>,
    .vjp = [](Builder& b, const Call& c, Grads g) -> Gradients {
      return {{"self", call(b, "aten.leaky_relu_backward",
                            {g[0], self_of(b, c), c.arg("negative_slope"), false})}};
    },
    .samples = {"$[3, 4]", "$[5], 0.2", "$[0]", "$[64]:special"},
    .pointwise = true,
    .inplace = true,
    .out = true};
const OpDef kLeakyReluBackward{
    .schema =
        "aten::leaky_relu_backward(Tensor grad_output, Tensor self, Scalar negative_slope, bool "
        "self_is_result) -> Tensor",
    .types =
        [](const Call& c) { return result_backward_types(c, "negative_slope", "self_is_result"); },
    .lower = formula<kLeakyGrad>,
    .decompose = unfolded<kLeakyGrad>,
    .samples = {"$[3, 4], $[3, 4], 0.1, false", "$[5], $[5], 0.2, true"},
    .pointwise = true};

// --- log_sigmoid
// ----------------------------------------------------------------------------------

// d log s(x) = s(-x) dx; the buffer, exp(-|x|) on the CPU, is not worth keeping
constexpr auto kLogSigmoidGrad = [](const Call&, auto g, auto x) { return g * sigmoid(-x); };
/// min(x, 0) - log(1 + exp(-|x|))
Element log_sigmoid(Element x) { return min(x, x.number(0)) - log1p(exp(-abs(x))); }
const OpDef kLogSigmoid{.schema = "aten::log_sigmoid(Tensor self) -> Tensor",
                        .types = float_same,
                        .decompose = [](Builder& b, const Call& c) -> Tensors {
                          return {call(b, "aten.log_sigmoid_forward", {self_of(b, c)})};
                        },
                        .samples = kSamples,
                        .out = true};
const OpDef kLogSigmoidForward{
    .schema = "aten::log_sigmoid_forward(Tensor self) -> (Tensor output, Tensor buffer)",
    .types = [](const Call& c) -> Types { return {float_same(c)[0], float_same(c)[0]}; },
    .lower =
        [](Lowering& lowering, const Call& c) {
          DType compute = compute_type(c.result()->type.dtype);
          return map_definition(c, [&lowering, c, compute](size_t result, const Index& index) {
            Element x = operand(lowering, c, "self", index, compute);
            return (result == 0 ? log_sigmoid(x) : exp(-abs(x))).value();
          });
        },
    .vjp = [](Builder& b, const Call& c, Grads g) -> Gradients {
      if (!g[0]) return {};
      return {{"self", call(b, "aten.log_sigmoid_backward",
                            {g[0], self_of(b, c), Tensor{b, c.result(1)}})}};
    },
    .samples = {"$[3, 4]", "$[0]", "$[64]:special"},
    .pointwise = true};
const OpDef kLogSigmoidBackward{
    .schema =
        "aten::log_sigmoid_backward(Tensor grad_output, Tensor self, Tensor buffer) -> Tensor",
    .types = backward_types,
    .lower = formula<kLogSigmoidGrad>,
    // d (g sigmoid(-x)) = dg sigmoid(-x) - g sigmoid(x) sigmoid(-x) dx
    .vjp = [](Builder& b, const Call& c, Grads g) -> Gradients {
      Tensor x = self_of(b, c);
      Tensor grad{b, c.value("grad_output")};
      Tensor of_x = call(b, "aten.sigmoid_backward", {g[0] * grad, call(b, "aten.sigmoid", {x})});
      return {{"grad_output", call(b, "aten.log_sigmoid_backward", {g[0], x, c.arg("buffer")})},
              {"self", -of_x}};
    },
    .samples = {"f32[0], f32[0], f32[0]"},
    .pointwise = true};

// --- piecewise linear
// -----------------------------------------------------------------------------

const OpDef kHardswish{
    .schema = "aten::hardswish(Tensor self) -> Tensor",
    .types = float_same,
    .lower = unary<[](Element x) { return x * clamp(x + 3, 0, 6) / 6; }>,
    .vjp = [](Builder& b, const Call& c, Grads g) -> Gradients {
      return {{"self", call(b, "aten.hardswish_backward", {g[0], self_of(b, c)})}};
    },
    .samples = kSamples,
    .pointwise = true,
    .inplace = true,
    .out = true};
constexpr auto kHardswishGrad = [](const Call&, auto g, auto x) {
  return pick(x <= -3.0, 0.0, pick(x >= 3.0, g, g * (x / 3.0 + 0.5)));
};
const OpDef kHardswishBackward{
    .schema = "aten::hardswish_backward(Tensor grad_output, Tensor self) -> Tensor",
    .types = backward_types,
    .lower = formula<kHardswishGrad>,
    .decompose = unfolded<kHardswishGrad>,
    .samples = kBackwardSamples,
    .pointwise = true,
    .out = true};

const OpDef kHardsigmoid{
    .schema = "aten::hardsigmoid(Tensor self) -> Tensor",
    .types = float_same,
    .lower = unary<[](Element x) { return clamp(x + 3, 0, 6) / 6; }>,
    .vjp = [](Builder& b, const Call& c, Grads g) -> Gradients {
      return {{"self", call(b, "aten.hardsigmoid_backward", {g[0], self_of(b, c)})}};
    },
    .samples = kSamples,
    .pointwise = true,
    .inplace = true,
    .out = true};
constexpr auto kHardsigmoidGrad = [](const Call&, auto g, auto x) {
  constexpr double kSixth = 1.0F / 6.0F;  // eager's constant, in f64 too
  return pick(both(x > -3.0, x < 3.0), g * kSixth, 0.0);
};
const OpDef kHardsigmoidBackward{
    .schema = "aten::hardsigmoid_backward(Tensor grad_output, Tensor self) -> Tensor",
    .types = backward_types,
    .lower = formula<kHardsigmoidGrad>,
    .decompose = unfolded<kHardsigmoidGrad>,
    .samples = kBackwardSamples,
    .pointwise = true};

Types hardtanh_types(const Call& c) {
  bool negative = c.floating("min_val") < 0 || c.floating("max_val") < 0;
  if (c.type("self").dtype == DType::u8 && negative)
    c.fail(c.describe("self") + " has no negative limits, but " + c.describe("min_val") + ", " +
           c.describe("max_val"));
  return unary_number(c);
}
const OpDef kHardtanh{
    .schema = "aten::hardtanh(Tensor self, Scalar min_val=-1, Scalar max_val=1) -> Tensor",
    .types = hardtanh_types,
    .lower = formula<[](const Call& c, Element x) {
      return clamp(x, c.floating("min_val"), c.floating("max_val"));
    }>,
    .vjp = [](Builder& b, const Call& c, Grads g) -> Gradients {
      return {{"self", call(b, "aten.hardtanh_backward",
                            {g[0], self_of(b, c), c.arg("min_val"), c.arg("max_val")})}};
    },
    .samples = {"$[3, 4]", "$[5], -2, 0.5", "$[0]", "$[64]:special"},
    .pointwise = true,
    .inplace = true,
    .out = true};
constexpr auto kHardtanhGrad = [](const Call& c, auto g, auto x) {
  return pick(both(x > c.floating("min_val"), x < c.floating("max_val")), g, 0.0);
};
const OpDef kHardtanhBackward{.schema =
                                  "aten::hardtanh_backward(Tensor grad_output, Tensor self, Scalar "
                                  "min_val, Scalar max_val) -> Tensor",
                              .types = backward_types,
                              .lower = formula<kHardtanhGrad>,
                              .decompose = unfolded<kHardtanhGrad>,
                              .samples = {"$[3, 4], $[3, 4], -1, 1"},
                              .pointwise = true};
const OpDef kRelu6{.schema = "aten::relu6(Tensor self) -> Tensor",
                   .types = unary_number,
                   .decompose = [](Builder& b, const Call& c) -> Tensors {
                     return {call(b, "aten.hardtanh", {self_of(b, c), 0, 6})};
                   },
                   .samples = kSamples,
                   .inplace = true};

const OpDef kThreshold{
    .schema = "aten::threshold(Tensor self, Scalar threshold, Scalar value) -> Tensor",
    .types = unary_number,
    .lower = formula<[](const Call& c, Element x) {
      return pick(x <= c.floating("threshold"), c.floating("value"), x);
    }>,
    .vjp = [](Builder& b, const Call& c, Grads g) -> Gradients {
      return {
          {"self", call(b, "aten.threshold_backward", {g[0], self_of(b, c), c.arg("threshold")})}};
    },
    .samples = {"$[3, 4], 0, 0", "$[5], 0.5, -1", "$[0], 0, 0", "$[64]:special, 0, 2"},
    .pointwise = true,
    .inplace = true,
    .out = true};
constexpr auto kThresholdGrad = [](const Call& c, auto g, auto x) {
  return pick(x <= c.floating("threshold"), 0.0, g);
};
const OpDef kThresholdBackward{
    .schema =
        "aten::threshold_backward(Tensor grad_output, Tensor self, Scalar threshold) -> Tensor",
    .types = [](const Call& c) -> Types {
      if (c.type("grad_output").dtype == DType::boolean) need_number(c, "self");
      return {ir::Type::tensor(c.type("grad_output").dtype,
                               broadcast(c, c.type("grad_output").sizes, c.type("self").sizes))};
    },
    .lower = formula<kThresholdGrad>,
    .decompose = unfolded<kThresholdGrad>,
    .samples = {"$[3, 4], $[3, 4], 0", "$[5], $[5], 0.5"},
    .pointwise = true};

const OpDef* const kOps[] = {&kSigmoid,
                             &kSigmoidBackward,
                             &kTanh,
                             &kTanhBackward,
                             &kSilu,
                             &kSiluBackward,
                             &kRelu,
                             &kGelu,
                             &kGeluBackward,
                             &kElu,
                             &kEluBackward,
                             &kSelu,
                             &kSoftplus,
                             &kSoftplusBackward,
                             &kLeakyRelu,
                             &kLeakyReluBackward,
                             &kLogSigmoid,
                             &kLogSigmoidForward,
                             &kLogSigmoidBackward,
                             &kHardswish,
                             &kHardswishBackward,
                             &kHardsigmoid,
                             &kHardsigmoidBackward,
                             &kHardtanh,
                             &kHardtanhBackward,
                             &kRelu6,
                             &kThreshold,
                             &kThresholdBackward};

}  // namespace

Family activation_family() { return kOps; }

}  // namespace tandem::ops
