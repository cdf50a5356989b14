// Arithmetic, comparison and elementary functions. Each op is one value: types, formula, gradient.
#include <cmath>

#include "ops/complex_functions.h"
#include "ops/elements.h"
#include "ops/families.h"

namespace tandem::ops {
namespace {

template <Opcode op>
constexpr auto kUnary = [](Element x) { return x.apply(op); };
template <Opcode op>
constexpr auto kBinary = [](Element a, Element b) { return a.apply(op, b); };

Tensor self_of(Builder& b, const Call& c) { return {b, c.value("self")}; }
Tensor other_of(Builder& b, const Call& c) { return {b, c.value("other")}; }
Tensor result_of(Builder& b, const Call& c) { return {b, c.result()}; }

const Samples kPairs = {"$[3, 4], $[3, 4]",    "$[3, 4], $[4]", "$[2, 1, 5], $[3, 1]",
                        "$[], $[3]",           "$[0, 4], $[4]", "$[4, 3]{1, 4}, $[4, 3]",
                        "$[33], $[33]:special"};
const Samples kNonzeroPairs = {"$[3, 4], $[3, 4]:positive", "$[2, 1, 5], $[3, 1]:positive",
                               "$[0, 4], $[4]:positive", "$[4, 3]{1, 4}, $[4, 3]:positive"};
const Samples kUnarySamples = {"$[3, 4]",       "$[]",           "$[0, 3]",
                               "$[4, 3]{1, 4}", "$[67]:special", "$[2, 3, 5]"};
const Samples kPositiveSamples = {"$[3, 4]:positive", "$[]:positive", "$[0]",
                                  "$[4, 3]{1, 4}:positive", "$[67]:special"};
const Samples kScalarSamples = {"$[3, 4], 2", "$[5], -1.5", "$[0], 3", "$[4, 3]{1, 4}, 0.5",
                                "$[19]:special, 2"};

// --- arithmetic
// -----------------------------------------------------------------------------------

/// alpha * other, where alpha is not 1.
Element scaled(Lowering& lowering, const Call& call, const Index& index, DType dtype) {
  Element other = operand(lowering, call, "other", index, dtype);
  Element alpha{lowering.scalars(), lowering.scalar(call.arg("alpha"), dtype)};
  return other * alpha;
}

template <auto F>
Definition with_alpha(Lowering& lowering, const Call& call) {
  DType compute = compute_type(call.result()->type.dtype);
  return map_definition(call, [&lowering, call, compute](size_t, const Index& index) {
    return called<F>(operand(lowering, call, "self", index, compute),
                     scaled(lowering, call, index, compute))
        .value();
  });
}

Tensor times_alpha(Tensor grad, const Call& call) {
  const ir::Arg& alpha = call.arg("alpha");
  if (alpha == ir::Arg(sym::Expr(1))) return grad;
  return ops::call(grad.builder(), "aten.mul.Scalar", {grad, alpha});
}

bool has_other_tensor(const Call& call) {
  ir::Value* const* other = std::get_if<ir::Value*>(&call.arg("other"));
  return other != nullptr && (*other)->type.is_tensor();
}

// d(a + alpha b) = da + alpha db
Gradients add_vjp(Builder&, const Call& c, Grads g) {
  Gradients grads{{"self", sum_to(g[0], c.type("self"))}};
  if (has_other_tensor(c))
    grads.push_back({"other", sum_to(times_alpha(g[0], c), c.type("other"))});
  return grads;
}
// d(a - alpha b) = da - alpha db
Gradients sub_vjp(Builder&, const Call& c, Grads g) {
  Gradients grads{{"self", sum_to(g[0], c.type("self"))}};
  if (has_other_tensor(c))
    grads.push_back({"other", sum_to(-times_alpha(g[0], c), c.type("other"))});
  return grads;
}
// d(alpha b ... - a) for rsub: other - alpha self
Gradients rsub_vjp(Builder&, const Call& c, Grads g) {
  return {{"self", sum_to(-times_alpha(g[0], c), c.type("self"))}};
}
// d(a b) = b da + a db
Gradients mul_vjp(Builder& b, const Call& c, Grads g) {
  if (!has_other_tensor(c))
    return {{"self",
             to(ops::call(b, "aten.mul.Scalar", {g[0], c.arg("other")}), c.type("self").dtype)}};
  return {{"self", sum_to(g[0] * other_of(b, c), c.type("self"))},
          {"other", sum_to(g[0] * self_of(b, c), c.type("other"))}};
}
// d(a / b) = da / b - (a / b) / b db
Gradients div_vjp(Builder& b, const Call& c, Grads g) {
  if (!has_other_tensor(c))
    return {{"self",
             to(ops::call(b, "aten.div.Scalar", {g[0], c.arg("other")}), c.type("self").dtype)}};
  Tensor other = other_of(b, c);
  return {{"self", sum_to(g[0] / other, c.type("self"))},
          {"other", sum_to(-(g[0] * ((self_of(b, c) / other) / other)), c.type("other"))}};
}

Types add_types(const Call& c) {
  Types types = binary(c);
  need_alpha(c, types[0].dtype);
  return types;
}
/// Bools are not subtracted, not even from numbers.
Types sub_types(const Call& c) {
  need_number(c, "self");
  const ir::Arg& other = c.arg("other");
  ir::Value* const* value = std::get_if<ir::Value*>(&other);
  if (std::holds_alternative<bool>(other) ||
      (value != nullptr && (*value)->type.dtype == DType::boolean))
    c.fail("is not defined for bool: " + c.describe("other"));
  return add_types(c);
}
constexpr auto kSub = [](Element a, Element b) { return a - b; };
/// True + True is True.
constexpr auto kAdd = [](Element a, Element b) {
  return a.dtype() == DType::boolean ? either(a, b) : a + b;
};
/// Of bools: both.
constexpr auto kProduct = [](Element a, Element b) {
  return a.apply(a.dtype() == DType::boolean ? Opcode::bit_and : Opcode::mul, b);
};

Definition rsub_lower(Lowering& lowering, const Call& call) {
  DType compute = compute_type(call.result()->type.dtype);
  return map_definition(call, [&lowering, call, compute](size_t, const Index& index) {
    Element self = operand(lowering, call, "self", index, compute);
    Element alpha{lowering.scalars(), lowering.scalar(call.arg("alpha"), compute)};
    return (operand(lowering, call, "other", index, compute) - self * alpha).value();
  });
}

const OpDef kAddTensor{
    .schema = "aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor",
    .types = add_types,
    .lower = with_alpha<kAdd>,
    .vjp = add_vjp,
    .samples = kPairs,
    .sample_dtypes = DTypes::all,
    .pointwise = true,
    .inplace = true,
    .out = true,
    .complex = {complex_each}};
const OpDef kAddScalar{
    .schema = "aten::add.Scalar(Tensor self, Scalar other, Scalar alpha=1) -> Tensor",
    .types = add_types,
    .lower = with_alpha<kAdd>,
    .vjp = add_vjp,
    .samples = kScalarSamples,
    .sample_dtypes = DTypes::all,
    .pointwise = true,
    .inplace = true,
    .out = true,
    .out_as = "Scalar_out",
    .complex = {.rule = complex_each, .terms = "other"}};
const OpDef kSubTensor{
    .schema = "aten::sub.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor",
    .types = sub_types,
    .lower = with_alpha<kSub>,
    .vjp = sub_vjp,
    .samples = kPairs,
    .sample_dtypes = DTypes::numbers,
    .pointwise = true,
    .inplace = true,
    .out = true,
    .complex = {complex_each}};
const OpDef kSubScalar{
    .schema = "aten::sub.Scalar(Tensor self, Scalar other, Scalar alpha=1) -> Tensor",
    .types = sub_types,
    .lower = with_alpha<kSub>,
    .vjp = sub_vjp,
    .samples = kScalarSamples,
    .sample_dtypes = DTypes::numbers,
    .pointwise = true,
    .inplace = true,
    .out = true,
    .out_as = "Scalar_out",
    .complex = {.rule = complex_each, .terms = "other"}};
const OpDef kRsubScalar{
    .schema = "aten::rsub.Scalar(Tensor self, Scalar other, Scalar alpha=1) -> Tensor",
    .types = sub_types,
    .lower = rsub_lower,
    .vjp = rsub_vjp,
    .samples = kScalarSamples,
    .sample_dtypes = DTypes::numbers,
    .pointwise = true,
    .out = true,
    .out_as = "Scalar_out",
    .complex = {.rule = complex_each, .terms = "other"}};
const OpDef kRsubTensor{
    .schema = "aten::rsub.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor",
    .types = sub_types,
    .lower = rsub_lower,
    // d(b - alpha a) = db - alpha da
    .vjp = [](Builder&, const Call& c, Grads g) -> Gradients {
      return {{"self", sum_to(-times_alpha(g[0], c), c.type("self"))},
              {"other", sum_to(g[0], c.type("other"))}};
    },
    .samples = kPairs,
    .sample_dtypes = DTypes::numbers,
    .pointwise = true,
    .out = true,
    .out_as = "Tensor_out",
    .complex = {complex_each}};
const OpDef kMulTensor{.schema = "aten::mul.Tensor(Tensor self, Tensor other) -> Tensor",
                       .types = binary,
                       .lower = binary_map<kProduct>,
                       .vjp = mul_vjp,
                       .samples = kPairs,
                       .sample_dtypes = DTypes::all,
                       .pointwise = true,
                       .inplace = true,
                       .out = true,
                       .complex = {complex_product}};
const OpDef kMulScalar{.schema = "aten::mul.Scalar(Tensor self, Scalar other) -> Tensor",
                       .types = binary,
                       .lower = binary_map<kProduct>,
                       .vjp = mul_vjp,
                       .samples = kScalarSamples,
                       .sample_dtypes = DTypes::numbers,
                       .pointwise = true,
                       .inplace = true,
                       .out = true,
                       .out_as = "Scalar_out",
                       .complex = {complex_product}};
const OpDef kDivTensor{.schema = "aten::div.Tensor(Tensor self, Tensor other) -> Tensor",
                       .types = binary_float,
                       .lower = binary_map<kBinary<Opcode::div>>,
                       .vjp = div_vjp,
                       .samples = kNonzeroPairs,
                       .sample_dtypes = DTypes::numbers,
                       .pointwise = true,
                       .inplace = true,
                       .out = true,
                       .complex = {complex_quotient}};
const OpDef kDivScalar{.schema = "aten::div.Scalar(Tensor self, Scalar other) -> Tensor",
                       .types = binary_float,
                       .lower = binary_map<kBinary<Opcode::div>>,
                       .vjp = div_vjp,
                       .samples = kScalarSamples,
                       .sample_dtypes = DTypes::numbers,
                       .pointwise = true,
                       .inplace = true,
                       .out = true,
                       .out_as = "Scalar_out",
                       .complex = {complex_quotient}};
const OpDef kNeg{
    .schema = "aten::neg(Tensor self) -> Tensor",
    .types = unary_number,
    .lower = unary<kUnary<Opcode::neg>>,
    .vjp = [](Builder&, const Call&, Grads g) -> Gradients { return {{"self", -g[0]}}; },
    .samples = kUnarySamples,
    .sample_dtypes = DTypes::numbers,
    .pointwise = true,
    .inplace = true,
    .out = true,
    .complex = {complex_each}};

// --- elementary functions
// -------------------------------------------------------------------------

const OpDef kAbs{.schema = "aten::abs(Tensor self) -> Tensor",
                 .types = [](const Call& c) -> Types {
                   Types types = unary_number(c);
                   types[0].dtype = part_type(types[0].dtype);
                   return types;
                 },
                 .lower = unary<kUnary<Opcode::abs>>,
                 // d|x| = sign(x) dx
                 .vjp = [](Builder& b, const Call& c, Grads g) -> Gradients {
                   return {{"self", g[0] * sign(self_of(b, c))}};
                 },
                 .samples = kUnarySamples,
                 .sample_dtypes = DTypes::numbers,
                 .pointwise = true,
                 .inplace = true,
                 .out = true,
                 .complex = {complex_magnitude}};
const OpDef kSign{.schema = "aten::sign(Tensor self) -> Tensor",
                  .types = unary_same,
                  .lower = unary<[](Element x) {
                    // NaN: eager gives 0.
                    return (x > 0).cast(x.dtype()) - (x < 0).cast(x.dtype());
                  }>,
                  .vjp = zero_gradient,
                  .samples = kUnarySamples,
                  .sample_dtypes = DTypes::numbers,
                  .pointwise = true,
                  .inplace = true,
                  .out = true};
const OpDef kExp{.schema = "aten::exp(Tensor self) -> Tensor",
                 .types = unary_float,
                 .lower = unary<kUnary<Opcode::exp>>,
                 // d exp(x) = exp(x) dx
                 .vjp = [](Builder& b, const Call& c, Grads g) -> Gradients {
                   return {{"self", g[0] * result_of(b, c)}};
                 },
                 .samples = kUnarySamples,
                 .sample_dtypes = DTypes::numbers,
                 .pointwise = true,
                 .inplace = true,
                 .out = true,
                 .complex = {complex_exponential}};
const OpDef kExpm1{.schema = "aten::expm1(Tensor self) -> Tensor",
                   .types = unary_float,
                   .lower = unary<kUnary<Opcode::expm1>>,
                   .vjp = [](Builder& b, const Call& c, Grads g) -> Gradients {
                     return {{"self", g[0] * (result_of(b, c) + 1)}};
                   },
                   .samples = kUnarySamples,
                   .pointwise = true,
                   .inplace = true,
                   .out = true,
                   .complex = {complex_function<complex::expm1>}};
const OpDef kLog{.schema = "aten::log(Tensor self) -> Tensor",
                 .types = unary_float,
                 .lower = unary<kUnary<Opcode::log>>,
                 .vjp = [](Builder& b, const Call& c, Grads g) -> Gradients {
                   return {{"self", g[0] / self_of(b, c)}};
                 },
                 .samples = kPositiveSamples,
                 .pointwise = true,
                 .inplace = true,
                 .out = true,
                 .complex = {complex_function<complex::log>}};
const OpDef kLog1p{.schema = "aten::log1p(Tensor self) -> Tensor",
                   .types = unary_float,
                   .lower = unary<kUnary<Opcode::log1p>>,
                   .vjp = [](Builder& b, const Call& c, Grads g) -> Gradients {
                     return {{"self", g[0] / (self_of(b, c) + 1)}};
                   },
                   .samples = kPositiveSamples,
                   .pointwise = true,
                   .inplace = true,
                   .out = true,
                   .complex = {complex_function<complex::log1p>}};
const OpDef kLog2{.schema = "aten::log2(Tensor self) -> Tensor",
                  .types = unary_float,
                  .lower = unary<kUnary<Opcode::log2>>,
                  .vjp = [](Builder& b, const Call& c, Grads g) -> Gradients {
                    return {{"self", g[0] / (self_of(b, c) * 0.6931471805599453)}};
                  },
                  .samples = kPositiveSamples,
                  .pointwise = true,
                  .inplace = true,
                  .out = true,
                  .complex = {complex_function<complex::log2>}};
const OpDef kSqrt{.schema = "aten::sqrt(Tensor self) -> Tensor",
                  .types = unary_float,
                  .lower = unary<kUnary<Opcode::sqrt>>,
                  // d sqrt(x) = dx / (2 sqrt(x))
                  .vjp = [](Builder& b, const Call& c, Grads g) -> Gradients {
                    return {{"self", g[0] / (result_of(b, c) * 2)}};
                  },
                  .samples = kPositiveSamples,
                  .pointwise = true,
                  .inplace = true,
                  .out = true,
                  .complex = {complex_function<complex::sqrt>}};
const OpDef kRsqrt{.schema = "aten::rsqrt(Tensor self) -> Tensor",
                   .types = unary_float,
                   .lower = unary<[](Element x) { return 1.0 / sqrt(x); }>,
                   // d x^(-1/2) = -1/2 y^3 dx
                   .vjp = [](Builder& b, const Call& c, Grads g) -> Gradients {
                     Tensor y = result_of(b, c);
                     return {{"self", g[0] * (y * y * y) * -0.5}};
                   },
                   .samples = kPositiveSamples,
                   .pointwise = true,
                   .inplace = true,
                   .out = true,
                   .complex = {complex_function<complex::rsqrt>}};
const OpDef kReciprocal{.schema = "aten::reciprocal(Tensor self) -> Tensor",
                        .types = unary_float,
                        .lower = unary<[](Element x) { return 1.0 / x; }>,
                        // d (1/x) = -y^2 dx
                        .vjp = [](Builder& b, const Call& c, Grads g) -> Gradients {
                          Tensor y = result_of(b, c);
                          return {{"self", -g[0] * (y * y)}};
                        },
                        .samples = kPositiveSamples,
                        .pointwise = true,
                        .inplace = true,
                        .out = true,
                        .complex = {complex_reciprocal}};
const OpDef kSin{.schema = "aten::sin(Tensor self) -> Tensor",
                 .types = unary_float,
                 .lower = unary<kUnary<Opcode::sin>>,
                 .vjp = [](Builder& b, const Call& c, Grads g) -> Gradients {
                   return {{"self", g[0] * cos(self_of(b, c))}};
                 },
                 .samples = kUnarySamples,
                 .pointwise = true,
                 .inplace = true,
                 .out = true,
                 .complex = {complex_function<complex::sin>}};
const OpDef kCos{.schema = "aten::cos(Tensor self) -> Tensor",
                 .types = unary_float,
                 .lower = unary<kUnary<Opcode::cos>>,
                 .vjp = [](Builder& b, const Call& c, Grads g) -> Gradients {
                   return {{"self", -(g[0] * sin(self_of(b, c)))}};
                 },
                 .samples = kUnarySamples,
                 .pointwise = true,
                 .inplace = true,
                 .out = true,
                 .complex = {complex_function<complex::cos>}};
const OpDef kErf{.schema = "aten::erf(Tensor self) -> Tensor",
                 .types = unary_float,
                 .lower = unary<kUnary<Opcode::erf>>,
                 // d erf(x) = 2/sqrt(pi) exp(-x^2) dx
                 .vjp = [](Builder& b, const Call& c, Grads g) -> Gradients {
                   Tensor x = self_of(b, c);
                   return {{"self", g[0] * (exp(-(x * x)) * 1.1283791670955126)}};
                 },
                 .samples = kUnarySamples,
                 .pointwise = true,
                 .inplace = true,
                 .out = true};
template <Opcode op>
OpDef rounded(std::string_view schema) {
  return {.schema = schema,
          .types = unary_number,
          .lower = unary<kUnary<op>>,
          .vjp = zero_gradient,
          .samples = kUnarySamples,
          .pointwise = true,
          .inplace = true,
          .out = true};
}
const OpDef kCeil = rounded<Opcode::ceil>("aten::ceil(Tensor self) -> Tensor");
const OpDef kFloor = rounded<Opcode::floor>("aten::floor(Tensor self) -> Tensor");
const OpDef kRound = rounded<Opcode::round>("aten::round(Tensor self) -> Tensor");
const OpDef kTrunc = rounded<Opcode::trunc>("aten::trunc(Tensor self) -> Tensor");

// --- powers
// ---------------------------------------------------------------------------------------

Element int_power(Element x, int64_t exponent) {
  Element result = x.number(1);
  for (Element base = x; exponent > 0; exponent /= 2, base = base * base)
    if (exponent % 2 == 1) result = result * base;
  return result;
}

/// Small exponents as products and roots: pow(x, 2) is x*x in eager too.
Element power_by_number(Element x, double exponent) {
  if (exponent == 0.5) return sqrt(x);
  if (exponent == -0.5) return 1.0 / sqrt(x);
  if (exponent == -1) return 1.0 / x;
  if (exponent == -2) return 1.0 / (x * x);
  if (exponent >= 0 && exponent <= 3 && exponent == static_cast<int>(exponent))
    return int_power(x, static_cast<int64_t>(exponent));
  if (!is_float(x.dtype())) return int_power(x, static_cast<int64_t>(exponent));
  return x.apply(Opcode::pow, x.number(exponent));
}

ir::Type pow_type(const Call& c, const ir::Sizes& sizes) {
  return ir::Type::tensor(common_dtype(c, {"self", "exponent"}), sizes);
}

const OpDef kPowTensorScalar{
    .schema = "aten::pow.Tensor_Scalar(Tensor self, Scalar exponent) -> Tensor",
    .types = [](const Call& c) -> Types {
      ir::Type type = pow_type(c, c.type("self").sizes);
      bool negative =
          !is_float(type.dtype) && !is_complex(type.dtype) && c.floating("exponent") < 0;
      if (negative) c.fail("integers to negative integer powers are not allowed");
      return {type};
    },
    .lower =
        [](Lowering& lowering, const Call& c) {
          DType compute = compute_type(c.result()->type.dtype);
          double exponent = c.floating("exponent");
          return map_definition(c, [&lowering, c, compute, exponent](size_t, const Index& index) {
            return power_by_number(operand(lowering, c, "self", index, compute), exponent).value();
          });
        },
    // d x^p = p x^(p-1) dx; p = 0 gives 0
    .vjp = [](Builder& b, const Call& c, Grads g) -> Gradients {
      double p = c.floating("exponent");
      if (p == 0) return {{"self", zeros_like(self_of(b, c))}};
      return {{"self", g[0] * (pow(self_of(b, c), p - 1) * p)}};
    },
    .samples = {"$[3, 4], 2", "$[5], 3", "$[4]:positive, 0.5", "$[4]:positive, -1.5", "$[0], 2",
                "$[7], 0", "$[6]:positive, 2.5"},
    .pointwise = true,
    .inplace = true,
    .out = true,
    .inplace_as = "Scalar",
    .out_as = "Tensor_Scalar_out",
    .complex = {complex_power}};
Types pow_types(const Call& c) {
  if (is_tensor(c, "exponent") && c.type("exponent").dtype == DType::boolean &&
      is_tensor(c, "self"))
    need_number(c, "self");
  return {pow_type(c, broadcast_of(c, {"self", "exponent"}))};
}
Definition pow_lower(Lowering& lowering, const Call& c) {
  DType compute = compute_type(c.result()->type.dtype);
  return map_definition(c, [&lowering, c, compute](size_t, const Index& index) {
    Element x = operand(lowering, c, "self", index, compute);
    Element y = operand(lowering, c, "exponent", index, compute);
    return x.apply(Opcode::pow, y).value();
  });
}
/// x^y log(x), but 0 where x = 0 and y >= 0.
Tensor power_slope(Builder& b, Tensor x, Tensor y, Tensor power) {
  Tensor flat = ops::call(b, "aten.logical_and", {compare("eq", x, 0.0), compare("ge", y, 0.0)});
  return where(flat, 0.0, power * log(x));
}
const OpDef kPowTensorTensor{
    .schema = "aten::pow.Tensor_Tensor(Tensor self, Tensor exponent) -> Tensor",
    .types = pow_types,
    .lower = pow_lower,
    // d x^y = y x^(y-1) dx + x^y log(x) dy, with 0 where y = 0 (dx) and where x = 0 and y >= 0 (dy)
    .vjp = [](Builder& b, const Call& c, Grads g) -> Gradients {
      Tensor x = self_of(b, c);
      Tensor y{b, c.value("exponent")};
      Tensor dx = y * ops::call(b, "aten.pow.Tensor_Tensor", {x, y - 1.0});
      dx = where(compare("eq", y, 0.0), 0.0, dx);
      Tensor dy = power_slope(b, x, y, result_of(b, c));
      return {{"self", sum_to(g[0] * dx, x.type())}, {"exponent", sum_to(g[0] * dy, y.type())}};
    },
    .samples = {"$[3, 4]:positive, $[3, 4]", "$[4]:positive, $[1]", "$[0], $[0]",
                "i64[40], i64[40]:index(70)", "i32[40], i32[40]:index(40)",
                "u8[20]:index(9), u8[20]:index(9)", "i64[20]:bool, i64[20]", "i16[20], i64[20]"},
    .pointwise = true,
    .inplace = true,
    .out = true,
    .inplace_as = "Tensor",
    .out_as = "Tensor_Tensor_out",
    .complex = {complex_power}};
const OpDef kPowScalar{
    .schema = "aten::pow.Scalar(Scalar self, Tensor exponent) -> Tensor",
    .types = pow_types,
    .lower = pow_lower,
    // d b^y = b^y log(b) dy
    .vjp = [](Builder& b, const Call& c, Grads g) -> Gradients {
      Tensor base = ops::call(b, "aten.full", {ir::Sizes{}, c.arg("self"), c.result()->type.dtype});
      Tensor y{b, c.value("exponent")};
      return {{"exponent", g[0] * power_slope(b, base, y, result_of(b, c))}};
    },
    .samples = {"2, $[3, 4]", "0.5, $[5]", "1, $[64]:special", "0, $[64]:special", "2, $[0]",
                "1.5, $[4, 3]{1, 4}", "-2, i32[5]:positive", "2, i64[9]:positive", "3, i64[80]",
                "-7, i64[80]:index(80)"},
    .pointwise = true,
    .out = true,
    .out_as = "Scalar_out",
    .complex = {complex_power}};

const OpDef* const kOps[] = {
    &kAddTensor,
    &kAddScalar,
    &kSubTensor,
    &kSubScalar,
    &kRsubScalar,
    &kRsubTensor,
    &kMulTensor,
    &kMulScalar,
    &kDivTensor,
    &kDivScalar,
    &kNeg,
    &kAbs,
    &kSign,
    &kExp,
    &kExpm1,
    &kLog,
    &kLog1p,
    &kLog2,
    &kSqrt,
    &kRsqrt,
    &kReciprocal,
    &kSin,
    &kCos,
    &kErf,
    &kCeil,
    &kFloor,
    &kRound,
    &kTrunc,
    &kPowTensorScalar,
    &kPowTensorTensor,
    &kPowScalar,
};

}  // namespace

Family pointwise_family() { return kOps; }

}  // namespace tandem::ops
