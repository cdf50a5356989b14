// ATen's distributions, made from uniform and normal numbers and integers of the primitives in
// random.cc. The in-place forms overwrite all of self, so that nothing depends on it. No gradient
// flows, to mean and std neither, as in eager. An op with a reason for that would be taken apart
// after streams are given out, so they have none.
#include <fmt/format.h>

#include <cfloat>
#include <cmath>
#include <numbers>

#include "ops/asserts.h"
#include "ops/elements.h"
#include "ops/families.h"

namespace tandem::ops {
namespace {

Tensor uniform(Builder& b, const Sizes& sizes) { return call(b, "tandem.random_uniform", {sizes}); }
Tensor normal(Builder& b, const Sizes& sizes) { return call(b, "tandem.random_normal", {sizes}); }
/// In (0, 1].
Tensor positive_uniform(Builder& b, const Sizes& sizes) { return 1.0 - uniform(b, sizes); }
Tensor integers(Builder& b, const Sizes& sizes, Expr low, Expr high) {
  return call(b, "tandem.random_integer", {sizes, low, high});
}
Tensor as_result(const Call& c, Tensor drawn, size_t i = 0) {
  return to(drawn, c.result(i)->type.dtype);
}
const Sizes& result_sizes(const Call& c) { return c.result()->type.sizes; }

void need(const Call& c, bool holds, std::string_view name, std::string_view rule) {
  if (!holds)
    c.fail(fmt::format("{} must be {}, not {}", name, rule, ir::to_string(c.floating(name))));
}

// --- distributions
// --------------------------------------------------------------------------------

/// The draw, with eager's history of zeros for each tensor of floats that the call has.
template <auto Draw>
Tensors with_zeros(Builder& b, const Call& c) {
  Tensor drawn = called<Draw>(b, c)[0];
  for (const ir::Param& param : c.op().schema.params) {
    ir::Value* const* given = std::get_if<ir::Value*>(&c.arg(param.name));
    if (given == nullptr || !is_float((*given)->type.dtype) || !is_float(drawn.dtype())) continue;
    drawn = call(b, "tandem.zero_gradient", {Tensor{b, *given}, drawn});
  }
  return {drawn};
}
Types uniform_types(const Call& c) {
  need_float(c, "self");
  need(c, c.floating("from") <= c.floating("to"), "from", "at most `to`");
  return unary_same(c);
}
Types normal_types(const Call& c) {
  need_float(c, "self");
  need(c, c.floating("std") >= 0, "std", "at least 0");
  return unary_same(c);
}
Tensors draw_normal(Builder& b, const Call& c) {
  Tensor drawn = normal(b, c.type("self").sizes) * c.floating("std") + c.floating("mean");
  return {to(drawn, c.type("self").dtype)};
}
const OpDef kUniform{
    .schema =
        "aten::uniform(Tensor self, float from=0., float to=1., *, Generator? "
        "generator=None) -> Tensor",
    .types = uniform_types,
    .decompose = with_zeros<[](Builder& b, const Call& c) -> Tensors {
      double from = c.floating("from");
      return {as_result(c, uniform(b, result_sizes(c)) * (c.floating("to") - from) + from)};
    }>,
    .samples = {"$[3, 4]", "$[3, 4], -2.0, 5.0", "$[0]", "$[3], 2.0, 1.0", "i64[3]"},
    .inplace = true,
    .out = true};
const OpDef kNormalFunctional{
    .schema =
        "aten::normal_functional(Tensor self, float mean=0., float std=1., *, Generator? "
        "generator=None) -> Tensor",
    .types = normal_types,
    .decompose = with_zeros<draw_normal>,
    .samples = {"$[3, 4]", "$[3, 4], 2.0, 0.5", "$[3], 0.0, -1.0"},
    .inplace = true,
    .inplace_schema =
        "aten::normal_(Tensor(a!) self, float mean=0., float std=1., *, Generator? "
        "generator=None) -> Tensor(a!)"};
const OpDef kExponential{
    .schema =
        "aten::exponential(Tensor self, float lambd=1., *, Generator? generator=None) -> Tensor",
    .types =
        [](const Call& c) {
          need_float(c, "self");
          need(c, c.floating("lambd") > 0, "lambd", "positive");
          return unary_same(c);
        },
    .decompose = with_zeros<[](Builder& b, const Call& c) -> Tensors {
      Tensor drawn = log(positive_uniform(b, result_sizes(c)));
      return {as_result(c, drawn * (-1 / c.floating("lambd")))};
    }>,
    .samples = {"$[3, 4]", "$[3, 4], 2.5", "$[3], 0.0"},
    .inplace = true,
    .out = true};
const OpDef kLogNormal{
    .schema =
        "aten::log_normal(Tensor self, float mean=1., float std=2., *, Generator? "
        "generator=None) -> Tensor",
    .types =
        [](const Call& c) {
          need_float(c, "self");
          need(c, c.floating("std") > 0, "std", "positive");
          return unary_same(c);
        },
    .decompose = with_zeros<[](Builder& b, const Call& c) -> Tensors {
      return {
          as_result(c, exp(normal(b, result_sizes(c)) * c.floating("std") + c.floating("mean")))};
    }>,
    .samples = {"$[3, 4]", "$[3, 4], 0.0, 0.5", "$[3], 0.0, 0.0"},
    .inplace = true,
    .out = true};
// The first success: ceil(log u / log(1 - p)), at least 1.
const OpDef kGeometric{
    .schema = "aten::geometric(Tensor self, float p, *, Generator? generator=None) -> Tensor",
    .types =
        [](const Call& c) {
          need(c, c.floating("p") > 0 && c.floating("p") < 1, "p", "in (0, 1)");
          need_number(c, "self");
          return unary_same(c);
        },
    .decompose = with_zeros<[](Builder& b, const Call& c) -> Tensors {
      Tensor trials = log(positive_uniform(b, result_sizes(c))) / std::log1p(-c.floating("p"));
      Tensor whole = call(b, "aten.ceil", {trials});
      return {as_result(c, call(b, "aten.clamp", {whole, 1}))};
    }>,
    .samples = {"$[3, 4], 0.25", "$[3], 0.0", "$[3], 1.0"},
    .sample_dtypes = DTypes::numbers,
    .inplace = true,
    .out = true};
// median + sigma tan(pi (u - 1/2))
const OpDef kCauchy{.schema =
                        "aten::cauchy(Tensor self, float median=0., float sigma=1., *, Generator? "
                        "generator=None) -> Tensor",
                    .types =
                        [](const Call& c) {
                          need_float(c, "self");
                          need(c, c.floating("sigma") > 0, "sigma", "positive");
                          return unary_same(c);
                        },
                    .decompose = with_zeros<[](Builder& b, const Call& c) -> Tensors {
                      Tensor angle = (uniform(b, result_sizes(c)) - 0.5) * std::numbers::pi;
                      Tensor tangent = sin(angle) / cos(angle);
                      return {as_result(c, tangent * c.floating("sigma") + c.floating("median"))};
                    }>,
                    .samples = {"$[3, 4]", "$[3, 4], 2.0, 0.5", "$[3], 0.0, 0.0"},
                    .inplace = true,
                    .out = true};

// --- normal of tensors
// ----------------------------------------------------------------------------

/// `mean` and `std` are numbers or tensors, which broadcast.
Types normal_of_types(const Call& c) {
  Sizes sizes;
  DType dtype = DType::f32;
  for (std::string_view name : {"std", "mean"}) {
    if (!std::holds_alternative<ir::Value*>(c.arg(name))) continue;
    if (name == "mean" || !std::holds_alternative<ir::Value*>(c.arg("mean"))) need_float(c, name);
    sizes = broadcast(c, c.type(name).sizes, sizes);
    dtype = c.type(name).dtype;
  }
  if (!std::holds_alternative<ir::Value*>(c.arg("std")))
    need(c, c.floating("std") >= 0, "std", "at least 0");
  return {ir::Type::tensor(dtype, sizes)};
}
Tensors normal_of(Builder& b, const Call& c) {
  Tensor drawn = as_result(c, normal(b, result_sizes(c)));
  auto tensor = [&](std::string_view name) {
    return call(b, "aten.detach", {Tensor{b, c.value(name)}});
  };
  const auto deviations = [&] {
    return checked_range(tensor("std"), 0, HUGE_VAL,
                         "[aten::normal] an element of std is negative or NaN");
  };
  bool std_is_tensor = std::holds_alternative<ir::Value*>(c.arg("std"));
  bool mean_is_tensor = std::holds_alternative<ir::Value*>(c.arg("mean"));
  drawn = std_is_tensor ? drawn * deviations() : drawn * c.floating("std");
  return {as_result(c, mean_is_tensor ? drawn + tensor("mean") : drawn + c.floating("mean"))};
}
#define TANDEM_NORMAL(Name, text, ...)                                          \
  const OpDef Name {                                                            \
    .schema = "aten::normal." text ", *, Generator? generator=None) -> Tensor", \
    .types = normal_of_types, .decompose = with_zeros<normal_of>, .samples = {  \
      __VA_ARGS__                                                               \
    }                                                                           \
  }
TANDEM_NORMAL(kNormalTensorFloat, "Tensor_float(Tensor mean, float std=1.", "$[3, 4]",
              "$[3, 4], 0.0", "$[3], -1.0");
TANDEM_NORMAL(kNormalFloatTensor, "float_Tensor(float mean, Tensor std", "2.0, $[3, 4]:positive");
TANDEM_NORMAL(kNormalTensors, "Tensor_Tensor(Tensor mean, Tensor std", "$[3, 4], $[3, 4]:positive",
              "$[3, 4], $[4]:positive");
#undef TANDEM_NORMAL

#define TANDEM_FACTORY_OPTIONS \
  "ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None"
const OpDef kNormalFloats{
    .schema =
        "aten::normal.float_float(float mean, float std, SymInt[] size, *, Generator? "
        "generator=None, " TANDEM_FACTORY_OPTIONS ") -> Tensor",
    .types = [](const Call& c) -> Types {
      need(c, c.floating("std") >= 0, "std", "at least 0");
      DType dtype = c.dtype("dtype", DType::f32);
      if (!is_float(dtype)) c.fail("random numbers need a float dtype");
      return {ir::Type::tensor(dtype, c.ints("size"))};
    },
    .decompose = [](Builder& b, const Call& c) -> Tensors {
      Tensor drawn = normal(b, result_sizes(c)) * c.floating("std") + c.floating("mean");
      return {as_result(c, drawn)};
    },
    .samples = {"2.0, 0.5, [3, 4]", "0.0, 1.0, [0], dtype=f64", "0.0, -1.0, [2]"}};

// --- Bernoulli
// ------------------------------------------------------------------------------------

/// 1 where a uniform number is below p.
Tensors draw_bernoulli(Builder& b, const Call& c) {
  const ir::Type& self = c.type("self");
  Tensor drawn = uniform(b, self.sizes);
  const bool is_self = c.op().schema.find("p") < 0;
  if (is_self || std::holds_alternative<ir::Value*>(c.arg("p"))) {
    const Tensor p{b, c.value(is_self ? "self" : "p")};
    const char* rule = "[aten::bernoulli] a probability is not in [0, 1]";
    return {to(compare("lt", drawn, checked_range(p, 0, 1, rule)), self.dtype)};
  }
  return {to(compare("lt", drawn, c.floating("p")), self.dtype)};
}
Types bernoulli_types(const Call& c) {
  if (c.op().schema.find("p") < 0) {
    need_float(c, "self");
  } else if (std::holds_alternative<ir::Value*>(c.arg("p"))) {
    need_float(c, "p");
    if (broadcast(c, c.type("self").sizes, c.type("p").sizes) != c.type("self").sizes)
      c.fail(fmt::format("{} does not broadcast to {}", c.describe("p"), c.describe("self")));
  } else {
    need(c, c.floating("p") >= 0 && c.floating("p") <= 1, "p", "in [0, 1]");
  }
  return unary_same(c);
}
const OpDef kBernoulli{
    .schema = "aten::bernoulli(Tensor self, *, Generator? generator=None) -> Tensor",
    .types = bernoulli_types,
    .decompose = with_zeros<draw_bernoulli>,
    .samples = {"$[30, 4]:unit", "$[4]:unit", "$[0]", "i64[3]:index(2)"},
    .out = true};
const OpDef kBernoulliP{
    .schema = "aten::bernoulli.p(Tensor self, float p, *, Generator? generator=None) -> Tensor",
    .types = bernoulli_types,
    .decompose = with_zeros<draw_bernoulli>,
    .samples = {"$[30, 4], 0.25", "$[3, 4], 0.0", "$[3, 4], 1.0", "$[3], 1.5"},
    .sample_dtypes = DTypes::all,
    .inplace = true,
    .inplace_schema =
        "aten::bernoulli_.float(Tensor(a!) self, float p=0.5, *, Generator? generator=None) "
        "-> Tensor(a!)"};
const OpDef kBernoulliTensor{
    .schema =
        "aten::bernoulli.Tensor(Tensor self, Tensor p, *, Generator? generator=None) -> "
        "Tensor",
    .types = bernoulli_types,
    .decompose = with_zeros<draw_bernoulli>,
    .samples = {"$[30, 4], f32[30, 4]:unit", "$[30, 4], f32[4]:unit"},
    .inplace = true};
// --- integers
// -------------------------------------------------------------------------------------

/// Largest integer that a random_ without bounds gives: floats hold all integers up to it.
int64_t largest(DType dtype) {
  switch (dtype) {
    case DType::c128:
    case DType::f64: return int64_t{1} << 53;
    case DType::c64:
    case DType::f32: return int64_t{1} << 24;
    case DType::bf16: return int64_t{1} << 8;
    case DType::f16: return int64_t{1} << 11;
    case DType::f8e4m3fn: return int64_t{1} << 4;
    case DType::f8e5m2: return int64_t{1} << 3;
    case DType::boolean: return 1;
    case DType::u8: return UINT8_MAX;
    case DType::i8: return INT8_MAX;
    case DType::i16: return INT16_MAX;
    case DType::i32: return INT32_MAX;
    case DType::i64: return INT64_MAX - 1;
  }
  return 0;
}
/// Integers that are drawn must be numbers of their dtype; floats are rounded.
void check_bounds(const Call& c, DType dtype, Expr low, Expr high) {
  if (sym::known_le(high, low))
    c.fail(fmt::format("low {} must be below high {}", sym::to_string(low), sym::to_string(high)));
  if (is_float(dtype) || dtype == DType::i64) return;
  int64_t least = is_signed(dtype) ? -largest(dtype) - 1 : 0;
  if (sym::known_lt(low, least) || sym::known_lt(Expr(largest(dtype)) + 1, high))
    c.fail(fmt::format("[{}, {}) is out of bounds for {}", sym::to_string(low),
                       sym::to_string(high), name_of(dtype)));
}
Expr lowest(const Call& c) { return c.op().schema.find("low") < 0 ? Expr(0) : c.integer("low"); }
Types integer_types(const Call& c, const Sizes& sizes, DType otherwise) {
  DType dtype = c.dtype("dtype", otherwise);
  check_bounds(c, dtype, lowest(c), c.integer("high"));
  return {ir::Type::tensor(dtype, sizes)};
}
Types randint_types(const Call& c) { return integer_types(c, c.ints("size"), DType::i64); }
Types randint_like_types(const Call& c) {
  return integer_types(c, c.type("self").sizes, c.type("self").dtype);
}
Tensors randint(Builder& b, const Call& c) {
  return {as_result(c, integers(b, result_sizes(c), lowest(c), c.integer("high")))};
}
#define TANDEM_INT_OPTIONS                                                                       \
  "*, ScalarType? dtype=4, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> " \
  "Tensor"
const OpDef kRandint{.schema = "aten::randint(SymInt high, SymInt[] size, " TANDEM_INT_OPTIONS,
                     .types = randint_types,
                     .decompose = randint,
                     .samples = {"7, [3, 4]", "1, [5]", "7, [0]", "5, [9], dtype=f32", "0, [2]"}};
const OpDef kRandintLow{
    .schema = "aten::randint.low(SymInt low, SymInt high, SymInt[] size, " TANDEM_INT_OPTIONS,
    .types = randint_types,
    .decompose = randint,
    .samples = {"-3, 7, [3, 4]", "5, 6, [5], dtype=i32", "3, 3, [2]",
                "-4000000000, 5000000000, [7]"}};
const OpDef kRandintLike{
    .schema = "aten::randint_like(Tensor self, SymInt high, *, " TANDEM_FACTORY_OPTIONS
              ", MemoryFormat? memory_format=None) -> Tensor",
    .types = randint_like_types,
    .decompose = randint,
    .samples = {"$[3, 4], 7", "$[3, 4], 1", "$[2], 5, dtype=i64"},
    .sample_dtypes = DTypes::numbers};
const OpDef kRandintLikeLow{.schema =
                                "aten::randint_like.low_dtype(Tensor self, SymInt low, SymInt "
                                "high, *, " TANDEM_FACTORY_OPTIONS
                                ", MemoryFormat? memory_format=None) -> Tensor",
                            .types = randint_like_types,
                            .decompose = randint,
                            .samples = {"$[3, 4], 2, 7", "$[3, 4], 4, 5"},
                            .sample_dtypes = DTypes::numbers};

struct Bounds {
  Expr low, high;
};
Bounds bounds_of(const Call& c) {
  Expr low = c.op().schema.find("from") < 0 ? Expr(0) : c.integer("from");
  bool given = c.op().schema.find("to") >= 0 && c.has("to");
  Expr high = given ? c.integer("to") : Expr(largest(c.type("self").dtype)) + 1;
  check_bounds(c, c.type("self").dtype, low, high);
  return {low, high};
}
Types random_types(const Call& c) {
  bounds_of(c);
  return unary_same(c);
}
Tensors random_between(Builder& b, const Call& c) {
  Bounds bounds = bounds_of(c);
  return {as_result(c, integers(b, result_sizes(c), bounds.low, bounds.high))};
}
const OpDef kRandomAny{
    .schema = "aten::random(Tensor self, *, Generator? generator=None) -> Tensor",
    .types = random_types,
    .decompose = with_zeros<random_between>,
    .samples = {"$[30, 4]", "$[0]"},
    .sample_dtypes = DTypes::all,
    .inplace = true,
    .out = true};
const OpDef kRandomTo{
    .schema = "aten::random.to(Tensor self, int to, *, Generator? generator=None) -> Tensor",
    .types = random_types,
    .decompose = with_zeros<random_between>,
    .samples = {"$[3, 4], 7", "$[3], 0"},
    .sample_dtypes = DTypes::numbers,
    .inplace = true};
const OpDef kRandomFrom{
    .schema =
        "aten::random.from(Tensor self, int from, int? to, *, Generator? generator=None) -> "
        "Tensor",
    .types = random_types,
    .decompose = with_zeros<random_between>,
    .samples = {"$[3, 4], 2, 7", "$[3], 4, none", "$[3], 4, 4"},
    .sample_dtypes = DTypes::numbers,
    .inplace = true};

// --- permutations and draws
// -----------------------------------------------------------------------

/// The order of random keys of 31 bits: a pair of equal ones, which keeps its order, is one in
/// 2^31.
const OpDef kRandperm{.schema = "aten::randperm(SymInt n, " TANDEM_INT_OPTIONS,
                      .types = [](const Call& c) -> Types {
                        if (c.integer("n").range().hi < 0)
                          c.fail(c.describe("n") + " must not be negative");
                        return {ir::Type::tensor(c.dtype("dtype", DType::i64), {c.integer("n")})};
                      },
                      .decompose = [](Builder& b, const Call& c) -> Tensors {
                        Tensor keys = to(integers(b, result_sizes(c), 0, INT32_MAX), DType::i32);
                        return {as_result(c, call(b, "aten.argsort", {keys, 0}))};
                      },
                      .samples = {"9", "0", "1", "40, dtype=i32", "-1"}};

Tensor finite_weights(Tensor x) {
  const double most = x.dtype() == DType::f64 ? DBL_MAX : FLT_MAX;
  return checked_range(x, 0, most, "[aten::multinomial] a weight is negative, infinite or NaN");
}
/// A row's sum, or largest weight.
Tensor positive(Tensor x) {
  const double least = x.dtype() == DType::f64 ? DBL_TRUE_MIN : FLT_TRUE_MIN;
  return checked_range(x, least, HUGE_VAL, "[aten::multinomial] no weight of a row is above 0");
}
Types multinomial_types(const Call& c) {
  const ir::Type& self = c.type("self");
  need_float(c, "self");
  need_rank(c, "self", 1, 2);
  Expr samples = c.integer("num_samples");
  if (samples.range().hi <= 0) c.fail(c.describe("num_samples") + " must be positive");
  if (!c.boolean("replacement") && sym::known_lt(self.sizes.back(), samples))
    c.fail("more samples than categories, without replacement: " + c.describe("self"));
  Sizes sizes = self.sizes;
  sizes.back() = samples;
  return {ir::Type::tensor(DType::i64, sizes)};
}
// With replacement: the inverse of the running sum. Without: the category whose exponential time,
// at a rate of its weight, comes first; then the next.
const OpDef kMultinomial{
    .schema =
        "aten::multinomial(Tensor self, SymInt num_samples, bool replacement=False, *, "
        "Generator? generator=None) -> Tensor",
    .types = multinomial_types,
    .decompose = [](Builder& b, const Call& c) -> Tensors {
      Tensor weights = to(Tensor{b, c.value("self")}, compute_type(c.type("self").dtype));
      weights = finite_weights(weights);
      if (!c.boolean("replacement")) {
        const Tensor most = positive(call(b, "aten.amax", {weights, ir::Ints{-1}, true}));
        Tensor times = -log(positive_uniform(b, weights.sizes())) + 1e-30;
        return {call_many(b, "aten.topk", {weights / most / times, c.arg("num_samples")})[1]};
      }
      Tensor sums = call(b, "aten.cumsum", {weights, -1});
      Tensor total = slice(sums, -1, sums.size(-1) - 1, sums.size(-1));
      Tensor drawn = to(uniform(b, result_sizes(c)), weights.dtype()) * positive(total);
      Tensor place = call(b, "aten.searchsorted.Tensor", {sums, drawn, false, true});
      return {call(b, "aten.clamp", {place, ir::Arg(ir::None{}), sums.size(-1) - 1})};
    },
    .samples = {"$[5]:positive, 3", "$[3, 5]:positive, 5", "$[3, 5]:positive, 9, true",
                "$[5]:positive, 6", "$[5]:positive, 0", "$[1]:positive, 4, true"},
    .out = true};
#undef TANDEM_INT_OPTIONS
#undef TANDEM_FACTORY_OPTIONS

const OpDef* const kOps[] = {
    &kUniform,     &kNormalFunctional,  &kExponential,       &kLogNormal,     &kGeometric,
    &kCauchy,      &kNormalTensorFloat, &kNormalFloatTensor, &kNormalTensors, &kNormalFloats,
    &kBernoulli,   &kBernoulliP,        &kBernoulliTensor,   &kRandint,       &kRandintLow,
    &kRandintLike, &kRandintLikeLow,    &kRandomAny,         &kRandomTo,      &kRandomFrom,
    &kRandperm,    &kMultinomial};

}  // namespace

Family random_ops_family() { return kOps; }

}  // namespace tandem::ops
