// Fake quantization whose parameters follow a moving average of what it sees, as training uses it:
// in one op an observer of the least and the greatest element, the scale and zero point of their
// averages, and the quantization by these. For each tensor, or for each row (channel of ch_axis).
//   low  = least element where low was infinite (nothing seen), else low + c (least - low)
//   s    = (max(high, 0) - min(low, 0)) / (quant_max - quant_min)
//   z    = quant_min - min(low, 0) / s or quant_max - max(high, 0) / s, whichever is exact to more
//          digits, rounded
// Symmetric ranges (low < 0 < high) are widened to -n - 1 .. n times one scale, with z in the
// middle. A scale below 6.1e-5 becomes that. The averages are f32, parameters are computed in f64,
// as PyTorch does. observer_on and fake_quant_on are data: without the first the averages stay,
// without the second the parameters, and the result is self.
#include <fmt/format.h>

#include <cmath>

#include "ops/families.h"
#include "ops/quant/ranges.h"

namespace tandem::ops {
namespace {

Tensor named(Builder& b, const Call& c, std::string_view name) { return {b, c.value(name)}; }
Tensor least(Tensor a, Tensor b) { return call(a.builder(), "aten.minimum", {a, b}); }
Tensor greatest(Tensor a, Tensor b) { return call(a.builder(), "aten.maximum", {a, b}); }
Tensor either(Tensor a, Tensor b) { return call(a.builder(), "aten.logical_or", {a, b}); }
Tensor both(Tensor a, Tensor b) { return call(a.builder(), "aten.logical_and", {a, b}); }
Tensor is_infinite(Tensor x) { return call(x.builder(), "aten.isinf", {x}); }
/// A flag of one element, without dimensions.
Tensor flag(Builder& b, const Call& c, std::string_view name) {
  return reshape(compare("ne", named(b, c, name), 0), {});
}

// --- averages
// ------------------------------------------------------------------------------------

/// Least or greatest element of self, or of each row, with the sizes of the average.
Tensor extremum(Tensor self, const Call& c, std::string_view op, std::string_view average) {
  std::vector<int64_t> dims;
  bool by_row = c.boolean("per_row_fake_quant");
  for (int64_t dim = 0; dim < self.rank(); ++dim)
    if (!by_row || dim != c.constant("ch_axis")) dims.push_back(dim);
  Tensor found = dims.empty() ? self : call(self.builder(), op, {self, dims, false});
  return reshape(found, c.type(average).sizes);
}

Tensor averaged(Builder& b, const Call& c, std::string_view name, Tensor seen) {
  Tensor old = named(b, c, name);
  Tensor moved = old + (seen - old) * c.floating("averaging_const");
  Tensor next = where(is_infinite(old), seen, moved);
  return where(flag(b, c, "observer_on"), next, old);
}

// --- parameters
// ----------------------------------------------------------------------------------

struct Ends {
  Tensor low, high;  // f32
};
struct Bounds {
  double least, greatest;
  double range() const { return greatest - least; }
};
Bounds bounds_of(const Call& c) {
  return {static_cast<double>(c.constant("quant_min")),
          static_cast<double>(c.constant("quant_max"))};
}

Tensor wide(Tensor x) { return to(x, DType::f64); }
Tensor narrow(Tensor x) { return to(x, DType::f32); }

/// The ends of -n - 1 .. n at the scale that holds both, where `applies`.
Ends symmetric(Ends ends, Bounds bounds, Tensor applies) {
  double n = std::floor(bounds.range() / 2);
  Tensor scale = greatest(abs(wide(ends.low) / (-n - 1)), abs(wide(ends.high) / n));
  return {where(applies, narrow(scale * (-n - 1)), ends.low),
          where(applies, narrow(scale * n), ends.high)};
}

/// An end that is 0 stays; the other one becomes what the least scale reaches, or both grow alike.
Ends at_least_scale(Ends ends, Bounds bounds, Tensor scale, double least_scale, Tensor is_small) {
  Tensor growth = narrow(least_scale * reciprocal(scale));
  Tensor no_low = compare("eq", ends.low, 0);
  Tensor no_high = compare("eq", ends.high, 0);
  double reach = static_cast<double>(static_cast<float>(least_scale * bounds.range()));
  Tensor low = where(no_low, ends.low, where(no_high, -reach, ends.low * growth));
  Tensor high = where(no_low, reach, where(no_high, ends.high, ends.high * growth));
  return {where(is_small, low, ends.low), where(is_small, high, ends.high)};
}

/// Of the two ends the one beside which less is lost.
Tensor zero_point(Ends ends, Bounds bounds, Tensor scale) {
  Tensor low = wide(ends.low) / scale;
  Tensor high = wide(ends.high) / scale;
  Tensor low_error = std::abs(bounds.least) - abs(low);
  Tensor high_error = std::abs(bounds.greatest) - abs(high);
  Tensor is_low = call(low.builder(), "aten.lt.Tensor", {low_error, high_error});
  return where(is_low, bounds.least - low, bounds.greatest - high);
}

struct Chosen {
  Tensor scale, zero_point;  // f64
};
Chosen chosen(Builder& b, const Call& c, Tensor low, Tensor high) {
  constexpr double kLeastScale = 6.1e-5F;
  Bounds bounds = bounds_of(c);
  Ends ends{least(low, zeros_like(low)), greatest(high, zeros_like(high))};
  Tensor spans = both(compare("lt", low, 0), compare("gt", high, 0));
  bool is_symmetric = c.boolean("symmetric_quant");
  if (is_symmetric) ends = symmetric(ends, bounds, spans);
  Tensor scale = (wide(ends.high) - wide(ends.low)) / bounds.range();
  Tensor has_no_inverse =
      either(compare("eq", narrow(scale), 0), is_infinite(reciprocal(narrow(scale))));
  scale = where(has_no_inverse, 0.1, scale);
  Tensor is_small = compare("lt", scale, kLeastScale);
  ends = at_least_scale(ends, bounds, scale, kLeastScale, is_small);
  scale = where(is_small, kLeastScale, scale);
  Tensor zero = zero_point(ends, bounds, scale);
  if (is_symmetric) zero = where(spans, (bounds.least + bounds.greatest) / 2, zero);
  return {scale, call(b, "aten.round", {clamp(zero, bounds.least, bounds.greatest)})};
}

// --- the op
// --------------------------------------------------------------------------------------

/// Output and mask.
Tensors faked(Builder& b, const Call& c, Tensor scale, Tensor zero) {
  Tensor self = named(b, c, "self");
  if (!c.boolean("per_row_fake_quant"))
    return call_many(
        b, "aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams",
        {self, scale, zero, named(b, c, "fake_quant_on"), c.arg("quant_min"), c.arg("quant_max")});
  Tensors parts =
      call_many(b, "aten.fake_quantize_per_channel_affine_cachemask",
                {self, scale, zero, c.arg("ch_axis"), c.arg("quant_min"), c.arg("quant_max")});
  Tensor is_on = flag(b, c, "fake_quant_on");
  return {where(is_on, parts[0], self), either(parts[1], logical_not(is_on))};
}

/// Output, mask, averages, scale and zero point. What is observed has no history.
Tensors observe_and_fake(Builder& b, const Call& c) {
  Tensor seen = call(b, "aten.detach", {named(b, c, "self")});
  Tensor low = averaged(b, c, "running_min", extremum(seen, c, "aten.amin", "running_min"));
  Tensor high = averaged(b, c, "running_max", extremum(seen, c, "aten.amax", "running_max"));
  Chosen parameters = chosen(b, c, low, high);
  Tensor is_on = flag(b, c, "fake_quant_on");
  Tensor scale = named(b, c, "scale");
  Tensor zero = named(b, c, "zero_point");
  scale = where(is_on, to(parameters.scale, scale.dtype()), scale);
  zero = where(is_on, to(parameters.zero_point, zero.dtype()), zero);
  Tensors results = faked(b, c, scale, zero);
  results.insert(results.end(), {low, high, scale, zero});
  return results;
}

void check(const Call& c) {
  const ir::Type& self = c.type("self");
  if (self.dtype != DType::f32) c.fail(c.describe("self") + " must have dtype f32");
  if (c.constant("quant_min") > c.constant("quant_max"))
    c.fail(fmt::format("quant_min {} is above quant_max {}", c.constant("quant_min"),
                       c.constant("quant_max")));
  for (const Expr& size : self.sizes)
    if (size == Expr(0)) c.fail(c.describe("self") + " has no elements");
  for (std::string_view param : {"observer_on", "fake_quant_on"}) need_one_element(c, param);
  bool by_row = c.boolean("per_row_fake_quant");
  int64_t axis = c.constant("ch_axis");
  if (by_row && (axis < 0 || axis >= self.rank()))
    c.fail(fmt::format("ch_axis {} is not a dimension of {}", axis, c.describe("self")));
  for (std::string_view param : {"running_min", "running_max", "scale", "zero_point"}) {
    if (by_row) {
      need_rank(c, param, 1, 1);
      need_for_each(c, param, self.sizes[static_cast<size_t>(axis)], "rows");
    } else {
      need_one_element(c, param);
    }
    DType wanted = param == "zero_point" ? DType::i32 : DType::f32;
    if (c.type(param).dtype != wanted)
      c.fail(fmt::format("{} must have dtype {}", c.describe(param), name_of(wanted)));
  }
}

Types all_types(const Call& c) {
  check(c);
  const ir::Type& self = c.type("self");
  Types types{ir::Type::tensor(self.dtype, self.sizes),
              ir::Type::tensor(DType::boolean, self.sizes)};
  for (std::string_view param : {"running_min", "running_max", "scale", "zero_point"})
    types.push_back(ir::Type::tensor(c.type(param).dtype, c.type(param).sizes));
  return types;
}

// The samples' averages are below and above 0; `constant(inf)` is one that nothing was seen of.
const OpDef kFunctional{
    .schema =
        "aten::_fused_moving_avg_obs_fq_helper_functional(Tensor self, Tensor observer_on, Tensor "
        "fake_quant_on, Tensor running_min, Tensor running_max, Tensor scale, Tensor zero_point, "
        "float averaging_const, int quant_min, int quant_max, int ch_axis, bool "
        "per_row_fake_quant=False, bool symmetric_quant=False) -> (Tensor output, Tensor mask, "
        "Tensor running_min_out, Tensor running_max_out, Tensor scale_out, Tensor "
        "zero_point_out)",
    .types = all_types,
    .decompose = observe_and_fake,
    .samples = {
        "f32[3, 64], i64[1]:constant(1), i64[1]:constant(1), f32[1]:constant(-1), "
        "f32[1]:constant(2), f32[1]:unit, i32[1], 0.01, -128, 127, 0",
        "f32[3, 64], i64[1]:constant(1), i64[1]:constant(1), f32[1]:constant(inf), "
        "f32[1]:constant(-inf), f32[1]:unit, i32[1], 0.01, 0, 255, 0, false, true",
        "f32[3, 64], i64[1]:constant(0), i64[1]:constant(1), f32[1]:constant(-1), "
        "f32[1]:constant(2), f32[1]:unit, i32[1], 0.01, -127, 127, 0, false, true",
        "f32[3, 64], i64[1]:constant(1), i64[1]:constant(0), f32[1]:constant(-1), "
        "f32[1]:constant(2), f32[1]:unit, i32[1], 0.01, -128, 127, 0",
        "f32[3, 64]:constant(0), i64[1]:constant(1), i64[1]:constant(1), f32[1]:constant(inf), "
        "f32[1]:constant(-inf), f32[1]:unit, i32[1], 0.01, -128, 127, 0",
        "f32[3, 64]:constant(1e-6), i64[1]:constant(1), i64[1]:constant(1), "
        "f32[1]:constant(-1e-6), f32[1]:constant(1e-5), f32[1]:unit, i32[1], 0.5, -128, 127, 0",
        "f32[3, 64]:positive, i64[1]:constant(1), i64[1]:constant(1), f32[1]:constant(1), "
        "f32[1]:constant(2), f32[1]:unit, i32[1], 0.01, 0, 127, 0, false, true",
        "f32[3, 64], i64[1]:constant(1), i64[1]:constant(1), f32[3]:constant(-1), "
        "f32[3]:constant(2), f32[3]:unit, i32[3], 0.01, -128, 127, 0, true, true",
        "f32[3, 4, 5], i64[1]:constant(1), i64[1]:constant(1), f32[4]:constant(inf), "
        "f32[4]:constant(-inf), f32[4]:unit, i32[4], 0.01, -8, 7, 1, true, false",
        "f32[3, 64], i64[1]:constant(1), i64[1]:constant(0), f32[3]:constant(-1), "
        "f32[3]:constant(2), f32[3]:unit, i32[3], 0.01, -128, 127, 0, true, true",
        "f32[3, 64], i64[1], i64[1]:constant(1), f32[1], f32[1], f32[1], i32[1], 0.01, 5, 4, 0"}};

const OpDef kHelper{
    .schema =
        "aten::_fused_moving_avg_obs_fq_helper(Tensor self, Tensor observer_on, Tensor "
        "fake_quant_on, Tensor(a!) running_min, Tensor(b!) running_max, Tensor(c!) scale, "
        "Tensor(d!) zero_point, float averaging_const, int quant_min, int quant_max, int ch_axis, "
        "bool per_row_fake_quant=False, bool symmetric_quant=False) -> (Tensor output, Tensor "
        "mask)",
    .types = [](const Call& c) -> Types {
      Types types = all_types(c);
      return {types[0], types[1]};
    },
    .functional = observe_and_fake};
const OpDef kFused{
    .schema =
        "aten::fused_moving_avg_obs_fake_quant(Tensor self, Tensor observer_on, Tensor "
        "fake_quant_on, Tensor(a!) running_min, Tensor(b!) running_max, Tensor(c!) scale, "
        "Tensor(d!) zero_point, float averaging_const, int quant_min, int quant_max, int ch_axis, "
        "bool per_row_fake_quant=False, bool symmetric_quant=False) -> Tensor",
    .types = [](const Call& c) -> Types { return {all_types(c)[0]}; },
    .functional = [](Builder& b, const Call& c) -> Tensors {
      Tensors all = observe_and_fake(b, c);
      all.erase(all.begin() + 1);
      return all;
    }};

const OpDef* const kOps[] = {&kFunctional, &kHelper, &kFused};

}  // namespace

Family moving_average_family() { return kOps; }

}  // namespace tandem::ops
