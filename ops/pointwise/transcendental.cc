// Trigonometric, hyperbolic, error, gamma and Bessel functions of one operand: a table of formula
// and slope. The formulas are in elementary.h; integers and bool become f32.
#include <fmt/format.h>

#include <cmath>
#include <numbers>

#include "base/diagnostic.h"
#include "ops/complex_functions.h"
#include "ops/elementary.h"
#include "ops/families.h"
#include "ops/formula.h"

namespace tandem::ops {
namespace {

const Samples kAnySamples = {"$[3, 4]",       "$[]",           "$[0, 3]",
                             "$[4, 3]{1, 4}", "$[67]:special", "$[2, 3, 5]"};
const Samples kUnitSamples = {"$[3, 4]:unit",  "$[]:unit",      "$[0, 3]",
                              "$[4, 3]{1, 4}", "$[67]:special", "$[33]:unit"};
const Samples kPositiveSamples = {"$[3, 4]:positive",       "$[]:positive",  "$[0, 3]",
                                  "$[4, 3]{1, 4}:positive", "$[67]:special", "$[33]:positive"};

constexpr double kPi = std::numbers::pi;

Tensor named(std::string_view op, Tensor x) { return call(x.builder(), op, {x}); }
Tensor square(Tensor x) { return x * x; }

/// y = F(x) with slope Slope(x, y).
template <auto F, auto Slope>
OpDef function(std::string_view schema, const Samples& samples, ComplexForm form = {}) {
  return {.schema = schema,
          .types = unary_float,
          .lower = unary<F>,
          .vjp = slope_vjp<Slope>,
          .samples = samples,
          .sample_dtypes = DTypes::all,
          .pointwise = true,
          .inplace = true,
          .out = true,
          .complex = form};
}
/// The same of torch.special, which has no in-place form.
template <auto F, auto Slope>
OpDef special(std::string_view schema, const Samples& samples) {
  OpDef def = function<F, Slope>(schema, samples);
  def.inplace = false;
  return def;
}

// y' = -1 / sqrt(1 - x^2)
constexpr auto kAcosSlope = [](Tensor x, Tensor) { return -rsqrt(1.0 - x * x); };
// y' = 1 / sqrt(x^2 - 1)
constexpr auto kAcoshSlope = [](Tensor x, Tensor) { return rsqrt(x * x - 1); };
// y' = 1 / sqrt(1 - x^2)
constexpr auto kAsinSlope = [](Tensor x, Tensor) { return rsqrt(1.0 - x * x); };
// y' = 1 / sqrt(x^2 + 1)
constexpr auto kAsinhSlope = [](Tensor x, Tensor) { return rsqrt(x * x + 1); };
// y' = 1 / (x^2 + 1)
constexpr auto kAtanSlope = [](Tensor x, Tensor) { return reciprocal(x * x + 1); };
// y' = 1 / (1 - x^2)
constexpr auto kAtanhSlope = [](Tensor x, Tensor) { return reciprocal(1.0 - x * x); };
constexpr auto kSinhSlope = [](Tensor x, Tensor) { return named("aten.cosh", x); };
constexpr auto kCoshSlope = [](Tensor x, Tensor) { return named("aten.sinh", x); };
// y' = 1 + y^2
constexpr auto kTanSlope = [](Tensor, Tensor y) { return y * y + 1; };
// y' = 1 / (x log 10)
constexpr auto kLog10Slope = [](Tensor x, Tensor) { return reciprocal(x * std::numbers::ln10); };
// y' = y log 2
constexpr auto kExp2Slope = [](Tensor, Tensor y) { return y * std::numbers::ln2; };
// y' = -2 / sqrt(pi) exp(-x^2)
constexpr auto kErfcSlope = [](Tensor x, Tensor) {
  return exp(-square(x)) * (-2 * std::numbers::inv_sqrtpi);
};
// y' = 2 x y - 2 / sqrt(pi)
constexpr auto kErfcxSlope = [](Tensor x, Tensor y) {
  return x * y * 2 - 2 * std::numbers::inv_sqrtpi;
};
// y' = sqrt(pi) / 2 exp(y^2)
constexpr auto kErfinvSlope = [](Tensor, Tensor y) {
  return exp(square(y)) * (0.5 / std::numbers::inv_sqrtpi);
};
constexpr auto kLgammaSlope = [](Tensor x, Tensor) { return named("aten.digamma", x); };
constexpr auto kDigammaSlope = [](Tensor x, Tensor) {
  return call(x.builder(), "aten.polygamma", {1, x});
};
// y' = (pi x cos(pi x) - sin(pi x)) / (pi x^2), 0 where that is 0/0
constexpr auto kSincSlope = [](Tensor x, Tensor) {
  Tensor angle = x * kPi;
  Tensor divisor = x * x * kPi;
  Tensor slope = (angle * cos(angle) - sin(angle)) / divisor;
  return where(compare("eq", divisor, 0.0), 0.0, slope);
};
// entr(x) = -x log x: y' = -1 - log x
constexpr auto kEntrSlope = [](Tensor x, Tensor) { return -(log(x) + 1); };
// y' = exp(-x^2 / 2 - y) / sqrt(2 pi)
constexpr auto kLogNdtrSlope = [](Tensor x, Tensor y) {
  return exp(-(y + square(x) / 2)) * (std::numbers::inv_sqrtpi / std::numbers::sqrt2);
};
// y' = exp(-x^2 / 2) / sqrt(2 pi)
constexpr auto kNdtrSlope = [](Tensor x, Tensor) {
  return exp(square(x) / -2) * (std::numbers::inv_sqrtpi / std::numbers::sqrt2);
};

// y' = sqrt(2 pi) exp(y^2 / 2)
constexpr auto kNdtriSlope = [](Tensor, Tensor y) {
  return exp(square(y) / 2) * (std::numbers::sqrt2 / std::numbers::inv_sqrtpi);
};

// I0' = I1, I1' = I0 - I1 / x (1/2 at 0); the scaled ones lose sign(x) y on the way.
constexpr auto kI0Slope = [](Tensor x, Tensor) { return named("aten.special_i1", x); };
constexpr auto kI0eSlope = [](Tensor x, Tensor y) {
  return named("aten.special_i1e", x) - sign(x) * y;
};
/// F(x) where x is not tiny, else 1/2.
template <class F>
Tensor away_from_zero(Tensor x, F f) {
  double tiny = x.dtype() == DType::f64 ? 0x1p-52 : 0x1p-23;
  Tensor far = compare("gt", abs(x), tiny);
  return where(far, f(where(far, x, tiny)), 0.5);
}
constexpr auto kI1Slope = [](Tensor x, Tensor y) {
  return away_from_zero(x, [&](Tensor at) { return named("aten.i0", at) - y / at; });
};
constexpr auto kI1eSlope = [](Tensor x, Tensor y) {
  return away_from_zero(x, [&](Tensor at) {
    return named("aten.special_i0e", at) - y * (sign(at) + reciprocal(at));
  });
};

constexpr auto kI0 = [](Element x) { return exp(abs(x)) * i0e(x); };
constexpr auto kI1 = [](Element x) { return exp(abs(x)) * i1e(x); };
constexpr auto kNdtr = [](Element x) { return erfc(x * -0.70710678118654752440) * 0.5; };
constexpr auto kEntr = [](Element x) {
  Element below = choose(x < 0, x.number(-HUGE_VAL), x);
  return choose(x > 0, -x * log(x), below);
};

const OpDef kTable[] = {
    function<acos, kAcosSlope>("aten::acos(Tensor self) -> Tensor", kUnitSamples,
                               {complex_function<complex::acos>}),
    function<acosh, kAcoshSlope>("aten::acosh(Tensor self) -> Tensor", kPositiveSamples,
                                 {complex_function<complex::acosh>}),
    function<asin, kAsinSlope>("aten::asin(Tensor self) -> Tensor", kUnitSamples,
                               {complex_function<complex::asin>}),
    function<asinh, kAsinhSlope>("aten::asinh(Tensor self) -> Tensor", kAnySamples,
                                 {complex_function<complex::asinh>}),
    function<atan, kAtanSlope>("aten::atan(Tensor self) -> Tensor", kAnySamples,
                               {complex_function<complex::atan>}),
    function<atanh, kAtanhSlope>("aten::atanh(Tensor self) -> Tensor", kUnitSamples,
                                 {complex_function<complex::atanh>}),
    function<sinh, kSinhSlope>("aten::sinh(Tensor self) -> Tensor", kAnySamples,
                               {complex_function<complex::sinh>}),
    function<cosh, kCoshSlope>("aten::cosh(Tensor self) -> Tensor", kAnySamples,
                               {complex_function<complex::cosh>}),
    function<tan, kTanSlope>("aten::tan(Tensor self) -> Tensor", kAnySamples,
                             {complex_function<complex::tan>}),
    function<log10, kLog10Slope>("aten::log10(Tensor self) -> Tensor", kPositiveSamples,
                                 {complex_function<complex::log10>}),
    function<exp2, kExp2Slope>("aten::exp2(Tensor self) -> Tensor", kAnySamples,
                               {complex_function<complex::exp2>}),
    function<erfc, kErfcSlope>("aten::erfc(Tensor self) -> Tensor", kAnySamples),
    function<erfinv, kErfinvSlope>("aten::erfinv(Tensor self) -> Tensor", kUnitSamples),
    function<lgamma, kLgammaSlope>("aten::lgamma(Tensor self) -> Tensor", kAnySamples),
    function<digamma, kDigammaSlope>("aten::digamma(Tensor self) -> Tensor", kAnySamples),
    function<sinc, kSincSlope>("aten::sinc(Tensor self) -> Tensor", kAnySamples),
    function<kI0, kI0Slope>("aten::i0(Tensor self) -> Tensor", kAnySamples),
    special<i0e, kI0eSlope>("aten::special_i0e(Tensor self) -> Tensor", kAnySamples),
    special<kI1, kI1Slope>("aten::special_i1(Tensor self) -> Tensor", kAnySamples),
    special<i1e, kI1eSlope>("aten::special_i1e(Tensor self) -> Tensor", kAnySamples),
    special<erfcx, kErfcxSlope>("aten::special_erfcx(Tensor self) -> Tensor", kAnySamples),
    special<kEntr, kEntrSlope>("aten::special_entr(Tensor self) -> Tensor", kPositiveSamples),
    special<kNdtr, kNdtrSlope>("aten::special_ndtr(Tensor self) -> Tensor", kAnySamples),
    special<ndtri, kNdtriSlope>("aten::special_ndtri(Tensor self) -> Tensor", kUnitSamples),
    special<log_ndtr, kLogNdtrSlope>("aten::special_log_ndtr(Tensor self) -> Tensor", kAnySamples),
};

constexpr int64_t kHighestOrder = 100;  // its gradient has the next one; 171! is no number

int64_t order_of(const Call& c) {
  int64_t n = c.constant("n");
  if (n < 0) c.fail(c.describe("n") + " must not be negative");
  if (n > kHighestOrder)
    throw Unsupported(
        fmt::format("[aten.polygamma] order {}: up to {} are supported", n, kHighestOrder));
  return n;
}
const OpDef kPolygamma{
    .schema = "aten::polygamma(int n, Tensor self) -> Tensor",
    .types = [](const Call& c) -> Types {
      order_of(c);
      return {ir::Type::tensor(to_float(c.type("self").dtype), c.type("self").sizes)};
    },
    .lower =
        [](Lowering& lowering, const Call& c) {
          int64_t n = order_of(c);
          DType compute = compute_type(c.result()->type.dtype);
          return map_definition(c, [&lowering, c, n, compute](size_t, const Index& index) {
            Element x = operand(lowering, c, "self", index, compute);
            return (n == 0 ? digamma(x) : polygamma(n, x)).value();
          });
        },
    .vjp = [](Builder& b, const Call& c, Grads g) -> Gradients {
      return {{"self", g[0] * call(b, "aten.polygamma", {order_of(c) + 1, c.arg("self")})}};
    },
    .samples = {"0, $[3, 4]:positive", "1, $[3, 4]:positive", "2, $[7]:positive", "1, $[0]",
                "2, $[33]", "3, $[33]", "5, $[9]:positive", "-1, $[3]"},
    .sample_dtypes = DTypes::all,
    .pointwise = true,
    .out = true};

// log of the multivariate gamma function: the sum of lgamma(x - i / 2), i < p, and p (p - 1) / 4
// log pi
const OpDef kMvlgamma{.schema = "aten::mvlgamma(Tensor self, int p) -> Tensor",
                      .types = [](const Call& c) -> Types {
                        if (c.constant("p") < 1) c.fail(c.describe("p") + " must be at least 1");
                        if (c.constant("p") > 1000)  // each term is an operator
                          throw Unsupported("[aten::mvlgamma] p of more than 1000");
                        return unary_float(c);
                      },
                      .decompose = [](Builder& b, const Call& c) -> Tensors {
                        int64_t p = c.constant("p");
                        Tensor x{b, c.value("self")};
                        Tensor total;
                        for (int64_t i = 0; i < p; ++i) {
                          Tensor part = named("aten.lgamma", x - static_cast<double>(i) / 2);
                          total = total ? total + part : part;
                        }
                        return {total + static_cast<double>(p * (p - 1)) / 4 * std::log(kPi)};
                      },
                      .samples = {"$[3, 4]:positive, 1", "$[5]:positive, 3", "$[0], 2", "$[3], 0"},
                      .inplace = true,
                      .out = true};

}  // namespace

Family transcendental_family() {
  static const std::vector<const OpDef*> kOps = listed(kTable, {&kPolygamma, &kMvlgamma});
  return kOps;
}

}  // namespace tandem::ops
