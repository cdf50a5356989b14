// One operand, no curve: fractions, signs, tests for infinity, degrees, replaced NaNs, rounding to
// decimals, and what conjugates and real parts are of tensors that are real.
#include <cmath>
#include <limits>
#include <numbers>

#include "ops/elementary.h"
#include "ops/families.h"
#include "ops/formula.h"

namespace tandem::ops {
namespace {

constexpr std::string_view kBool = "the result is not differentiable (bool)";
constexpr double kDegree = std::numbers::pi / 180;

const Samples kSamples = {"$[3, 4]",       "$[]",           "$[0, 3]",
                          "$[4, 3]{1, 4}", "$[67]:special", "$[2, 3, 5]"};

Tensor self_of(Builder& b, const Call& c) { return {b, c.value("self")}; }

// --- tests
// ----------------------------------------------------------------------------------------

template <auto F>
OpDef test(std::string_view schema, bool out, ComplexForm form = {}) {
  return {.schema = schema,
          .types = unary_bool,
          .lower = unary<F>,
          .no_grad = kBool,
          .samples = kSamples,
          .sample_dtypes = DTypes::all,
          .pointwise = true,
          .out = out,
          .complex = form};
}
Element always(Element x) { return {x.pool(), x.pool().integer(DType::boolean, 1)}; }
Element never(Element x) { return {x.pool(), x.pool().integer(DType::boolean, 0)}; }
constexpr auto kIsfinite = [](Element x) {
  return is_float(x.dtype()) ? abs(x) < HUGE_VAL : always(x);
};
template <int sign>
constexpr auto kIsInfinity =
    [](Element x) { return is_float(x.dtype()) ? equal(x, x.number(sign * HUGE_VAL)) : never(x); };
constexpr auto kIsinf = [](Element x) {
  return is_float(x.dtype()) ? equal(abs(x), x.number(HUGE_VAL)) : never(x);
};
constexpr auto kSignbit = [](Element x) {
  return x.dtype() == DType::boolean ? never(x) : signbit(x);
};

ComplexResults has_no_imaginary_part(const ComplexCall& c) {
  return {{compare("eq", c.given("self").im, 0.0), {}}};
}

const OpDef kTests[] = {
    test<kIsfinite>("aten::isfinite(Tensor self) -> Tensor", false, {complex_both}),
    test<kIsinf>("aten::isinf(Tensor self) -> Tensor", true, {complex_either}),
    test<kIsInfinity<1>>("aten::isposinf(Tensor self) -> Tensor", true),
    test<kIsInfinity<-1>>("aten::isneginf(Tensor self) -> Tensor", true),
    test<always>("aten::isreal(Tensor self) -> Tensor", false, {has_no_imaginary_part}),
    test<kSignbit>("aten::signbit(Tensor self) -> Tensor", true),
};

// --- aliases of real tensors
// ----------------------------------------------------------------------

Gradients same_vjp(Builder&, const Call&, Grads g) { return {{"self", g[0]}}; }
Definition same_lower(Lowering& lowering, const Call& c) {
  return map_definition(c, [&lowering, c](size_t, const Index& index) {
    return lowering.load(c.value("self"), index);
  });
}
Types real_types(const Call& c) {
  return {ir::Type::tensor(part_type(c.type("self").dtype), c.type("self").sizes)};
}
OpDef alias(std::string_view schema, ir::TypeRule types = unary_same,
            ComplexRule rule = complex_each) {
  return {.schema = schema,
          .types = types,
          .lower = same_lower,
          .vjp = same_vjp,
          .scatter = [](Builder&, const Call&, Tensor, Tensor value) { return value; },
          .samples = {"$[3, 4]", "$[0]", "$[4, 3]{1, 4}"},
          .sample_dtypes = DTypes::all,
          .pointwise = true,
          .complex = {rule}};
}
OpDef copy(std::string_view schema, bool inplace) {
  return {.schema = schema,
          .types = unary_same,
          .lower = same_lower,
          .vjp = same_vjp,
          .samples = kSamples,
          .sample_dtypes = DTypes::all,
          .pointwise = true,
          .inplace = inplace,
          .out = true,
          .complex = {complex_conjugate}};
}
/// Of complex numbers another view: the base keeps its imaginary parts.
OpDef real_view() {
  OpDef def =
      alias("aten::real(Tensor(a) self) -> Tensor(a)", real_types,
            [](const ComplexCall& c) -> ComplexResults { return {{c.given("self").re, {}}}; });
  def.scatter = [](Builder& b, const Call&, Tensor base, Tensor value) {
    if (!is_complex(base.dtype())) return value;
    return call(b, "aten.complex", {value, call(b, "aten.imag", {base})});
  };
  return def;
}
OpDef conjugate_view() {
  OpDef def = alias("aten::conj(Tensor(a) self) -> Tensor(a)", unary_same, complex_conjugate);
  def.scatter = [](Builder& b, const Call&, Tensor base, Tensor value) {
    return is_complex(base.dtype()) ? call(b, "aten.conj", {value}) : value;
  };
  return def;
}
/// A front end leaves out what gives its operand; so of complex numbers it is a copy.
OpDef resolved_conjugate() {
  OpDef def = alias("aten::resolve_conj(Tensor(a) self) -> Tensor(a)");
  def.copies = [](const Call& c) { return is_complex(c.type("self").dtype); };
  return def;
}
const OpDef kSame[] = {
    alias("aten::positive(Tensor(a) self) -> Tensor(a)", unary_number),
    real_view(),
    conjugate_view(),
    resolved_conjugate(),
    alias("aten::resolve_neg(Tensor(a) self) -> Tensor(a)"),
    copy("aten::conj_physical(Tensor self) -> Tensor", true),
    copy("aten::_conj_physical(Tensor self) -> Tensor", false),
};

// --- numbers
// --------------------------------------------------------------------------------------

const OpDef kFrac{.schema = "aten::frac(Tensor self) -> Tensor",
                  .types = float_same,
                  .lower = unary<[](Element x) { return x - x.apply(Opcode::trunc); }>,
                  .vjp = same_vjp,
                  .samples = kSamples,
                  .sample_dtypes = DTypes::numbers,
                  .pointwise = true,
                  .inplace = true,
                  .out = true};
const OpDef kSgn{
    .schema = "aten::sgn(Tensor self) -> Tensor",
    .types = unary_same,
    .decompose = [](Builder& b, const Call& c) -> Tensors { return {sign(self_of(b, c))}; },
    .vjp = zero_gradient,
    .samples = kSamples,
    .sample_dtypes = DTypes::numbers,
    .inplace = true,
    .out = true,
    .complex = {complex_sign}};
const OpDef kSquare{.schema = "aten::square(Tensor self) -> Tensor",
                    .types = [](const Call& c) -> Types {
                      Types types = unary_same(c);
                      if (types[0].dtype == DType::boolean) types[0].dtype = DType::i64;
                      return types;
                    },
                    .decompose = [](Builder& b, const Call& c) -> Tensors {
                      return {call(b, "aten.pow.Tensor_Scalar", {self_of(b, c), 2})};
                    },
                    .samples = kSamples,
                    .sample_dtypes = DTypes::all,
                    .inplace = true,
                    .out = true};

template <auto Factor>
OpDef scaled(std::string_view schema) {
  return {.schema = schema,
          .types = unary_float,
          .lower = unary<[](Element x) { return x * called<Factor>(); }>,
          .vjp = slope_vjp<[](Tensor x, Tensor) {
            return full(x.builder(), {}, called<Factor>(), x.dtype());
          }>,
          .samples = kSamples,
          .sample_dtypes = DTypes::all,
          .pointwise = true,
          .inplace = true,
          .out = true};
}
const OpDef kScaled[] = {
    scaled<[] { return kDegree; }>("aten::deg2rad(Tensor self) -> Tensor"),
    scaled<[] { return 1 / kDegree; }>("aten::rad2deg(Tensor self) -> Tensor"),
};

const OpDef kNanToNum{
    .schema =
        "aten::nan_to_num(Tensor self, float? nan=None, float? posinf=None, float? "
        "neginf=None) -> Tensor",
    .types = unary_same,
    .lower =
        [](Lowering& lowering, const Call& c) {
          DType dtype = c.result()->type.dtype;
          return map_definition(c, [&lowering, c, dtype](size_t, const Index& index) {
            Element x = operand(lowering, c, "self", index, compute_type(dtype));
            if (!is_float(dtype)) return x.value();
            auto value = [&](std::string_view name, double otherwise) {
              return x.number(c.has(name) ? c.floating(name) : otherwise);
            };
            Element infinity = x.number(HUGE_VAL);
            Element y = choose(equal(x, infinity), value("posinf", largest_finite(dtype)), x);
            y = choose(equal(x, -infinity), value("neginf", -largest_finite(dtype)), y);
            return choose(not_equal(x, x), value("nan", 0), y).value();
          });
        },
    // dx where x is finite
    .vjp = [](Builder& b, const Call& c, Grads g) -> Gradients {
      Tensor finite = call(b, "aten.isfinite", {c.arg("self")});
      return {{"self", g[0] * to(finite, g[0].dtype())}};
    },
    .samples = {"$[3, 4]", "$[67]:special", "$[67]:special, 1, 2, -3", "$[67]:special, 0.5",
                "$[67]:special, none, 7.5", "$[0]", "$[]", "$[4, 3]{1, 4}"},
    .sample_dtypes = DTypes::all,
    .pointwise = true,
    .inplace = true,
    .out = true};

// --- frexp
// ----------------------------------------------------------------------------------------

/// x = mantissa * 2^exponent with |mantissa| in [0.5, 1): the exponent bits become those of 1/2.
/// Subnormals are scaled into the range first; 0, infinities and NaN are their own mantissa.
struct BinaryParts {
  Element mantissa, exponent;
};
BinaryParts binary_parts(Element x) {
  bool wide = x.dtype() == DType::f64;
  DType bits = wide ? DType::i64 : DType::i32;
  int64_t width = wide ? 52 : 23;
  int64_t field = wide ? 0x7ff : 0xff;
  int64_t half = wide ? 1022 : 126;
  Element tiny = both(abs(x) < (wide ? 0x1p-1022 : 0x1p-126), not_equal(x, x.number(0)));
  Element scaled = choose(tiny, x * 0x1p60, x);
  Element raw = scaled.bitcast(bits);
  Element mask = raw.integer(field << width);
  Element exponent = both(raw, mask).apply(Opcode::shift_right, raw.integer(width));
  exponent = exponent - choose(tiny, raw.integer(half + 60), raw.integer(half));
  Element mantissa = either(both(raw, mask.apply(Opcode::bit_not)), raw.integer(half << width));
  Element itself = either(equal(x, x.number(0)), equal(both(raw, mask), mask));
  return {choose(itself, x, mantissa.bitcast(x.dtype())),
          choose(itself, raw.integer(0), exponent).cast(DType::i32)};
}
const OpDef kFrexp{
    .schema = "aten::frexp.Tensor(Tensor self) -> (Tensor mantissa, Tensor exponent)",
    .types = [](const Call& c) -> Types {
      need_float(c, "self");
      const ir::Type& self = c.type("self");
      return {self, ir::Type::tensor(DType::i32, self.sizes)};
    },
    .lower = [](Lowering& lowering, const Call& c) -> Definition {
      DType compute = compute_type(c.type("self").dtype);
      return map_definition(c, [&lowering, c, compute](size_t result, const Index& index) {
        BinaryParts parts = binary_parts(operand(lowering, c, "self", index, compute));
        return (result == 0 ? parts.mantissa : parts.exponent).value();
      });
    },
    // d mantissa = dx / 2^exponent
    .vjp = [](Builder& b, const Call& c, Grads g) -> Gradients {
      Tensor exponent{b, c.result(1)};
      if (!g[0]) return {};
      return {{"self", g[0] / to(call(b, "aten.exp2", {exponent}), g[0].dtype())}};
    },
    .samples = kSamples,
    .pointwise = true};

const OpDef kAngle{.schema = "aten::angle(Tensor self) -> Tensor",
                   .types = [](const Call& c) -> Types {
                     Types types = unary_float(c);
                     types[0].dtype = part_type(types[0].dtype);
                     return types;
                   },
                   .lower = unary<[](Element x) {
                     Element angle = choose(x < 0, x.number(std::numbers::pi), x.number(0));
                     return choose(not_equal(x, x), x, angle);
                   }>,
                   .vjp = zero_gradient,
                   .samples = kSamples,
                   .sample_dtypes = DTypes::all,
                   .pointwise = true,
                   .out = true,
                   .complex = {complex_angle}};

/// round(x 10^decimals) / 10^decimals; negative decimals divide first.
Element round_decimals(Element x, int64_t decimals) {
  double power = std::pow(10.0, std::abs(static_cast<double>(decimals)));
  if (decimals == 0) return x.apply(Opcode::round);
  if (decimals < 0) return (x / power).apply(Opcode::round) * power;
  return (x * power).apply(Opcode::round) / power;
}
OpDef round_to(std::string_view schema, bool inplace, std::string_view out_as) {
  return {.schema = schema,
          .types =
              [](const Call& c) {
                bool whole = !is_float(c.type("self").dtype) && c.constant("decimals") == 0;
                return whole ? unary_number(c) : float_same(c);
              },
          .lower =
              [](Lowering& lowering, const Call& c) {
                DType compute = compute_type(c.result()->type.dtype);
                int64_t decimals = c.constant("decimals");
                return map_definition(
                    c, [&lowering, c, compute, decimals](size_t, const Index& index) {
                      Element x = operand(lowering, c, "self", index, compute);
                      return round_decimals(x, decimals).value();
                    });
              },
          .vjp = zero_gradient,
          .samples = {"$[3, 4], decimals=0", "$[5], decimals=2", "$[33]:special, decimals=-1",
                      "$[0], decimals=1", "$[4, 3]{1, 4}, decimals=3"},
          .sample_dtypes = DTypes::numbers,
          .pointwise = true,
          .inplace = inplace,
          .out = true,
          .out_as = out_as};
}
const OpDef kRounds[] = {
    round_to("aten::round.decimals(Tensor self, *, int decimals) -> Tensor", true, "decimals_out"),
    round_to("aten::special_round(Tensor self, *, int decimals=0) -> Tensor", false, ""),
};

}  // namespace

Family parts_family() {
  static const std::vector<const OpDef*> kOps = [] {
    std::vector<const OpDef*> ops{&kFrac, &kSgn, &kSquare, &kNanToNum, &kFrexp, &kAngle};
    for (std::span<const OpDef> table :
         {std::span<const OpDef>(kTests), std::span<const OpDef>(kSame),
          std::span<const OpDef>(kScaled), std::span<const OpDef>(kRounds)})
      for (const OpDef& def : table) ops.push_back(&def);
    return ops;
  }();
  return kOps;
}

}  // namespace tandem::ops
