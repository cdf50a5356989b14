// Division with a rounding mode and its remainders. Floats follow IEEE and Python; integers refuse
// a divisor 0, which only the data shows: then the divisor goes through tandem::nonzero, an
// identity that fails. So only divisions of integers by tensors can fail, and tandem::quotient,
// which all decompose into, is free to be moved or dropped.
#include "ops/families.h"
#include "ops/formula.h"

namespace tandem::ops {
namespace {

constexpr std::string_view kStep = "piecewise constant: the gradient is zero";

const Samples kPairs = {"$[3, 4], $[3, 4]:positive",
                        "$[3, 4], $[4]:positive",
                        "$[2, 1, 5], $[3, 1]:positive",
                        "$[], $[3]:positive",
                        "$[0, 4], $[4]:positive",
                        "$[4, 3]{1, 4}, $[4, 3]:positive",
                        "$[33]:special, $[33]:positive",
                        "f32[33], f32[33]:special",
                        "f64[60]:special, f64[60]:special",
                        "$[3], i64[3]:positive",
                        "$[3]:positive, bool[1]"};
const Samples kNumberRight = {
    "$[3, 4], 2",          "$[5], -3",           "$[7], 1.5", "$[0], 3", "$[4, 3]{1, 4}, 4",
    "$[33]:special, -0.5", "f32[33]:special, 0", "i64[3], 0"};
const Samples kNumberLeft = {"7, $[3, 4]:positive", "-5, $[4, 3]{1, 4}:positive",
                             "2.5, $[3]:positive", "3, $[0]"};

// --- primitives
// -----------------------------------------------------------------------------------

Element is_zero(Element x) { return equal(x, x.number(0)); }
/// Whether a remainder of the dividend's sign must be moved to the divisor's side.
Element crosses(Element rest, Element divisor) {
  return both(not_equal(rest, rest.number(0)), not_equal(divisor < 0.0, rest < 0.0));
}

Element remainder(Element a, Element b) {
  Element rest = a.apply(Opcode::fmod, b);
  return choose(crosses(rest, b), rest + b, rest);
}
/// floor(a / b) by way of the remainder, as Python does: a / b itself may round up to a whole
/// number.
Element float_floor(Element a, Element b) {
  Element rest = a.apply(Opcode::fmod, b);
  Element quotient = (a - rest) / b;
  quotient = choose(crosses(rest, b), quotient - 1, quotient);
  Element whole = quotient.apply(Opcode::floor);
  whole = choose(quotient - whole > 0.5, whole + 1, whole);
  Element plain = a / b;
  Element zero = choose(plain < 0, plain.number(-0.0), plain.number(0.0));
  whole = choose(is_zero(quotient), zero, whole);
  return choose(is_zero(b), plain, whole);
}
Element rounded_quotient(const std::string& kind, Element a, Element b) {
  bool floats = is_float(a.dtype());
  if (kind == "fmod") return a.apply(Opcode::fmod, b);
  if (kind == "remainder") return remainder(a, b);
  if (kind == "floor") return floats ? float_floor(a, b) : a.apply(Opcode::floor_div, b);
  return floats ? (a / b).apply(Opcode::trunc) : a / b;
}

const OpDef kQuotient{
    .schema = "tandem::quotient(Tensor self, Tensor other, str kind) -> Tensor",
    .types = binary,
    .lower =
        [](Lowering& lowering, const Call& c) {
          DType compute = compute_type(c.result()->type.dtype);
          return map_definition(c, [&lowering, c, compute](size_t, const Index& index) {
            return rounded_quotient(c.string("kind"), operand(lowering, c, "self", index, compute),
                                    operand(lowering, c, "other", index, compute))
                .value();
          });
        },
    .no_grad = "the ATen ops over it have the gradients",
    .samples = {"$[3, 4], $[3, 4]:positive, \"floor\"", "$[3], $[3]:positive, \"trunc\"",
                "$[3], $[1]:positive, \"fmod\"", "$[0], $[1]:positive, \"remainder\""},
    .sample_dtypes = DTypes::numbers,
    .pointwise = true};

const OpDef kNonzero{
    .schema = "tandem::nonzero(Tensor self, str op) -> Tensor",
    .types = unary_same,
    .lower =
        [](Lowering& lowering, const Call& c) {
          return map_definition(c, [&lowering, c](size_t, const Index& index) {
            Element x = operand(lowering, c, "self", index, c.type("self").dtype);
            int32_t error = lowering.error("[" + c.string("op") + "] an integer is divided by 0");
            return lowering.check(not_equal(x, x.number(0)).value(), x.value(), error);
          });
        },
    .no_grad = "integers have no gradient",
    .samples = {"$[3, 4]:positive, \"aten::fmod\"", "$[0], \"aten::fmod\""},
    .sample_dtypes = DTypes::integers,
    .pointwise = true,
    .can_fail = true};

// --- common divisors
// ------------------------------------------------------------------------------

/// Euclid's algorithm, unrolled to the longest run that numbers of this width need: Fibonacci
/// numbers, which grow by 1.618 = 2^(1 / 1.44) a step.
Element gcd(Element a, Element b) {
  a = abs(a);
  b = abs(b);
  int64_t steps = size_of(a.dtype()) * 8 * 3 / 2;
  for (int64_t i = 0; i < steps; ++i) {
    Element done = is_zero(b);
    Element rest = choose(done, b, a.apply(Opcode::fmod, b));
    a = choose(done, a, b);
    b = rest;
  }
  return a;
}
/// |a / gcd(a, b) b|, of small integers computed in i32, as in C; 0 where both are 0, because an
/// integer divided by 0 is.
Element lcm(Element a, Element b) {
  DType wide = size_of(a.dtype()) < 4 ? DType::i32 : a.dtype();
  Element part = (a / gcd(a, b)).cast(wide);
  return abs(part * b.cast(wide)).cast(a.dtype());
}

template <auto F>
OpDef of_integers(std::string_view schema) {
  return {.schema = schema,
          .types =
              [](const Call& c) {
                Types types = binary(c);
                if (!is_int(types[0].dtype)) c.fail("needs integers, not " + to_string(types[0]));
                return types;
              },
          .lower = binary_map<F>,
          .no_grad = "integers have no gradient",
          .samples = {"$[3, 4], $[3, 4]", "$[3, 4], $[4]", "$[], $[3]", "$[0, 4], $[4]",
                      "$[4, 3]{1, 4}, $[4, 3]", "$[3], i64[3]", "$[97], $[97]:index(120)"},
          .sample_dtypes = DTypes::all,
          .pointwise = true,
          .inplace = true,
          .out = true};
}

// --- ATen's names
// ---------------------------------------------------------------------------------

Types number_types(const Call& c) {
  Types types = binary(c);
  if (types[0].dtype == DType::boolean) c.fail("is not defined for bool");
  return types;
}

/// True when `other` is a number other than 0.
bool is_safe_number(const ir::Arg& arg) {
  if (const sym::Expr* number = std::get_if<sym::Expr>(&arg)) {
    std::optional<int64_t> known = number->constant();
    return known && *known != 0;
  }
  const bool* flag = std::get_if<bool>(&arg);
  return flag != nullptr && *flag;
}

Tensor quotient(Builder& b, const Call& c, std::string_view kind) {
  DType dtype = c.result()->type.dtype;
  Tensor divisor = to(tensor_of(b, c, "other", dtype), dtype);
  if (is_int(dtype) && !is_safe_number(c.arg("other")))
    divisor = call(b, "tandem.nonzero", {divisor, c.op().schema.full_name().c_str()});
  Tensor self = to(tensor_of(b, c, "self", dtype), dtype);
  return call(b, "tandem.quotient", {self, divisor, std::string(kind).c_str()});
}

constexpr auto kFmodKind = [] { return std::string_view("fmod"); };
constexpr auto kRemainderKind = [] { return std::string_view("remainder"); };
template <auto Kind>
Tensors remaining(Builder& b, const Call& c) {
  return {quotient(b, c, called<Kind>())};
}

// a - b q with the quotient q rounded toward 0 (fmod) or down (remainder): da - q db
template <bool floor>
constexpr auto kRestGrads = [](Tensor g, Tensor a, Tensor b, Tensor) -> std::array<Tensor, 2> {
  Builder& builder = g.builder();
  const ir::Arg mode{std::string(floor ? "floor" : "trunc")};
  Tensor q = call(builder, "aten.div.Tensor_mode", {a, b, Operand(mode)});
  return {g, -(g * q)};
};

template <auto Kind, bool floor>
OpDef rest(std::string_view schema, std::string_view out_as, bool inplace, const Samples& samples) {
  return {.schema = schema,
          .types = number_types,
          .decompose = remaining<Kind>,
          .vjp = pair_vjp<kRestGrads<floor>>,
          .samples = samples,
          .sample_dtypes = DTypes::all,
          .pointwise = true,
          .inplace = inplace,
          .out = true,
          .out_as = out_as};
}

std::string mode_of(const Call& c) {
  if (!c.has("rounding_mode")) return "";
  std::string mode = c.string("rounding_mode");
  if (mode != "trunc" && mode != "floor")
    c.fail("rounding_mode must be None, \"trunc\" or \"floor\", not \"" + mode + "\"");
  return mode;
}
Types mode_types(const Call& c) { return mode_of(c).empty() ? binary_float(c) : number_types(c); }
Tensors divided(Builder& b, const Call& c) {
  std::string mode = mode_of(c);
  if (!mode.empty()) return {quotient(b, c, mode)};
  std::string_view plain = is_tensor(c, "other") ? "aten.div.Tensor" : "aten.div.Scalar";
  return {call(b, plain, {c.arg("self"), c.arg("other")})};
}
// Rounded: 0. Else d(a / b) = da / b - (a / b) / b db
constexpr auto kQuotientGrads = [](Tensor g, Tensor a, Tensor b, Tensor) -> std::array<Tensor, 2> {
  return {g / b, -(g * ((a / b) / b))};
};
Gradients mode_vjp(Builder& b, const Call& c, Grads g) {
  if (!mode_of(c).empty()) return zero_gradient(b, c, g);
  return pair_vjp<kQuotientGrads>(b, c, g);
}
const OpDef kDivTensorMode{
    .schema = "aten::div.Tensor_mode(Tensor self, Tensor other, *, str? rounding_mode) -> Tensor",
    .types = mode_types,
    .decompose = divided,
    .vjp = mode_vjp,
    .samples = {"$[3, 4], $[3, 4]:positive, rounding_mode=\"floor\"",
                "$[3, 4], $[4]:positive, rounding_mode=\"trunc\"",
                "$[2, 1, 5], $[3, 1]:positive, rounding_mode=none",
                "$[0, 4], $[4]:positive, rounding_mode=\"floor\"",
                "$[4, 3]{1, 4}, $[4, 3]:positive, rounding_mode=\"floor\"",
                "f64[60]:special, f64[60]:special, rounding_mode=\"floor\"",
                "f32[60]:special, f32[60]:special, rounding_mode=\"trunc\"",
                "$[3], $[3]:positive, rounding_mode=\"up\""},
    .sample_dtypes = DTypes::all,
    .pointwise = true,
    .inplace = true,
    .out = true,
    .out_as = "out_mode"};
const OpDef kDivScalarMode{
    .schema = "aten::div.Scalar_mode(Tensor self, Scalar other, *, str? rounding_mode) -> Tensor",
    .types = mode_types,
    .decompose = divided,
    .vjp = mode_vjp,
    .samples = {"$[3, 4], 2, rounding_mode=\"floor\"", "$[5], -3, rounding_mode=\"trunc\"",
                "$[7], 1.5, rounding_mode=\"floor\"", "$[0], 3, rounding_mode=none",
                "$[33]:special, 0.5, rounding_mode=\"floor\"",
                "i64[3], 0, rounding_mode=\"floor\""},
    .sample_dtypes = DTypes::all,
    .pointwise = true,
    .inplace = true,
    .out = true,
    .out_as = "Scalar_mode_out"};

Tensors floored(Builder& b, const Call& c) { return {quotient(b, c, "floor")}; }
const OpDef kFloorDivide{.schema = "aten::floor_divide(Tensor self, Tensor other) -> Tensor",
                         .types = number_types,
                         .decompose = floored,
                         .no_grad = kStep,
                         .samples = kPairs,
                         .sample_dtypes = DTypes::all,
                         .pointwise = true,
                         .inplace = true,
                         .out = true,
                         .inplace_as = "Tensor"};
const OpDef kFloorDivideScalar{
    .schema = "aten::floor_divide.Scalar(Tensor self, Scalar other) -> Tensor",
    .types = number_types,
    .decompose = floored,
    .no_grad = kStep,
    .samples = kNumberRight,
    .sample_dtypes = DTypes::all,
    .pointwise = true,
    .inplace = true,
    .out = true,
    .out_as = "Scalar_out"};

const OpDef kTable[] = {
    of_integers<gcd>("aten::gcd(Tensor self, Tensor other) -> Tensor"),
    of_integers<lcm>("aten::lcm(Tensor self, Tensor other) -> Tensor"),
    rest<kFmodKind, false>("aten::fmod.Tensor(Tensor self, Tensor other) -> Tensor", "Tensor_out",
                           true, kPairs),
    rest<kFmodKind, false>("aten::fmod.Scalar(Tensor self, Scalar other) -> Tensor", "Scalar_out",
                           true, kNumberRight),
    rest<kRemainderKind, true>("aten::remainder.Tensor(Tensor self, Tensor other) -> Tensor",
                               "Tensor_out", true, kPairs),
    rest<kRemainderKind, true>("aten::remainder.Scalar(Tensor self, Scalar other) -> Tensor",
                               "Scalar_out", true, kNumberRight),
    rest<kRemainderKind, true>("aten::remainder.Scalar_Tensor(Scalar self, Tensor other) -> Tensor",
                               "Scalar_Tensor_out", false, kNumberLeft),
};

}  // namespace

Family division_family() {
  static const std::vector<const OpDef*> kOps =
      listed(kTable, {&kQuotient, &kNonzero, &kDivTensorMode, &kDivScalarMode, &kFloorDivide,
                      &kFloorDivideScalar});
  return kOps;
}

}  // namespace tandem::ops
