// Scales and zero points of what is quantized when the program runs, from its least and greatest
// element. 0 must be one of the quantized values, so the range is widened to contain it:
//   lo = min(least, 0), hi = max(greatest, 0)
//   affine      s = max((hi - lo) / (quant_max - quant_min), eps)
//               z = clamp(quant_min - round(lo / s), quant_min, quant_max)
//   symmetric   s = max(max(-lo, hi) / ((quant_max - quant_min) / 2), eps),  z = 0, of u8 128
// The same of each row (token), with other rounding of z. Everything is other ops, each of which
// rounds to the input's dtype as in PyTorch. A NaN makes s NaN, and so what is made with it.
#include <fmt/format.h>

#include <limits>

#include "ops/families.h"
#include "ops/quant/ranges.h"

namespace tandem::ops {
namespace {

constexpr std::string_view kNoGradient =
    "parameters of a quantization are constants to its gradient";

Tensor input_of(Builder& b, const Call& c) { return {b, c.value("input")}; }
Tensor least(Tensor a, Tensor b) { return call(a.builder(), "aten.minimum", {a, b}); }
Tensor greatest(Tensor a, Tensor b) { return call(a.builder(), "aten.maximum", {a, b}); }
Tensor rounded(Tensor x) { return call(x.builder(), "aten.round", {x}); }

/// lo and hi, of the whole tensor without dimensions, or of its rows.
Tensors bounds(Builder& b, Tensor x, bool of_rows) {
  std::vector<int64_t> dims;
  if (of_rows) dims = {-1};
  Tensor low = call(b, "aten.amin", {x, dims, of_rows});
  Tensor high = call(b, "aten.amax", {x, dims, of_rows});
  return {least(low, zeros_like(low)), greatest(high, zeros_like(high))};
}

// --- of a tensor
// ---------------------------------------------------------------------------------

Types tensor_types(const Call& c) {
  const ir::Type& input = float_input(c);
  quantized_dtype(c);
  for (const Expr& size : input.sizes)
    if (size == Expr(0)) c.fail(c.describe("input") + " has no elements");
  int64_t low = c.constant("quant_min");
  int64_t high = c.constant("quant_max");
  if (low > 0 || high < 0 || low == high)
    c.fail(fmt::format("quant_min {} and quant_max {}: the range must contain 0, and more", low,
                       high));
  return {ir::Type::tensor(DType::f64, {Expr(1)}), ir::Type::tensor(DType::i64, {Expr(1)})};
}

/// s = max(scale, eps), of one dimension, and so f32 or wider.
Tensor at_least_eps(Builder& b, const Call& c, Tensor scale) {
  Tensor eps = full(b, {Expr(1)}, c.floating("eps"), DType::f32);
  return greatest(to(reshape(scale, {Expr(1)}), DType::f32), eps);
}

double range(const Call& c) {
  return static_cast<double>(c.constant("quant_max")) -
         static_cast<double>(c.constant("quant_min"));
}

Tensors affine(Builder& b, const Call& c) {
  Tensors ends = bounds(b, input_of(b, c), false);
  Tensor scale = at_least_eps(b, c, (ends[1] - ends[0]) / range(c));
  Tensor steps = to(rounded(to(ends[0], DType::f32) / scale), DType::i32);
  Tensor zero = call(b, "aten.rsub.Scalar", {steps, c.arg("quant_min")});
  zero = call(b, "aten.clamp", {zero, c.arg("quant_min"), c.arg("quant_max")});
  return {to(scale, DType::f64), to(zero, DType::i64)};
}

Tensors symmetric(Builder& b, const Call& c) {
  Tensors ends = bounds(b, input_of(b, c), false);
  Tensor scale = at_least_eps(b, c, greatest(-ends[0], ends[1]) / (range(c) / 2));
  double zero = quantized_dtype(c) == DType::u8 ? 128 : 0;
  return {to(scale, DType::f64), full(b, {Expr(1)}, zero, DType::i64)};
}

const Samples kTensorSamples = {"$[3, 70], -128, 127, 1e-5, i8",
                                "$[3, 70]:positive, 0, 255, 1e-5, u8",
                                "$[3, 70]:unit, 0, 127, 1e-3, u8",
                                "$[], -128, 127, 1e-5, i8",
                                "$[7]:constant(-4.5), -127, 127, 1e-5, i8",
                                "$[7]:constant(0), -128, 127, 0.01, i8",
                                "$[4, 3]{1, 4}, -8, 7, 0.000244140625, i8",
                                "$[150]:halves, 0, 100, 1e-5, u8",
                                "$[70], -30000, 30000, 1e-9, i16",
                                "$[0], -128, 127, 1e-5, i8",
                                "$[3], 1, 127, 1e-5, i8",
                                "$[3], 0, 0, 1e-5, i8",
                                "$[3], -128, 127, 1e-5, i64"};

const OpDef kChoose{
    .schema =
        "quantized_decomposed::choose_qparams.tensor(Tensor input, int quant_min, int "
        "quant_max, float eps, ScalarType dtype) -> (Tensor, Tensor)",
    .types = tensor_types,
    .decompose = affine,
    .no_grad = kNoGradient,
    .samples = kTensorSamples};
const OpDef kChooseSymmetric{
    .schema =
        "quantized_decomposed::choose_qparams_symmetric.tensor(Tensor input, int quant_min, "
        "int quant_max, float eps, ScalarType dtype) -> (Tensor, Tensor)",
    .types = tensor_types,
    .decompose = symmetric,
    .no_grad = kNoGradient,
    .samples = kTensorSamples};

// --- of tokens
// -----------------------------------------------------------------------------------

/// One for each row.
Sizes token_sizes(const Call& c) {
  need_float(c, "input");
  Sizes sizes = c.type("input").sizes;
  if (sizes.empty()) return sizes;
  if (sizes.back() == Expr(0)) c.fail(c.describe("input") + " has rows without elements");
  sizes.back() = Expr(1);
  return sizes;
}

// s = max(greatest |x|, 1e-5) / 127, z = 0, both of the input's dtype, but f32 of f16
const OpDef kChooseTokens{
    .schema =
        "quantized_decomposed::choose_qparams_per_token(Tensor input, ScalarType dtype) -> "
        "(Tensor, Tensor)",
    .types = [](const Call& c) -> Types {
      if (c.dtype("dtype", DType::i8) != DType::i8)
        c.fail(fmt::format("dtype {} is not i8", name_of(c.dtype("dtype", DType::i8))));
      DType dtype = c.type("input").dtype;
      ir::Type type = ir::Type::tensor(dtype == DType::f16 ? DType::f32 : dtype, token_sizes(c));
      return {type, type};
    },
    .decompose = [](Builder& b, const Call& c) -> Tensors {
      Tensor most = amax(abs(input_of(b, c)), {-1}, true);
      if (most.dtype() == DType::f16) most = to(most, DType::f32);
      Tensor scale = call(b, "aten.clamp_min", {most, 1e-5}) / 127.0;
      return {scale, zeros_like(scale)};
    },
    .no_grad = kNoGradient,
    .samples = {"$[3, 70], i8", "$[2, 3, 33], i8", "$[5], i8", "$[], i8", "$[0, 4], i8",
                "$[4, 3]{1, 4}, i8", "$[2, 4]:constant(0), i8", "$[2, 64]:special, i8",
                "$[3, 0], i8"}};

/// z is chosen at the end of the range where it is rounded by less:
///   z = qmin - lo / s  if (qmin + lo / s) + (qmax + hi / s) > 0,  else qmax - hi / s
Tensors affine_of_tokens(Builder& b, const Call& c) {
  constexpr double kLeast = -128;
  constexpr double kGreatest = 127;
  Tensors ends = bounds(b, input_of(b, c), true);
  Tensor scale = (ends[1] - ends[0]) / (kGreatest - kLeast);
  scale = call(b, "aten.clamp_min", {scale, double{std::numeric_limits<float>::epsilon()}});
  Tensor low = ends[0] / scale;
  Tensor high = ends[1] / scale;
  Tensor error = (low + kLeast) + (high + kGreatest);
  Tensor zero = where(compare("gt", error, 0), kLeast - low, kGreatest - high);
  return {to(scale, DType::f64), to(rounded(clamp(zero, kLeast, kGreatest)), DType::i64)};
}

Types affine_token_types(const Call& c) {
  c.dtype("dtype", DType::i8);
  Sizes sizes = token_sizes(c);
  return {ir::Type::tensor(DType::f64, sizes), ir::Type::tensor(DType::i64, sizes)};
}

const Samples kAffineTokenSamples = {"$[3, 70], i8",
                                     "$[2, 3, 33]:positive, i8",
                                     "$[5], i8",
                                     "$[], i8",
                                     "$[0, 4], i8",
                                     "$[4, 3]{1, 4}, i8",
                                     "$[2, 4]:constant(0), i8",
                                     "$[2, 4]:constant(-3), u8",
                                     "$[3, 0], i8"};
const OpDef kChooseAffineTokens{
    .schema =
        "quantized_decomposed::choose_qparams_per_token_asymmetric(Tensor input, ScalarType "
        "dtype) -> (Tensor, Tensor)",
    .types = affine_token_types,
    .decompose = affine_of_tokens,
    .no_grad = kNoGradient,
    .samples = kAffineTokenSamples};
const OpDef kChooseAffineTokensImpl{
    .schema =
        "quantized_decomposed::_choose_qparams_per_token_asymmetric_impl(Tensor input, "
        "ScalarType dtype) -> (Tensor, Tensor)",
    .types = affine_token_types,
    .decompose = affine_of_tokens,
    .no_grad = kNoGradient,
    .samples = kAffineTokenSamples};

const OpDef* const kOps[] = {&kChoose, &kChooseSymmetric, &kChooseTokens, &kChooseAffineTokens,
                             &kChooseAffineTokensImpl};

}  // namespace

Family choose_qparams_family() { return kOps; }

}  // namespace tandem::ops
