// Products, truth, positions of extrema, running sums, variances and norms. Variances take two
// passes (mean, then squared distances): exact where one-pass sums cancel, and one kernel over rows
// all the same.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ops/families.h"
#include "ops/reduce/reductions.h"

namespace tandem::ops {
namespace {

using loop::Combiner;
using loop::Val;

constexpr std::string_view kPosition = "a position is not differentiable";
constexpr std::string_view kTruth = "the result is not differentiable (bool)";

Tensor self_of(Builder& b, const Call& c) { return {b, c.value("self")}; }
Tensor result_of(Builder& b, const Call& c, size_t i = 0) { return {b, c.result(i)}; }
Tensor widened(Tensor x) { return to(x, compute_type(to_float(x.dtype()))); }
const ir::Sizes& self_sizes(const Call& c) { return c.type("self").sizes; }

/// A result with self's reduced dimensions put back, to be broadcast against self.
Tensor against_self(Tensor x, const Call& c) {
  return expand_reduced(x, self_sizes(c), reduced_dims(c), keeps_dims(c));
}

// --- products
// -------------------------------------------------------------------------------------

DType product_result(const Call& c) {
  DType self = c.type("self").dtype;
  return c.dtype("dtype", is_float(self) ? self : DType::i64);
}
Types product_types(const Call& c) { return reduced_types(c, product_result(c)); }
Definition product_lower(Lowering& lowering, const Call& c) {
  return reduce_self(lowering, c, reduced_dims(c), keeps_dims(c), Combiner::prod,
                     accumulate_type(product_result(c)));
}
// Without zeros d prod = prod / x. With one zero only that element has a gradient: the product of
// the others. With more there is none.
Gradients product_vjp(Builder& b, const Call& c, Grads g) {
  Tensor x = widened(self_of(b, c));
  std::vector<int64_t> dims = reduced_dims(c);
  Tensor is_zero = compare("eq", x, 0.0);
  Tensor nonzero = where(is_zero, 1.0, x);
  Tensor product = nonzero;
  for (size_t i = 0; i < dims.size(); ++i)
    product = call(b, "aten.prod.dim_int", {product, dims[i], true});
  Tensor zeros = sum(to(is_zero, DType::f32), dims, true);
  Tensor others = where(compare("eq", zeros, 0.0), product / nonzero, 0.0);
  Tensor of_zero = where(compare("eq", zeros, 1.0), product, 0.0);
  Tensor grad = against_self(widened(g[0]), c) * where(is_zero, of_zero, others);
  return {{"self", to(grad, c.type("self").dtype)}};
}
const OpDef kProd{.schema = "aten::prod(Tensor self, *, ScalarType? dtype=None) -> Tensor",
                  .types = product_types,
                  .lower = product_lower,
                  .vjp = product_vjp,
                  .samples = {"$[3, 4]", "$[]", "$[0]", "$[2, 3]:positive"},
                  .sample_dtypes = DTypes::all,
                  .out = true};
const OpDef kProdDim{.schema =
                         "aten::prod.dim_int(Tensor self, int dim, bool keepdim=False, *, "
                         "ScalarType? dtype=None) -> Tensor",
                     .types = product_types,
                     .lower = product_lower,
                     .vjp = product_vjp,
                     .samples = {"$[3, 4], 1", "$[3, 4], 0, true", "$[2, 3, 4], -2", "$[0, 3], 0",
                                 "$[], 0", "$[4, 3]{1, 4}, 0"},
                     .sample_dtypes = DTypes::all};

// --- extrema with their positions
// -----------------------------------------------------------------

/// Row-major number of the element among those reduced: what argmax without a dimension returns.
Val position(loop::ScalarPool& pool, const Call& c, const std::vector<int64_t>& dims,
             const Index& full) {
  Expr number = 0;
  for (int64_t dim : dims) number = number * self_sizes(c)[dim] + full[dim];
  return pool.index(number);
}

Definition arg_reduction(Lowering& lowering, const Call& c, Combiner combiner, bool values) {
  std::vector<int64_t> dims = reduced_dims(c);
  std::sort(dims.begin(), dims.end());
  auto input = [&lowering, c, dims](Element x, const Index& full) {
    return std::vector<Val>{x.value(), position(lowering.scalars(), c, dims, full)};
  };
  auto only_position = [](std::span<const Val> combined, const Index&) {
    return std::vector<Val>{combined[1]};
  };
  Definition definition = reduce_self(lowering, c, dims, keeps_dims(c), combiner,
                                      compute_type(c.type("self").dtype), input);
  if (!values) definition.finish = only_position;
  return definition;
}

void need_elements(const Call& c) {
  for (int64_t dim : reduced_dims(c))
    if (self_sizes(c)[dim] == Expr(0))
      c.fail("a reduction without an identity over an empty dimension: " + c.describe("self"));
}
Types position_types(const Call& c) {
  need_number(c, "self");
  need_elements(c);
  return reduced_types(c, DType::i64);
}
Types extremum_types(const Call& c) {
  need_elements(c);
  return {reduced_types(c, c.type("self").dtype)[0], reduced_types(c, DType::i64)[0]};
}
// The gradient goes to the element that was found, alone.
Gradients extremum_vjp(Builder& b, const Call& c, Grads g) {
  if (!g[0]) return {};
  const ir::Sizes& sizes = self_sizes(c);
  if (sizes.empty()) return {{"self", g[0]}};
  int64_t dim = reduced_dims(c)[0];
  ir::Sizes row(sizes.size() - static_cast<size_t>(dim), Expr(1));
  row[0] = sizes[dim];
  Tensor positions = reshape(arange(b, sizes[dim], DType::i64), row);
  Tensor found = eq(positions, against_self(result_of(b, c, 1), c));
  return {{"self", where(found, against_self(g[0], c), 0.0)}};
}
const Samples kDimSamples = {"$[3, 4], 1",       "$[3, 4], 0, true",    "$[2, 3, 4], 1", "$[], 0",
                             "$[4, 3]{1, 4}, 1", "$[5, 33]:special, 1", "$[33, 5], 0"};
const OpDef kMaxDim{
    .schema =
        "aten::max.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor "
        "indices)",
    .types = extremum_types,
    .lower = [](Lowering& l, const Call& c) { return arg_reduction(l, c, Combiner::argmax, true); },
    .vjp = extremum_vjp,
    .samples = kDimSamples,
    .sample_dtypes = DTypes::all};
const OpDef kMinDim{
    .schema =
        "aten::min.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor "
        "indices)",
    .types = extremum_types,
    .lower = [](Lowering& l, const Call& c) { return arg_reduction(l, c, Combiner::argmin, true); },
    .vjp = extremum_vjp,
    .samples = kDimSamples,
    .sample_dtypes = DTypes::all};
const Samples kArgSamples = {"$[3, 4]",        "$[3, 4], 1",    "$[3, 4], 0, true",
                             "$[2, 3, 4], -2", "$[]",           "$[5, 33]:special, 1",
                             "$[70]:special",  "$[4, 3]{1, 4}", "$[2, 3], none, true"};
const OpDef kArgmax{
    .schema = "aten::argmax(Tensor self, int? dim=None, bool keepdim=False) -> Tensor",
    .types = position_types,
    .lower = [](Lowering& l,
                const Call& c) { return arg_reduction(l, c, Combiner::argmax, false); },
    .no_grad = kPosition,
    .samples = kArgSamples,
    .sample_dtypes = DTypes::numbers,
    .out = true};
const OpDef kArgmin{
    .schema = "aten::argmin(Tensor self, int? dim=None, bool keepdim=False) -> Tensor",
    .types = position_types,
    .lower = [](Lowering& l,
                const Call& c) { return arg_reduction(l, c, Combiner::argmin, false); },
    .no_grad = kPosition,
    .samples = kArgSamples,
    .sample_dtypes = DTypes::numbers,
    .out = true};

Types whole_types(const Call& c) {
  need_elements(c);
  return reduced_types(c, c.type("self").dtype);
}
const Samples kWholeSamples = {"$[3, 4]", "$[]", "$[7]:special", "$[4, 3]{1, 4}", "$[1000]"};
// The gradient is shared equally between the elements that reach the extremum. Unlike amax's, it
// goes to the NaNs where there are any: they equal nothing, so that adding both masks counts none
// twice.
Gradients whole_extremum_vjp(Builder& b, const Call& c, Grads g) {
  Tensor self = self_of(b, c);
  Tensor reached =
      to(eq(self, result_of(b, c, 0)), self.dtype()) + to(compare("ne", self, self), self.dtype());
  return {{"self", where(compare("ne", reached, 0.0), g[0] / sum_all(reached), 0.0)}};
}
const OpDef kMax{
    .schema = "aten::max(Tensor self) -> Tensor",
    .types = whole_types,
    .decompose = [](Builder& b, const Call& c) -> Tensors { return {amax(self_of(b, c), {})}; },
    .vjp = whole_extremum_vjp,
    .samples = kWholeSamples,
    .sample_dtypes = DTypes::all};
const OpDef kMin{.schema = "aten::min(Tensor self) -> Tensor",
                 .types = whole_types,
                 .decompose = [](Builder& b, const Call& c) -> Tensors {
                   return {call(b, "aten.amin", {self_of(b, c), std::vector<int64_t>{}})};
                 },
                 .vjp = whole_extremum_vjp,
                 .samples = kWholeSamples,
                 .sample_dtypes = DTypes::all};
const Samples kPairs = {"$[3, 4], $[4]", "$[5], $[5]:special"};
const OpDef kMaxOther{.schema = "aten::max.other(Tensor self, Tensor other) -> Tensor",
                      .types = binary,
                      .decompose = [](Builder& b, const Call& c) -> Tensors {
                        return {call(b, "aten.maximum", {self_of(b, c), c.arg("other")})};
                      },
                      .samples = kPairs,
                      .sample_dtypes = DTypes::numbers};
const OpDef kMinOther{.schema = "aten::min.other(Tensor self, Tensor other) -> Tensor",
                      .types = binary,
                      .decompose = [](Builder& b, const Call& c) -> Tensors {
                        return {call(b, "aten.minimum", {self_of(b, c), c.arg("other")})};
                      },
                      .samples = kPairs,
                      .sample_dtypes = DTypes::numbers};

// --- truth
// ----------------------------------------------------------------------------------------

/// bool; u8 stays u8, as in eager.
Types truth_types(const Call& c) {
  return reduced_types(c, c.type("self").dtype == DType::u8 ? DType::u8 : DType::boolean);
}
template <Combiner combiner>
Definition truth_lower(Lowering& lowering, const Call& c) {
  auto input = [](Element x, const Index&) {
    return std::vector<Val>{x.cast(DType::boolean).value()};
  };
  return reduce_self(lowering, c, reduced_dims(c), keeps_dims(c), combiner,
                     compute_type(c.type("self").dtype), input);
}
const Samples kTruthSamples = {"$[3, 4]", "$[]", "$[0]", "bool[70]", "$[7]:special"};
const Samples kTruthDimSamples = {"$[3, 4], 1", "$[3, 4], 0, true", "$[0, 3], 0", "bool[4, 70], 1",
                                  "$[], 0"};
const Samples kTruthDimsSamples = {"$[3, 4], [1]", "$[2, 3, 4], [0, 2], true", "bool[4, 5]"};
#define TANDEM_TRUTH(Name, text, combiner)                                                       \
  const OpDef Name{.schema = "aten::" text "(Tensor self) -> Tensor",                            \
                   .types = truth_types,                                                         \
                   .lower = truth_lower<combiner>,                                               \
                   .no_grad = kTruth,                                                            \
                   .samples = kTruthSamples,                                                     \
                   .sample_dtypes = DTypes::all};                                                \
  const OpDef Name##Dim{                                                                         \
      .schema = "aten::" text ".dim(Tensor self, int dim, bool keepdim=False) -> Tensor",        \
      .types = truth_types,                                                                      \
      .lower = truth_lower<combiner>,                                                            \
      .no_grad = kTruth,                                                                         \
      .samples = kTruthDimSamples,                                                               \
      .sample_dtypes = DTypes::all};                                                             \
  const OpDef Name##Dims {                                                                       \
    .schema = "aten::" text ".dims(Tensor self, int[]? dim=None, bool keepdim=False) -> Tensor", \
    .types = truth_types, .lower = truth_lower<combiner>, .no_grad = kTruth,                     \
    .samples = kTruthDimsSamples, .sample_dtypes = DTypes::all                                   \
  }
TANDEM_TRUTH(kAny, "any", Combiner::any);
TANDEM_TRUTH(kAll, "all", Combiner::all);
#undef TANDEM_TRUTH

// --- running sums
// ---------------------------------------------------------------------------------

Types cumsum_types(const Call& c) {
  c.dim("dim", c.type("self").rank());
  return {ir::Type::tensor(product_result(c), self_sizes(c))};
}
Definition cumsum_lower(Lowering& lowering, const Call& c) {
  DType accumulate = running_type(c.result()->type.dtype);
  auto element = [&lowering, c, accumulate](const Index& at) {
    return lowering.scalars().cast(lowering.load(c.value("self"), at), accumulate);
  };
  if (c.type("self").rank() == 0)
    return map_definition(c, [element](size_t, const Index& at) { return element(at); });
  int64_t dim = c.dim("dim", c.type("self").rank());
  Definition definition;
  definition.kind = Definition::Kind::scan;
  definition.combiner = Combiner::sum;
  definition.full_sizes = self_sizes(c);
  definition.reduced_dims = {dim};
  definition.reduce_sizes = {self_sizes(c)[dim]};
  definition.input = [element, dim](const Index& out, const Index& r) {
    Index at = out;
    at[dim] = r[0];
    return std::vector<Val>{element(at)};
  };
  return definition;
}
const OpDef kCumsum{
    .schema = "aten::cumsum(Tensor self, int dim, *, ScalarType? dtype=None) -> Tensor",
    .types = cumsum_types,
    .lower = cumsum_lower,
    // Element i enters every sum from i on: the gradient is summed from the end.
    .vjp = [](Builder& b, const Call& c, Grads g) -> Gradients {
      DType self = c.type("self").dtype;
      if (self_sizes(c).empty()) return {{"self", to(g[0], self)}};
      std::vector<int64_t> dim{c.dim("dim", c.type("self").rank())};
      Tensor summed = call(b, "aten.cumsum", {call(b, "aten.flip", {g[0], dim}), dim[0]});
      return {{"self", to(call(b, "aten.flip", {summed, dim}), self)}};
    },
    .samples = {"$[3, 4], 1", "$[3, 4], 0", "$[2, 3, 5], 1", "$[], 0", "$[0, 3], 1",
                "$[4, 3]{1, 4}, 0", "$[130], 0"},
    .sample_dtypes = DTypes::numbers,
    .inplace = true,
    .out = true};

// --- variances
// ------------------------------------------------------------------------------------

/// Degrees of freedom that are subtracted: `correction`, or `unbiased` as 1 or 0.
double correction(const Call& c) {
  if (c.op().schema.find("unbiased") >= 0) return c.boolean("unbiased") ? 1 : 0;
  return c.has("correction") ? c.floating("correction") : 1;
}
/// max(n - correction, 0): a number where n is known.
Operand freedom(const Call& c) {
  Expr n = reduced_count(c);
  double less = correction(c);
  if (n.constant()) return std::max(static_cast<double>(*n.constant()) - less, 0.0);
  if (less != std::floor(less)) c.fail("a fractional correction needs sizes known when compiling");
  return sym::max(n - static_cast<int64_t>(less), 0);
}

struct Moments {
  Tensor mean;  // dimensions kept
  Tensor variance;
};
/// Mean and variance in the compute type.
Moments moments(Builder& b, const Call& c) {
  Tensor x = widened(self_of(b, c));
  std::vector<int64_t> dims = reduced_dims(c);
  Tensor center = mean(x, dims, true);
  Tensor distance = x - center;
  Tensor squares = sum(distance * distance, dims, keeps_dims(c));
  return {center, call(b, "aten.div.Scalar", {squares, freedom(c)})};
}
/// d var = 2 (x - mean) / freedom dx
Tensor variance_grad(Builder& b, const Call& c, Tensor grad) {
  Tensor x = widened(self_of(b, c));
  Tensor distance = x - mean(x, reduced_dims(c), true);
  Tensor scaled = call(b, "aten.div.Scalar", {widened(grad) * 2, freedom(c)});
  return to(against_self(scaled, c) * distance, c.type("self").dtype);
}
/// d sqrt(var) = dvar / (2 std), 0 where std is 0.
Tensor deviation_grad(Builder& b, const Call& c, Tensor grad) {
  Tensor deviation = widened(result_of(b, c));
  Tensor scaled = where(compare("eq", deviation, 0.0), 0.0, widened(grad) / (deviation * 2));
  return variance_grad(b, c, scaled);
}

Types float_reduced(const Call& c) {
  need_float(c, "self");
  return reduced_types(c, c.type("self").dtype);
}
Types with_mean(const Call& c) { return {float_reduced(c)[0], float_reduced(c)[0]}; }

template <bool root, bool mean>
Tensors spread(Builder& b, const Call& c) {
  Moments m = moments(b, c);
  DType dtype = c.result()->type.dtype;
  Tensors results{to(root ? sqrt(m.variance) : m.variance, dtype)};
  if (mean) results.push_back(to(reshape(m.mean, c.result(1)->type.sizes), dtype));
  return results;
}
template <bool root>
Gradients spread_vjp(Builder& b, const Call& c, Grads g) {
  Tensor grad;
  if (g[0]) grad = root ? deviation_grad(b, c, g[0]) : variance_grad(b, c, g[0]);
  if (g.size() > 1 && g[1]) {
    Tensor shared = call(b, "aten.div.Scalar", {g[1], reduced_count(c)});
    Tensor of_mean = against_self(shared, c);
    grad = grad ? grad + of_mean : of_mean;
  }
  return {{"self", grad}};
}

const Samples kCorrectionSamples = {"$[3, 4], [1]",
                                    "$[3, 4], [0], correction=0",
                                    "$[2, 3, 4], [0, 2], keepdim=true",
                                    "$[3, 4]",
                                    "$[5, 40], [1], correction=2",
                                    "$[3, 1], [1]",
                                    "$[700], none, correction=1"};
const Samples kUnbiasedSamples = {"$[3, 4], [1]", "$[3, 4], [0], false, true",
                                  "$[2, 3, 4], [0, 2]"};
const Samples kAllSamples = {"$[3, 4]", "$[3, 4], false", "$[20]"};
#define TANDEM_SPREAD(Name, text, root)                                                           \
  const OpDef Name{.schema = "aten::" text "(Tensor self, bool unbiased=True) -> Tensor",         \
                   .types = float_reduced,                                                        \
                   .decompose = spread<root, false>,                                              \
                   .vjp = spread_vjp<root>,                                                       \
                   .samples = kAllSamples};                                                       \
  const OpDef Name##Dim{                                                                          \
      .schema =                                                                                   \
          "aten::" text                                                                           \
          ".dim(Tensor self, int[1]? dim, bool unbiased=True, bool keepdim=False) -> Tensor",     \
      .types = float_reduced,                                                                     \
      .decompose = spread<root, false>,                                                           \
      .vjp = spread_vjp<root>,                                                                    \
      .samples = kUnbiasedSamples};                                                               \
  const OpDef Name##Correction{                                                                   \
      .schema = "aten::" text                                                                     \
                ".correction(Tensor self, int[1]? dim=None, *, Scalar? correction=None, bool "    \
                "keepdim=False) -> Tensor",                                                       \
      .types = float_reduced,                                                                     \
      .decompose = spread<root, false>,                                                           \
      .vjp = spread_vjp<root>,                                                                    \
      .samples = kCorrectionSamples};                                                             \
  const OpDef Name##MeanAll{                                                                      \
      .schema = "aten::" text "_mean(Tensor self, bool unbiased=True) -> (Tensor, Tensor)",       \
      .types = with_mean,                                                                         \
      .decompose = spread<root, true>,                                                            \
      .vjp = spread_vjp<root>,                                                                    \
      .samples = kAllSamples};                                                                    \
  const OpDef Name##MeanDim{                                                                      \
      .schema = "aten::" text                                                                     \
                "_mean.dim(Tensor self, int[1]? dim, bool unbiased=True, bool keepdim=False) -> " \
                "(Tensor, Tensor)",                                                               \
      .types = with_mean,                                                                         \
      .decompose = spread<root, true>,                                                            \
      .vjp = spread_vjp<root>,                                                                    \
      .samples = kUnbiasedSamples};                                                               \
  const OpDef Name##Mean {                                                                        \
    .schema = "aten::" text                                                                       \
              "_mean.correction(Tensor self, int[1]? dim=None, *, Scalar? correction=None, bool " \
              "keepdim=False) -> (Tensor, Tensor)",                                               \
    .types = with_mean, .decompose = spread<root, true>, .vjp = spread_vjp<root>,                 \
    .samples = kCorrectionSamples                                                                 \
  }
TANDEM_SPREAD(kVar, "var", false);
TANDEM_SPREAD(kStd, "std", true);
#undef TANDEM_SPREAD

// --- logsumexp and norms
// --------------------------------------------------------------------------

// m + log(sum(exp(x - m))), m the maximum, or 0 where that is infinite
Tensors logsumexp_parts(Builder& b, const Call& c) {
  Tensor x = widened(self_of(b, c));
  std::vector<int64_t> dims = reduced_dims(c);
  DType dtype = c.result()->type.dtype;
  if (reduced_count(c) == Expr(0)) return {to(log(sum(exp(x), dims, keeps_dims(c))), dtype)};
  Tensor top = amax(x, dims, true);
  top = where(compare("eq", abs(top), HUGE_VAL), 0.0, top);
  Tensor total = log(sum(exp(x - top), dims, keeps_dims(c)));
  return {to(total + reshape(top, total.sizes()), dtype)};
}
const OpDef kLogsumexp{
    .schema = "aten::logsumexp(Tensor self, int[1] dim, bool keepdim=False) -> Tensor",
    .types = [](const Call& c) { return reduced_types(c, to_float(c.type("self").dtype)); },
    .decompose = logsumexp_parts,
    // d logsumexp(x) = exp(x - y) dx
    .vjp = [](Builder& b, const Call& c, Grads g) -> Gradients {
      Tensor x = widened(self_of(b, c));
      Tensor share = exp(x - against_self(widened(result_of(b, c)), c));
      return {{"self", to(against_self(widened(g[0]), c) * share, c.type("self").dtype)}};
    },
    .samples = {"$[3, 4], [1]", "$[3, 4], [0], true", "$[2, 3, 4], [0, 2]", "$[3, 0], [1]",
                "$[6, 33]:special, [1]"},
    .out = true};

DType norm_dtype(const Call& c) { return c.dtype("dtype", c.type("self").dtype); }
Tensors norm_parts(Builder& b, const Call& c) {
  Tensor x = abs(to(self_of(b, c), compute_type(norm_dtype(c))));
  std::vector<int64_t> dims = reduced_dims(c);
  bool keep = keeps_dims(c);
  double p = c.floating("ord");
  Tensor norm;
  if (p == 2)
    norm = sqrt(sum(x * x, dims, keep));
  else if (p == 1)
    norm = sum(x, dims, keep);
  else if (p == 0)
    norm = sum(to(compare("ne", x, 0.0), x.dtype()), dims, keep);
  else if (p == HUGE_VAL)
    norm = amax(x, dims, keep);
  else if (p == -HUGE_VAL)
    norm = call(b, "aten.amin", {x, dims, keep});
  else
    norm = pow(sum(pow(x, p), dims, keep), 1 / p);
  return {to(norm, c.result()->type.dtype)};
}
/// Gradient against |x| times what is shared over the norm; 0 where the norm is 0.
Gradients norm_vjp(Builder& b, const Call& c, Grads g) {
  Tensor x = to(self_of(b, c), compute_type(norm_dtype(c)));
  Tensor norm = against_self(widened(result_of(b, c)), c);
  Tensor grad = against_self(widened(g[0]), c);
  double p = c.floating("ord");
  if (p == 0) return {};
  Tensor result;
  if (p == 2) {
    result = where(compare("eq", norm, 0.0), 0.0, x * (grad / norm));
  } else if (p == 1) {
    result = sign(x) * grad;
  } else if (std::isinf(p)) {
    Tensor reached = to(eq(abs(x), norm), x.dtype());
    result = sign(x) * reached * (grad / sum(reached, reduced_dims(c), true));
  } else {
    Tensor slope = sign(x) * pow(abs(x), p - 1);
    result = where(compare("eq", norm, 0.0), 0.0, slope * (grad / pow(norm, p - 1)));
  }
  return {{"self", to(result, c.type("self").dtype)}};
}
const OpDef kVectorNorm{
    .schema =
        "aten::linalg_vector_norm(Tensor self, Scalar ord=2, int[1]? dim=None, bool keepdim=False, "
        "*, "
        "ScalarType? dtype=None) -> Tensor",
    .types =
        [](const Call& c) {
          need_float(c, "self");
          DType self = c.type("self").dtype;
          if (!is_float(norm_dtype(c)) || promote(self, norm_dtype(c)) != norm_dtype(c))
            c.fail(fmt::format("{} does not go into a norm of {} without narrowing",
                               c.describe("self"), name_of(norm_dtype(c))));
          if (c.floating("ord") < 0) need_elements(c);
          return reduced_types(c, norm_dtype(c));
        },
    .decompose = norm_parts,
    .vjp = norm_vjp,
    .samples = {"$[3, 4]", "$[3, 4], 2, [1]", "$[3, 4], 1, [0], true", "$[3, 4], inf, [1]",
                "$[3, 4], 3, [1]", "$[3, 4], 0", "$[0]", "$[300]"},
    .out = true};

const OpDef* const kOps[] = {
    &kProd,      &kProdDim,       &kMax,     &kMin,        &kMaxOther,   &kMinOther,
    &kMaxDim,    &kMinDim,        &kArgmax,  &kArgmin,     &kAny,        &kAnyDim,
    &kAnyDims,   &kAll,           &kAllDim,  &kAllDims,    &kCumsum,     &kVar,
    &kVarDim,    &kVarCorrection, &kVarMean, &kVarMeanAll, &kVarMeanDim, &kStd,
    &kStdDim,    &kStdCorrection, &kStdMean, &kStdMeanAll, &kStdMeanDim, &kLogsumexp,
    &kVectorNorm};

}  // namespace

Family extrema_family() { return kOps; }

}  // namespace tandem::ops
