// Functions of two operands that are neither arithmetic nor comparison: angles, logarithms of sums,
// x log y, extremes that pass over NaN, parts of a float.
#include <cmath>
#include <limits>
#include <numbers>

#include "ops/elementary.h"
#include "ops/families.h"
#include "ops/formula.h"

namespace tandem::ops {
namespace {

using Two = std::array<Tensor, 2>;

const Samples kPairs = {"$[3, 4], $[3, 4]",     "$[3, 4], $[4]",
                        "$[2, 1, 5], $[3, 1]",  "$[], $[3]",
                        "$[0, 4], $[4]",        "$[4, 3]{1, 4}, $[4, 3]",
                        "$[33], $[33]:special", "$[67]:special, $[67]:special",
                        "$[3], f64[]"};
const Samples kNumberRight = {
    "$[3, 4], 2",       "$[5], 0.5",        "$[0], 3", "$[4, 3]{1, 4}, 0.5",
    "$[19]:special, 2", "$[19]:special, 0", "$[3], -1"};
const Samples kNumberLeft = {"2, $[3, 4]:positive", "0.5, $[5]:positive", "3, $[0]",
                             "0, $[19]:special",    "0.5, $[4, 3]{1, 4}", "2, $[19]:special"};

Tensor square(Tensor x) { return x * x; }

template <auto F, auto Grads>
OpDef pair(std::string_view schema, const Samples& samples, ir::TypeRule types, bool inplace,
           std::string_view out_as = "") {
  return {.schema = schema,
          .types = types,
          .lower = binary_map<F>,
          .vjp = pair_vjp<Grads>,
          .samples = samples,
          .sample_dtypes = DTypes::all,
          .pointwise = true,
          .inplace = inplace,
          .out = true,
          .out_as = out_as};
}

Types only_floats(const Call& c) {
  Types types = binary(c);
  if (!is_float(types[0].dtype)) c.fail("needs floats, not " + to_string(types[0]));
  return types;
}

// --- angles and lengths
// ---------------------------------------------------------------------------

// d atan2(a, b) = (b da - a db) / (a^2 + b^2), 0 at the origin
constexpr auto kAtan2Grads = [](Tensor g, Tensor a, Tensor b, Tensor) -> Two {
  Tensor length = square(a) + square(b);
  Tensor scale = where(compare("eq", length, 0.0), 0.0, g / length);
  return {scale * b, -(scale * a)};
};
/// sqrt(a^2 + b^2) without overflow on the way; infinity beats NaN.
constexpr auto kHypot = [](Element a, Element b) {
  Element x = abs(a);
  Element y = abs(b);
  Element high = max(x, y);
  Element low = min(x, y);
  Element ratio = choose(equal(high, high.number(0)), high, low / high);
  Element length = high * sqrt(ratio * ratio + 1);
  Element infinity = high.number(HUGE_VAL);
  return choose(either(equal(x, infinity), equal(y, infinity)), infinity, length);
};
// d hypot(a, b) = (a da + b db) / y
constexpr auto kHypotGrads = [](Tensor g, Tensor a, Tensor b, Tensor y) -> Two {
  return {g * (a / y), g * (b / y)};
};

// --- logarithms
// -----------------------------------------------------------------------------------

/// log(exp(a) + exp(b)) with the larger one taken out; equal infinities stay.
constexpr auto kLogAddExp = [](Element a, Element b) {
  Element sum = max(a, b) + log1p(exp(-abs(a - b)));
  return choose(both(equal(a, b), equal(abs(a), a.number(HUGE_VAL))), a, sum);
};
constexpr auto kLogAddExp2 = [](Element a, Element b) {
  Element sum = max(a, b) + log1p(exp2(-abs(a - b))) * std::numbers::log2e;
  return choose(both(equal(a, b), equal(abs(a), a.number(HUGE_VAL))), a, sum);
};
// d log(e^a + e^b) = da / (1 + e^(b-a)) + db / (1 + e^(a-b))
constexpr auto kLogAddExpGrads = [](Tensor g, Tensor a, Tensor b, Tensor) -> Two {
  return {g / (exp(b - a) + 1), g / (exp(a - b) + 1)};
};
constexpr auto kLogAddExp2Grads = [](Tensor g, Tensor a, Tensor b, Tensor) -> Two {
  auto power = [](Tensor x) { return call(x.builder(), "aten.exp2", {x}); };
  return {g / (power(b - a) + 1), g / (power(a - b) + 1)};
};

/// x log y, 0 where x is 0, NaN where y is.
constexpr auto kXlogy = [](Element x, Element y) {
  Element value = choose(equal(x, x.number(0)), x.number(0), x * log(y));
  return choose(not_equal(y, y), y, value);
};
constexpr auto kXlog1py = [](Element x, Element y) {
  Element value = choose(equal(x, x.number(0)), x.number(0), x * log1p(y));
  return choose(not_equal(y, y), y, value);
};
/// g log y, but 0 where x is 0 and y, moved by `shift`, is not positive.
Tensor log_grad(std::string_view op, Tensor g, Tensor x, Tensor y, double shift) {
  Tensor undefined = both(compare("eq", x, 0.0), compare("le", y, -shift));
  return where(undefined, 0.0, call(g.builder(), op, {g, y}));
}
// d(x log y) = log y dx + x / y dy
constexpr auto kXlogyGrads = [](Tensor g, Tensor x, Tensor y, Tensor) -> Two {
  return {log_grad("aten.xlogy.Tensor", g, x, y, 0), g * x / y};
};
// d(x log(1 + y)) = log(1 + y) dx + x / (1 + y) dy
constexpr auto kXlog1pyGrads = [](Tensor g, Tensor x, Tensor y, Tensor) -> Two {
  return {log_grad("aten.special_xlog1py", g, x, y, 1), g * x / (y + 1)};
};

// --- extremes
// -------------------------------------------------------------------------------------

Element is_nan(Element x) { return not_equal(x, x); }
constexpr auto kFmax = [](Element a, Element b) {
  if (!is_float(a.dtype())) return max(a, b);
  return choose(is_nan(a), b, choose(is_nan(b), a, max(a, b)));
};
constexpr auto kFmin = [](Element a, Element b) {
  if (!is_float(a.dtype())) return min(a, b);
  return choose(is_nan(a), b, choose(is_nan(b), a, min(a, b)));
};
// The gradient goes to the operand that was taken, to self when they are equal.
template <bool largest>
constexpr auto kExtremeGrads = [](Tensor g, Tensor a, Tensor b, Tensor) -> Two {
  Tensor nan = call(b.builder(), "aten.isnan", {b});
  Tensor taken = either(compare(largest ? "ge" : "le", a, b), nan);
  return {where(taken, g, 0.0), where(taken, 0.0, g)};
};

// --- parts of floats
// ------------------------------------------------------------------------------

Element copysign_of(Element a, Element b) { return copysign(a, b); }
// y / a is the sign that a was given; 0 where a is 0. The sign's own operand has none.
constexpr auto kCopysignGrads = [](Tensor g, Tensor a, Tensor, Tensor y) -> Two {
  return {where(compare("eq", a, 0.0), 0.0, g * (y / a)), Tensor{}};
};

const OpDef kNextafter{
    .schema = "aten::nextafter(Tensor self, Tensor other) -> Tensor",
    .types = only_floats,
    .lower =
        [](Lowering& lowering, const Call& c) {
          DType dtype = c.result()->type.dtype;
          return map_definition(c, [&lowering, c, dtype](size_t, const Index& index) {
            Element x = operand(lowering, c, "self", index, compute_type(dtype));
            Element y = operand(lowering, c, "other", index, compute_type(dtype));
            return nextafter(x, y, dtype).value();
          });
        },
    // da where a moves; b only says where to
    .vjp = pair_vjp<[](Tensor g, Tensor a, Tensor b, Tensor) -> Two {
      return {where(compare("ne", a, b), g, 0.0), Tensor{}};
    }>,
    .samples = kPairs,
    .sample_dtypes = DTypes::all,
    .pointwise = true,
    .inplace = true,
    .out = true};
const OpDef kHeaviside{
    .schema = "aten::heaviside(Tensor self, Tensor values) -> Tensor",
    .types = [](const Call& c) -> Types {
      need_same_dtype(c, {"self", "values"});
      return {ir::Type::tensor(c.type("self").dtype, broadcast_of(c, {"self", "values"}))};
    },
    .lower =
        [](Lowering& lowering, const Call& c) {
          DType compute = compute_type(c.result()->type.dtype);
          return map_definition(c, [&lowering, c, compute](size_t, const Index& index) {
            Element x = operand(lowering, c, "self", index, compute);
            Element at_zero = operand(lowering, c, "values", index, compute);
            Element zero = x.number(0);
            return choose(equal(x, zero), at_zero, (x > zero).cast(compute)).value();
          });
        },
    .no_grad = "piecewise constant: eager does not differentiate it",
    .samples = {"$[3, 4], $[3, 4]", "$[33]:special, $[1]", "$[0], $[0]", "$[3, 1], $[2]",
                "f32[3], f64[3]"},
    .sample_dtypes = DTypes::numbers,
    .pointwise = true,
    .inplace = true,
    .out = true};

// a 2^b
const OpDef kLdexp{
    .schema = "aten::ldexp.Tensor(Tensor self, Tensor other) -> Tensor",
    .types = binary_float,
    .decompose = [](Builder& b, const Call& c) -> Tensors {
      DType dtype = c.result()->type.dtype;
      Tensor power = call(b, "aten.exp2", {to(Tensor{b, c.value("other")}, dtype)});
      return {to(Tensor{b, c.value("self")}, dtype) * power};
    },
    .samples = {"$[3, 4], $[3, 4]", "$[3, 4], i32[4]", "$[33]:special, i64[33]", "$[0], i32[1]"},
    .sample_dtypes = DTypes::all,
    .inplace = true,
    .out = true,
    .inplace_as = "default"};

// --- float_power, isclose
// -------------------------------------------------------------------------

Types float_power_types(const Call& c) {
  const bool is_whole = is_complex(common_dtype(c, {"self", "exponent"}));
  return {
      ir::Type::tensor(is_whole ? DType::c128 : DType::f64, broadcast_of(c, {"self", "exponent"}))};
}
Tensors float_power(Builder& b, const Call& c) {
  const DType wide = c.result()->type.dtype;
  if (!is_tensor(c, "exponent"))
    return {call(b, "aten.pow.Tensor_Scalar",
                 {to(Tensor{b, c.value("self")}, wide), c.floating("exponent")})};
  Tensor base = to(tensor_of(b, c, "self", wide), wide);
  Tensor exponent = to(Tensor{b, c.value("exponent")}, wide);
  return {call(b, "aten.pow.Tensor_Tensor", {base, exponent})};
}
OpDef float_power_op(std::string_view schema, std::string_view out_as, const Samples& samples) {
  return {.schema = schema,
          .types = float_power_types,
          .decompose = float_power,
          .samples = samples,
          .sample_dtypes = DTypes::numbers,
          .out = true,
          .out_as = out_as};
}

/// |a - b| <= atol + |rtol b|, or a == b; NaN beside NaN where asked.
Tensors close(Builder& b, const Call& c) {
  Tensor x{b, c.value("self")};
  Tensor y{b, c.value("other")};
  Tensor same = eq(x, y);
  const bool is_whole = !is_float(x.dtype()) && !is_complex(x.dtype());
  if (c.boolean("equal_nan") && !is_whole) {
    Tensor nans = both(call(b, "aten.isnan", {x}), call(b, "aten.isnan", {y}));
    same = either(same, nans);
  }
  if (c.floating("rtol") == 0 && c.floating("atol") == 0) return {same};
  if (is_whole) x = to(x, DType::f32), y = to(y, DType::f32);
  Tensor allowed = abs(y * c.floating("rtol")) + c.floating("atol");
  Tensor error = abs(x - y);
  Tensor near = both(compare("le", error, allowed),
                     compare("lt", error, std::numeric_limits<double>::infinity()));
  return {either(same, near)};
}
const OpDef kIsclose{
    .schema =
        "aten::isclose(Tensor self, Tensor other, float rtol=1e-05, float atol=1e-08, bool "
        "equal_nan=False) -> Tensor",
    .types = [](const Call& c) -> Types {
      need_same_dtype(c, {"self", "other"});
      if (!(c.floating("rtol") >= 0)) c.fail(c.describe("rtol") + " must not be negative");
      if (!(c.floating("atol") >= 0)) c.fail(c.describe("atol") + " must not be negative");
      return binary_bool(c);
    },
    .decompose = close,
    .no_grad = "the result is not differentiable (bool)",
    .samples = {"$[3, 4], $[3, 4]", "$[3, 4], $[4], 0.5, 0.5", "$[67]:special, $[1]:special",
                "$[67]:special, $[67]:special, 0, 0, true",
                "$[67]:special, $[67]:special, 0.1, 0, true", "$[0], $[1]", "$[3], $[3], -1",
                "f32[3], f64[3]"},
    .sample_dtypes = DTypes::all};

const OpDef kTable[] = {
    pair<atan2, kAtan2Grads>("aten::atan2(Tensor self, Tensor other) -> Tensor", kPairs,
                             binary_float, true),
    pair<kHypot, kHypotGrads>("aten::hypot(Tensor self, Tensor other) -> Tensor", kPairs,
                              only_floats, true),
    pair<kLogAddExp, kLogAddExpGrads>("aten::logaddexp(Tensor self, Tensor other) -> Tensor",
                                      kPairs, only_floats, false),
    pair<kLogAddExp2, kLogAddExp2Grads>("aten::logaddexp2(Tensor self, Tensor other) -> Tensor",
                                        kPairs, only_floats, false),
    pair<kXlogy, kXlogyGrads>("aten::xlogy.Tensor(Tensor self, Tensor other) -> Tensor", kPairs,
                              binary_float, true, "OutTensor"),
    pair<kXlogy, kXlogyGrads>("aten::xlogy.Scalar_Other(Tensor self, Scalar other) -> Tensor",
                              kNumberRight, binary_float, true, "OutScalar_Other"),
    pair<kXlogy, kXlogyGrads>("aten::xlogy.Scalar_Self(Scalar self, Tensor other) -> Tensor",
                              kNumberLeft, binary_float, false, "OutScalar_Self"),
    pair<kXlog1py, kXlog1pyGrads>("aten::special_xlog1py(Tensor self, Tensor other) -> Tensor",
                                  kPairs, binary_float, false),
    pair<kXlog1py, kXlog1pyGrads>(
        "aten::special_xlog1py.other_scalar(Tensor self, Scalar other) -> Tensor", kNumberRight,
        binary_float, false, "other_scalar_out"),
    pair<kXlog1py, kXlog1pyGrads>(
        "aten::special_xlog1py.self_scalar(Scalar self, Tensor other) -> Tensor", kNumberLeft,
        binary_float, false, "self_scalar_out"),
    pair<kFmax, kExtremeGrads<true>>("aten::fmax(Tensor self, Tensor other) -> Tensor", kPairs,
                                     binary, false),
    pair<kFmin, kExtremeGrads<false>>("aten::fmin(Tensor self, Tensor other) -> Tensor", kPairs,
                                      binary, false),
    pair<copysign_of, kCopysignGrads>("aten::copysign.Tensor(Tensor self, Tensor other) -> Tensor",
                                      kPairs, binary_float, true),
    pair<copysign_of, kCopysignGrads>("aten::copysign.Scalar(Tensor self, Scalar other) -> Tensor",
                                      kNumberRight, binary_float, true, "Scalar_out"),
    float_power_op("aten::float_power.Tensor_Tensor(Tensor self, Tensor exponent) -> Tensor",
                   "Tensor_Tensor_out",
                   {"$[3, 4]:positive, $[3, 4]", "$[4]:positive, i64[1]", "$[0], $[0]"}),
    float_power_op("aten::float_power.Tensor_Scalar(Tensor self, Scalar exponent) -> Tensor",
                   "Tensor_Scalar_out", {"$[3, 4]:positive, 2.5", "$[4], 2", "$[0], 3"}),
    float_power_op("aten::float_power.Scalar(Scalar self, Tensor exponent) -> Tensor", "Scalar_out",
                   {"2, $[3, 4]", "0.5, $[4]", "1, $[0]"}),
};

}  // namespace

Family pairs_family() {
  static const std::vector<const OpDef*> kOps =
      listed(kTable, {&kNextafter, &kHeaviside, &kLdexp, &kIsclose});
  return kOps;
}

}  // namespace tandem::ops
