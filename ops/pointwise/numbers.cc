// Python's arithmetic of numbers that only data tell. Numbers are tensors without dimensions (i64,
// f64, bool), and one op, tandem::number, has all of Python's operators by their names: it brings
// the operands to one type as Python does, and becomes ATen's ops. What raises in Python is an
// error of the call, by a value that is checked. Integers have 64 bits; what wraps is not noticed,
// but no float becomes an integer that it is not.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "ops/elements.h"
#include "ops/families.h"

namespace tandem::ops {
namespace {

constexpr std::string_view kNoGradient = "a number that the program reads has no gradient";

// --- primitives
// -----------------------------------------------------------------------------------

/// An identity that fails where `holds` is false.
const OpDef kChecked{
    .schema = "tandem::checked(Tensor self, Tensor holds, str error) -> Tensor",
    .types = [](const Call& c) -> Types {
      if (c.type("holds").dtype != DType::boolean) c.fail(c.describe("holds") + " must be bool");
      return {ir::Type::tensor(c.type("self").dtype, broadcast_of(c, {"self", "holds"}))};
    },
    .lower =
        [](Lowering& lowering, const Call& c) {
          return map_definition(c, [&lowering, c](size_t, const Index& index) {
            const DType dtype = compute_type(c.type("self").dtype);
            const Element x = operand(lowering, c, "self", index, dtype);
            const Element holds = operand(lowering, c, "holds", index, DType::boolean);
            return lowering.check(holds.value(), x.value(), lowering.error(c.string("error")));
          });
        },
    .no_grad = kNoGradient,
    .samples = {"f64[3], bool[3]:constant(1), \"must hold\"",
                "i64[], bool[]:constant(1), \"must hold\""},
    .sample_dtypes = DTypes::f32_only,
    .pointwise = true,
    .can_fail = true};

/// An i64 as the sum of two f64, the first of which is the nearest to it.
struct TwoFloats {
  Element high, low;
};
TwoFloats in_two(Element x) {
  const Element shift = x.integer(32);
  const Element upper = x.apply(Opcode::shift_right, shift).apply(Opcode::shift_left, shift);
  const Element first = upper.cast(DType::f64);  // exact, as is the rest, which is smaller
  const Element rest = (x - upper).cast(DType::f64);
  const Element sum = first + rest;
  return {sum, rest - (sum - first)};
}

/// a / b of integers, rounded once as Python does: the quotient q of the nearest floats, then what
/// it leaves of the integers, (a - q b) / b. Ties between two floats are exact on the way. A
/// quotient that is nearer than 2^-50 of its last place to the middle of two may become the other
/// one; no quotient of integers up to 2^53 is. By 0 it is what floats give.
constexpr auto kIntegerQuotient = [](Element a, Element b) {
  const TwoFloats left = in_two(a);
  const TwoFloats right = in_two(b);
  const Element zero = left.high.number(0);
  const Element q = left.high / right.high;
  const Element rest = fma(-q, right.high, left.high) + fma(-q, right.low, left.low);
  const Element are_floats = both(equal(left.low, zero), equal(right.low, zero));
  return choose(are_floats, q, q + rest / right.high);
};
const OpDef kQuotient{
    .schema = "tandem::integer_quotient(Tensor self, Tensor other) -> Tensor",
    .types = [](const Call& c) -> Types {
      need_same_dtype(c, {"self", "other"});
      if (c.type("self").dtype != DType::i64) c.fail(c.describe("self") + " must be i64");
      return {ir::Type::tensor(DType::f64, broadcast_of(c, {"self", "other"}))};
    },
    .lower =
        [](Lowering& lowering, const Call& c) {
          return map_definition(c, [&lowering, c](size_t, const Index& index) {
            return kIntegerQuotient(operand(lowering, c, "self", index, DType::i64),
                                    operand(lowering, c, "other", index, DType::i64))
                .value();
          });
        },
    .no_grad = kNoGradient,
    .samples = {"i64[], i64[]:positive", "i64[3], i64[3]:positive", "i64[3], i64[]:positive"},
    .sample_dtypes = DTypes::f32_only,
    .pointwise = true};

// --- rules
// ----------------------------------------------------------------------------------------

enum class Kind : uint8_t { widest, number, boolean, integer, real };  // number: no bool

template <class Dtypes>
DType widest(const Dtypes& dtypes) {
  DType found = DType::boolean;
  for (DType each : dtypes)
    if (each == DType::f64 || found == DType::boolean) found = each;
  return found;
}

DType dtype_of(Kind kind, DType widest) {
  switch (kind) {
    case Kind::widest: return widest;
    case Kind::number: return widest == DType::boolean ? DType::i64 : widest;
    case Kind::boolean: return DType::boolean;
    case Kind::integer: return DType::i64;
    case Kind::real: return DType::f64;
  }
  return widest;
}

/// One of Python's operators: how many operands, of which kind they become, what it gives of them.
struct Rule {
  std::string_view name;
  size_t arity;
  Kind operands;
  Kind result;
  Tensor (*make)(std::string_view name, const Tensors& x);
};

Tensor checked(Tensor x, Tensor holds, std::string_view name, std::string_view error) {
  return call(x.builder(), "tandem.checked",
              {x, holds, fmt::format("[{}] {}", name, error).c_str()});
}
Tensor not_zero(Tensor x, std::string_view name) {
  return checked(x, compare("ne", x, 0.0), name, "ZeroDivisionError: division by zero");
}
Tensor both(Tensor a, Tensor b) { return call(a.builder(), "aten.logical_and", {a, b}); }
Tensor either(Tensor a, Tensor b) { return call(a.builder(), "aten.logical_or", {a, b}); }

Tensor plain(std::string_view op, const Tensors& x) {
  std::vector<Operand> operands(x.begin(), x.end());
  return call(x[0].builder(), op, operands);
}
Tensor aten(std::string_view name, const Tensors& x) {
  return plain(fmt::format("aten.{}", name), x);
}
Tensor aten_tensor(std::string_view name, const Tensors& x) {
  return plain(fmt::format("aten.{}.Tensor", name), x);
}
Tensor bitwise(std::string_view name, const Tensors& x) {
  return plain(fmt::format("aten.bitwise_{}.Tensor", name), x);
}
Tensor shifted(std::string_view name, const Tensors& x) {
  const std::string_view side = name == "lshift" ? "left" : "right";
  return plain(fmt::format("aten.bitwise_{}_shift.Tensor", side), x);
}
Tensor itself(std::string_view, const Tensors& x) { return x[0]; }

Tensor true_quotient(std::string_view name, const Tensors& x) {
  const Tensor divisor = not_zero(x[1], name);
  const bool floats = divisor.dtype() == DType::f64;
  return floats ? x[0] / divisor
                : call(divisor.builder(), "tandem.integer_quotient", {x[0], divisor});
}

/// Where x is 0, it has the sign of `other`.
Tensor zero_like(Tensor x, Tensor other) {
  const Tensor zero = call(x.builder(), "aten.copysign.Tensor", {x, other});
  return where(compare("eq", x, 0.0), zero, x);
}

Tensor floor_quotient(std::string_view name, const Tensors& x) {
  const Tensor divisor = not_zero(x[1], name);
  const Tensor whole = call(x[0].builder(), "tandem.quotient", {x[0], divisor, "floor"});
  if (whole.dtype() != DType::f64) return whole;
  return zero_like(whole, x[0] / divisor);
}

/// A remainder of 0 has the divisor's sign.
Tensor remainder(std::string_view name, const Tensors& x) {
  const Tensor divisor = not_zero(x[1], name);
  const Tensor rest = call(x[0].builder(), "tandem.quotient", {x[0], divisor, "remainder"});
  return rest.dtype() == DType::f64 ? zero_like(rest, divisor) : rest;
}

Tensor power(std::string_view name, const Tensors& x) {
  const Tensor is_defined = either(compare("ne", x[0], 0.0), logical_not(compare("lt", x[1], 0.0)));
  const Tensor base =
      checked(x[0], is_defined, name, "ZeroDivisionError: 0 cannot be raised to a negative power");
  return call(base.builder(), "aten.pow.Tensor_Tensor", {base, x[1]});
}

/// max(a, b) is a unless b is larger, also where one is NaN.
Tensor extreme(std::string_view name, const Tensors& x) {
  return where(compare(name == "max" ? "gt" : "lt", x[1], x[0]), x[1], x[0]);
}

Tensor chosen(std::string_view, const Tensors& x) {
  const DType dtype = widest(std::array{x[1].dtype(), x[2].dtype()});
  return where(to(x[0], DType::boolean), to(x[1], dtype), to(x[2], dtype));
}

/// The integer that a float becomes.
Tensor whole(std::string_view name, const Tensors& x) {
  if (x[0].dtype() != DType::f64) return to(x[0], DType::i64);
  const Tensor rounded = aten(name, x);
  const double end = std::ldexp(1.0, 63);
  const Tensor fits = both(compare("ge", rounded, -end), compare("lt", rounded, end));
  return to(
      checked(rounded, fits, name, "a float that is NaN, infinite or beyond 64 bits is no integer"),
      DType::i64);
}

/// A function of Python's module `math`; NaN goes through all of them.
Tensor function(std::string_view name, const Tensors& x) {
  constexpr std::string_view kError = "ValueError: math domain error";
  Tensor of = x[0];
  if (name == "sqrt") of = checked(of, logical_not(compare("lt", of, 0.0)), name, kError);
  if (name == "log2") of = checked(of, logical_not(compare("le", of, 0.0)), name, kError);
  if (name == "asin" || name == "acos")
    of = checked(of, logical_not(compare("gt", abs(of), 1.0)), name, kError);
  if (name == "sin" || name == "cos" || name == "tan")
    of = checked(of, compare("ne", abs(of), HUGE_VAL), name, kError);
  return aten(name, {of});
}

constexpr Rule kRules[] = {
    {"add", 2, Kind::number, Kind::number, aten_tensor},
    {"sub", 2, Kind::number, Kind::number, aten_tensor},
    {"mul", 2, Kind::number, Kind::number, aten_tensor},
    {"neg", 1, Kind::number, Kind::number, aten},
    {"pos", 1, Kind::number, Kind::number, itself},
    {"abs", 1, Kind::number, Kind::number, aten},
    {"truediv", 2, Kind::number, Kind::real, true_quotient},
    {"floordiv", 2, Kind::number, Kind::number, floor_quotient},
    {"mod", 2, Kind::number, Kind::number, remainder},
    {"pow", 2, Kind::number, Kind::number, power},
    {"max", 2, Kind::widest, Kind::widest, extreme},
    {"min", 2, Kind::widest, Kind::widest, extreme},
    {"and", 2, Kind::widest, Kind::widest, bitwise},
    {"or", 2, Kind::widest, Kind::widest, bitwise},
    {"xor", 2, Kind::widest, Kind::widest, bitwise},
    {"lshift", 2, Kind::number, Kind::number, shifted},
    {"rshift", 2, Kind::number, Kind::number, shifted},
    {"not", 1, Kind::boolean, Kind::boolean,
     [](std::string_view, const Tensors& x) { return logical_not(x[0]); }},
    {"eq", 2, Kind::widest, Kind::boolean, aten_tensor},
    {"ne", 2, Kind::widest, Kind::boolean, aten_tensor},
    {"lt", 2, Kind::widest, Kind::boolean, aten_tensor},
    {"le", 2, Kind::widest, Kind::boolean, aten_tensor},
    {"gt", 2, Kind::widest, Kind::boolean, aten_tensor},
    {"ge", 2, Kind::widest, Kind::boolean, aten_tensor},
    {"float", 1, Kind::real, Kind::real, itself},
    {"floor", 1, Kind::widest, Kind::integer, whole},
    {"ceil", 1, Kind::widest, Kind::integer, whole},
    {"trunc", 1, Kind::widest, Kind::integer, whole},
    {"round", 1, Kind::widest, Kind::integer, whole},
    {"sqrt", 1, Kind::real, Kind::real, function},
    {"cos", 1, Kind::real, Kind::real, function},
    {"cosh", 1, Kind::real, Kind::real, function},
    {"sin", 1, Kind::real, Kind::real, function},
    {"sinh", 1, Kind::real, Kind::real, function},
    {"tan", 1, Kind::real, Kind::real, function},
    {"tanh", 1, Kind::real, Kind::real, function},
    {"asin", 1, Kind::real, Kind::real, function},
    {"acos", 1, Kind::real, Kind::real, function},
    {"atan", 1, Kind::real, Kind::real, function},
    {"log2", 1, Kind::real, Kind::real, function},
};
/// `then if holds else otherwise`: the first is of another kind than the others.
constexpr Rule kChoice{"ite", 3, Kind::widest, Kind::widest, chosen};

/// Null where there is none.
const Rule* rule_named(std::string_view name) {
  if (name == kChoice.name) return &kChoice;
  const Rule* rule = std::ranges::find(kRules, name, &Rule::name);
  return rule == std::end(kRules) ? nullptr : rule;
}

const Rule& rule_of(const Call& c) {
  const std::string name = c.string("operation");
  const Rule* rule = rule_named(name);
  if (rule == nullptr) c.fail("has no operation \"" + name + "\" of numbers");
  if (c.values("numbers").size() != rule->arity)
    c.fail(fmt::format("\"{}\" is of {} numbers, not {}", name, rule->arity,
                       c.values("numbers").size()));
  return *rule;
}

/// Of those behind the condition of a choice.
DType widest_of(const Call& c) {
  std::vector<DType> dtypes;
  for (const ir::Value* value : c.values("numbers")) {
    const DType dtype = value->type.dtype;
    const bool is_kind = dtype == DType::boolean || dtype == DType::i64 || dtype == DType::f64;
    if (value->type.rank() != 0 || !is_kind)
      c.fail(to_string(value->type) + " is no number: they are i64[], f64[] or bool[]");
    dtypes.push_back(dtype);
  }
  return widest(std::span(dtypes).subspan(dtypes.size() == kChoice.arity ? 1 : 0));
}

Types number_types(const Call& c) {
  const Rule& rule = rule_of(c);
  return {ir::Type::tensor(dtype_of(rule.result, widest_of(c)), {})};
}

Tensors number(Builder& b, const Call& c) {
  const Rule& rule = rule_of(c);
  const DType dtype = dtype_of(rule.operands, widest_of(c));
  Tensors numbers;
  for (ir::Value* value : c.values("numbers")) numbers.push_back({b, value});
  if (rule.arity < kChoice.arity)
    for (Tensor& each : numbers) each = to(each, dtype);
  return {rule.make(rule.name, numbers)};
}

const OpDef kNumber{.schema = "tandem::number(Tensor[] numbers, str operation) -> Tensor",
                    .types = number_types,
                    .decompose = number,
                    .no_grad = kNoGradient,
                    .samples = {"[f64[], i64[]], \"add\"", "[i64[], i64[]:positive], \"truediv\"",
                                "[f64[], f64[]:positive], \"mod\"", "[f64[]], \"round\"",
                                "[f64[]:positive], \"sqrt\"", "[bool[], i64[], f64[]], \"ite\"",
                                "[f64[], f64[]], \"max\"", "[bool[], bool[]], \"add\""},
                    .sample_dtypes = DTypes::f32_only,
                    .can_fail = true};

const OpDef* const kOps[] = {&kChecked, &kQuotient, &kNumber};

}  // namespace

Family numbers_family() { return kOps; }

}  // namespace tandem::ops
