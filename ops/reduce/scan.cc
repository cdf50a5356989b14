// Running sums, products, extrema and sums of exponentials. A scan combines along one dimension and
// every prefix is a result.
#include <fmt/format.h>

#include <cmath>

#include "base/diagnostic.h"
#include "ops/elements.h"
#include "ops/families.h"

namespace tandem::ops {
namespace {

using loop::Combiner;
using loop::Val;

const Sizes& self_sizes(const Call& c) { return c.type("self").sizes; }
Tensor self_of(Builder& b, const Call& c) { return {b, c.value("self")}; }
Tensor widened(Tensor x) { return to(x, compute_type(x.dtype())); }
int64_t self_dim(const Call& c) { return c.dim("dim", c.type("self").rank()); }

Definition scan_self(Lowering& lowering, const Call& c, Combiner combiner, DType dtype) {
  int64_t dim = self_dim(c);
  bool arg = loop::results(combiner) == 2;
  Definition definition;
  definition.kind = Definition::Kind::scan;
  definition.combiner = combiner;
  definition.full_sizes = self_sizes(c);
  definition.reduced_dims = {dim};
  definition.reduce_sizes = {self_sizes(c)[dim]};
  definition.input = [&lowering, c, dim, dtype, arg](const Index& out, const Index& r) {
    Index at = out;
    at[dim] = r[0];
    loop::ScalarPool& pool = lowering.scalars();
    std::vector<Val> inputs{pool.cast(lowering.load(c.value("self"), at), dtype)};
    if (arg) inputs.push_back(pool.index(-r[0]));
    return inputs;
  };
  return definition;
}

/// A scan that begins at the end of dim.
Tensor from_end(std::string_view scan, Tensor x, int64_t dim) {
  std::vector<int64_t> dims{dim};
  Builder& b = x.builder();
  Tensor scanned = call(b, scan, {call(b, "aten.flip", {x, dims}), dim});
  return call(b, "aten.flip", {scanned, dims});
}

// --- cumprod
// --------------------------------------------------------------------------------------

DType product_dtype(const Call& c) {
  DType self = c.type("self").dtype;
  return c.dtype("dtype", is_float(self) || is_complex(self) ? self : DType::i64);
}
// y_k = x_0 … x_k, so dx_i = (g_i y_i + … + g_n y_n) / x_i before the first zero. At the first zero
// it is that sum over the products without it, and after it nothing depends on x_i.
Gradients cumprod_vjp(Builder& b, const Call& c, Grads g) {
  DType self = c.type("self").dtype;
  if (self_sizes(c).empty()) return {{"self", to(g[0], self)}};
  int64_t dim = self_dim(c);
  Tensor grad = widened(g[0]);
  Tensor x = to(self_of(b, c), grad.dtype());
  Tensor is_zero = compare("eq", x, 0.0);
  Tensor zeros = call(b, "aten.cumsum", {to(is_zero, DType::i64), dim});
  Tensor before = compare("eq", zeros, 0.0);
  Tensor first = call(b, "aten.logical_and", {is_zero, compare("eq", zeros, 1.0)});
  Tensor without = call(b, "aten.cumprod", {where(first, 1.0, x), dim});
  Tensor product = to(Tensor{b, c.result()}, grad.dtype());
  Tensor until_zero = where(before, grad * product, 0.0);
  Tensor usual = from_end("aten.cumsum", until_zero, dim) / where(is_zero, 1.0, x);
  Tensor until_next = where(compare("eq", zeros, 1.0), grad * without, 0.0);
  Tensor at_zero = where(first, from_end("aten.cumsum", until_next, dim), 0.0);
  return {{"self", to(where(before, usual, at_zero), self)}};
}
/// Of complex numbers: each element takes the product that ends 1, 2, 4, … before it.
Tensors running_products(Builder& b, const Call& c) {
  Tensor x = to(self_of(b, c), c.result()->type.dtype);
  if (x.rank() == 0) return {x};
  const int64_t dim = self_dim(c);
  const std::optional<int64_t> n = x.size(dim).constant();
  if (!n) c.fail_unknown("the number of complex factors", x.size(dim));
  for (int64_t step = 1; step < *n; step *= 2)
    x = cat({slice(x, dim, 0, step), slice(x, dim, step, *n) * slice(x, dim, 0, *n - step)}, dim);
  return {x};
}
const OpDef kCumprod{
    .schema = "aten::cumprod(Tensor self, int dim, *, ScalarType? dtype=None) -> Tensor",
    .types = [](const Call& c) -> Types {
      self_dim(c);
      return {ir::Type::tensor(product_dtype(c), self_sizes(c))};
    },
    .lower = [](Lowering& lowering, const Call& c) -> Definition {
      DType dtype = running_type(product_dtype(c));
      if (!self_sizes(c).empty()) return scan_self(lowering, c, Combiner::prod, dtype);
      return map_definition(c, [&lowering, c, dtype](size_t, const Index& at) {
        return lowering.scalars().cast(lowering.load(c.value("self"), at), dtype);
      });
    },
    .vjp = cumprod_vjp,
    .samples = {"$[3, 4], 1", "$[3, 4], 0", "$[2, 3, 5], -2", "$[], 0", "$[0, 3], 1",
                "$[4, 3]{1, 4}, 0", "$[60], 0", "$[3, 12]:special, 1", "$[3], 1", "$[3], 1"},
    .sample_dtypes = DTypes::numbers,
    .inplace = true,
    .out = true,
    .batch = batch_along_dims,
    .complex = {.composition = running_products}};

// --- cummax, cummin
// -------------------------------------------------------------------------------

// The combiners keep the lowest index among equals, and the first NaN; eager keeps the last. So
// indices are negated on the way.
template <Combiner combiner>
Definition extremum_lower(Lowering& lowering, const Call& c) {
  DType dtype = compute_type(c.type("self").dtype);
  if (self_sizes(c).empty())
    return map_definition(c, [&lowering, c](size_t result, const Index& at) {
      return result == 0 ? lowering.load(c.value("self"), at)
                         : lowering.scalars().integer(DType::i64, 0);
    });
  Definition definition = scan_self(lowering, c, combiner, dtype);
  definition.finish = [&lowering](std::span<const Val> combined, const Index&) {
    return std::vector<Val>{combined[0], lowering.scalars().unary(Opcode::neg, combined[1])};
  };
  return definition;
}
// Each result is one element of self.
Gradients extremum_vjp(Builder& b, const Call& c, Grads g) {
  if (!g[0]) return {};
  if (self_sizes(c).empty()) return {{"self", g[0]}};
  return {{"self", call(b, "aten.scatter_add",
                        {zeros_like(g[0]), self_dim(c), Tensor{b, c.result(1)}, g[0]})}};
}
const Samples kExtremumSamples = {"$[3, 4], 1", "$[3, 4], 0",          "$[2, 3, 5], -2",
                                  "$[], 0",     "$[0, 3], 1",          "$[4, 3]{1, 4}, 0",
                                  "$[130], 0",  "$[3, 40]:special, 1", "$[3], 1"};
#define TANDEM_RUNNING_EXTREMUM(Name, text, combiner)                                    \
  const OpDef Name {                                                                     \
    .schema = "aten::" text "(Tensor self, int dim) -> (Tensor values, Tensor indices)", \
    .types = [](const Call& c) -> Types {                                                \
      self_dim(c);                                                                       \
      return {unary_same(c)[0], ir::Type::tensor(DType::i64, self_sizes(c))};            \
    },                                                                                   \
    .lower = extremum_lower<combiner>, .vjp = extremum_vjp, .samples = kExtremumSamples, \
    .sample_dtypes = DTypes::all, .batch = batch_along_dims                              \
  }
TANDEM_RUNNING_EXTREMUM(kCummax, "cummax", Combiner::argmax);
TANDEM_RUNNING_EXTREMUM(kCummin, "cummin", Combiner::argmin);
#undef TANDEM_RUNNING_EXTREMUM

// --- logcumsumexp
// ---------------------------------------------------------------------------------
Definition logcumsumexp_lower(Lowering& lowering, const Call& c) {
  if (!self_sizes(c).empty())
    return scan_self(lowering, c, Combiner::logaddexp, running_type(c.type("self").dtype));
  return map_definition(
      c, [&lowering, c](size_t, const Index& at) { return lowering.load(c.value("self"), at); });
}
// dx_j = sum over i >= j of g_i exp(x_j - y_i) = exp(x_j + log of the sum of exp(log g_i - y_i)),
// of positive and negative g apart. x_j = -inf has no share in anything, y_i = -inf none to give.
Gradients logcumsumexp_vjp(Builder& b, const Call& c, Grads g) {
  if (self_sizes(c).empty()) return {{"self", g[0]}};
  int64_t dim = self_dim(c);
  Tensor x = widened(self_of(b, c));
  Tensor y = widened(Tensor{b, c.result()});
  Tensor grad = widened(g[0]);
  Tensor none = call(b, "aten.full_like", {y, -HUGE_VAL});
  const auto share = [&](const char* sign) {
    Tensor counts = call(b, "aten.logical_and", {compare(sign, grad, 0.0), compare("ne", y, none)});
    Tensor terms = where(counts, log(abs(grad)) - y, none);
    return exp(from_end("aten.logcumsumexp", terms, dim) + x);
  };
  Tensor result = where(compare("eq", x, -HUGE_VAL), 0.0, share("gt") - share("lt"));
  return {{"self", to(result, c.type("self").dtype)}};
}
const Samples kLogSamples = {"$[3, 4], 1", "$[3, 4], 0", "$[2, 3, 5], -2",   "$[], 0",
                             "$[0, 3], 1", "$[70], 0",   "$[4, 3]{1, 4}, 0", "$[2, 300], 1"};
/// Gradients of eager at -inf are NaN.
const Samples kForwardLogSamples = {"$[3, 40]:special, 1", "$[40, 3]:special, 0",
                                    "$[9]:special, 0"};
Types log_types(const Call& c) {
  need_float(c, "self");
  self_dim(c);
  return unary_same(c);
}
const OpDef kLogcumsumexp{.schema = "aten::logcumsumexp(Tensor self, int dim) -> Tensor",
                          .types = log_types,
                          .lower = logcumsumexp_lower,
                          .vjp = logcumsumexp_vjp,
                          .samples = kLogSamples,
                          .out = true,
                          .batch = batch_along_dims};
const OpDef kPrivateLogcumsumexp{.schema = "aten::_logcumsumexp(Tensor self, int dim) -> Tensor",
                                 .types = log_types,
                                 .lower = logcumsumexp_lower,
                                 .vjp = logcumsumexp_vjp,
                                 .samples = kForwardLogSamples,
                                 .out = true,
                                 .batch = batch_along_dims};

// --- cumsum
// ---------------------------------------------------------------------------------

Types cumsum_types(const Call& c) {
  c.dim("dim", c.type("self").rank());
  return {ir::Type::tensor(product_dtype(c), self_sizes(c))};
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
    .out = true,
    .batch = batch_along_dims,
    .complex = {complex_each}};

const OpDef* const kCumsums[] = {&kCumsum};
const OpDef* const kOps[] = {&kCumprod, &kCummax, &kCummin, &kLogcumsumexp, &kPrivateLogcumsumexp};

}  // namespace

// Two families, for their places in the table.
Family cumsum_family() { return kCumsums; }
Family scan_family() { return kOps; }

}  // namespace tandem::ops
