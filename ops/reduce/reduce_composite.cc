// Reductions made of others: sums that pass over NaN, norms under their many names, counts,
// differences and integrals along a dimension.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/diagnostic.h"

#include "ops/delegate.h"
#include "ops/reduce/reductions.h"

namespace tandem::ops {
namespace {

const Sizes& self_sizes(const Call& c) { return c.type("self").sizes; }
Tensor self_of(Builder& b, const Call& c) { return {b, c.value("self")}; }
Tensor is_number(Tensor x) { return eq(x, x); }
Tensor widened(Tensor x) { return to(x, compute_type(x.dtype())); }

// --- over NaN
// -------------------------------------------------------------------------------------

std::vector<ir::Arg> sum_args(const Call& c) {
  return {c.arg("self"), c.arg("dim"), c.arg("keepdim"), c.arg("dtype")};
}
Tensor nan_sum(Builder& b, const Call& c) {
  Tensor x = self_of(b, c);
  if (is_float(x.dtype())) x = where(is_number(x), x, 0.0);
  return call(b, "aten.sum.dim_IntList", {x, c.arg("dim"), c.arg("keepdim"), c.arg("dtype")});
}
const Samples kNanSamples = {"$[3, 4]",
                             "$[3, 4], [1]",
                             "$[2, 3, 4], [0, 2], true",
                             "$[5, 33]:special, [1]",
                             "$[0]",
                             "$[3, 4], [0], dtype=f64",
                             "$[3, 4], [2]"};
const OpDef kNansum{
    .schema =
        "aten::nansum(Tensor self, int[1]? dim=None, bool keepdim=False, *, "
        "ScalarType? dtype=None) -> Tensor",
    .types = [](const Call& c) { return types_of("aten.sum.dim_IntList", sum_args(c)); },
    .decompose = [](Builder& b, const Call& c) -> Tensors { return {nan_sum(b, c)}; },
    .samples = kNanSamples,
    .sample_dtypes = DTypes::numbers,
    .out = true};
const OpDef kNanmean{
    .schema =
        "aten::nanmean(Tensor self, int[1]? dim=None, bool keepdim=False, *, ScalarType? "
        "dtype=None) -> Tensor",
    .types =
        [](const Call& c) {
          need_float(c, "self");
          return types_of("aten.mean.dim", sum_args(c));
        },
    .decompose = [](Builder& b, const Call& c) -> Tensors {
      Tensor x = self_of(b, c);
      Tensor count =
          call(b, "aten.sum.dim_IntList", {is_number(x), c.arg("dim"), c.arg("keepdim")});
      Tensor total = nan_sum(b, c);
      return {total / to(count, total.dtype())};
    },
    .samples = kNanSamples,
    .out = true};

// --- counts and extrema
// ---------------------------------------------------------------------------

const OpDef kCountNonzero{
    .schema = "aten::count_nonzero(Tensor self, int? dim=None) -> Tensor",
    .types = [](const Call& c) { return reduced_types(c, DType::i64); },
    .decompose = [](Builder& b, const Call& c) -> Tensors {
      return {sum(to(self_of(b, c), DType::boolean), reduced_dims(c))};
    },
    .no_grad = "a count is not differentiable",
    .samples = {"$[3, 4]", "$[3, 4], 1", "$[]", "$[0]", "$[9]:special", "$[3], 1"},
    .sample_dtypes = DTypes::all,
    .out = true};
const OpDef kCountNonzeroDims{
    .schema = "aten::count_nonzero.dim_IntList(Tensor self, int[] dim) -> Tensor",
    .types = [](const Call& c) { return reduced_types(c, DType::i64); },
    .decompose = [](Builder& b, const Call& c) -> Tensors {
      return {sum(to(self_of(b, c), DType::boolean), reduced_dims(c))};
    },
    .no_grad = "a count is not differentiable",
    .samples = {"$[3, 4], [1]", "$[2, 3, 4], [0, 2]", "$[3, 4], []", "$[3, 4], [0, 0]"},
    .sample_dtypes = DTypes::all};

std::vector<ir::Arg> extremum_args(const Call& c) {
  return {c.arg("self"), c.has("dim") ? ir::Arg(ir::Ints{c.constant("dim")}) : ir::Arg(ir::Ints{}),
          c.arg("keepdim")};
}
const OpDef kAminmax{
    .schema =
        "aten::aminmax(Tensor self, *, int? dim=None, bool keepdim=False) -> (Tensor min, "
        "Tensor max)",
    .types = [](const Call& c) -> Types {
      ir::Type type = types_of("aten.amax", extremum_args(c))[0];
      return {type, type};
    },
    .decompose = [](Builder& b, const Call& c) -> Tensors {
      std::vector<ir::Arg> args = extremum_args(c);
      std::vector<Operand> operands(args.begin(), args.end());
      return {call(b, "aten.amin", operands), call(b, "aten.amax", operands)};
    },
    .samples = {"$[3, 4]", "$[3, 4], dim=1", "$[3, 4], dim=0, keepdim=true", "$[]", "$[0]",
                "$[9]:special"},
    .sample_dtypes = DTypes::all};

// --- norms
// ----------------------------------------------------------------------------------------

/// Arguments of linalg_vector_norm for norm's: p none means 2, no dimension all.
std::vector<ir::Arg> norm_args(const Call& c) {
  auto given = [&](std::string_view name) {
    return c.op().schema.find(name) < 0 ? ir::Arg(ir::None{}) : c.arg(name);
  };
  ir::Arg p = c.op().schema.find("p") >= 0 && c.has("p") ? c.arg("p") : ir::Arg(2.0);
  ir::Arg dims = given("dim");
  const ir::Ints* list = std::get_if<ir::Ints>(&dims);
  if (list != nullptr && list->empty()) dims = ir::None{};
  ir::Arg keep = c.op().schema.find("keepdim") >= 0 ? c.arg("keepdim") : ir::Arg(false);
  return {c.arg("self"), p, dims, keep, given("dtype")};
}
Types norm_types(const Call& c) { return types_of("aten.linalg_vector_norm", norm_args(c)); }
Tensors as_norm(Builder& b, const Call& c) {
  std::vector<ir::Arg> args = norm_args(c);
  return {call(b, "aten.linalg_vector_norm", {args.begin(), args.end()})};
}
#define TANDEM_NORM(Name, text, ...)                                                              \
  const OpDef Name {                                                                              \
    .schema = "aten::" text " -> Tensor", .types = norm_types, .decompose = as_norm, .samples = { \
      __VA_ARGS__                                                                                 \
    }                                                                                             \
  }
TANDEM_NORM(kNorm, "norm.Scalar(Tensor self, Scalar p=2)", "$[3, 4]", "$[3, 4], 1", "$[3, 4], 3",
            "$[5], inf", "$[]", "$[0]");
TANDEM_NORM(kNormDim, "norm.ScalarOpt_dim(Tensor self, Scalar? p, int[1] dim, bool keepdim=False)",
            "$[3, 4], 2, [1]", "$[3, 4], none, [0], true", "$[3, 4], 1, [0, 1]", "$[3, 4], 2, []");
TANDEM_NORM(kNormDtype, "norm.ScalarOpt_dtype(Tensor self, Scalar? p, *, ScalarType dtype)",
            "f32[3, 4], 2, dtype=f64", "$[3, 4], none, dtype=f64");
TANDEM_NORM(kNormDimDtype,
            "norm.ScalarOpt_dim_dtype(Tensor self, Scalar? p, int[1] dim, bool keepdim, *, "
            "ScalarType dtype)",
            "f32[3, 4], 2, [1], false, dtype=f64", "f32[3, 4], 1, [0], true, dtype=f32");
TANDEM_NORM(kFrobeniusDim, "frobenius_norm.dim(Tensor self, int[1] dim, bool keepdim=False)",
            "$[3, 4], [0, 1]", "$[2, 3, 4], [1, 2], true", "$[3, 4], [1]");
#undef TANDEM_NORM

/// Dimensions of a matrix norm.
std::vector<int64_t> matrix_dims(const Call& c) {
  int64_t rank = c.type("self").rank();
  std::vector<int64_t> dims{-2, -1};
  if (c.has("dim")) dims = c.constants("dim");
  if (rank < 2) c.fail(c.describe("self") + " must have at least 2 dimensions");
  if (dims.size() != 2) c.fail("a matrix norm needs 2 dimensions");
  for (int64_t& dim : dims) dim = c.wrapped(dim, rank);
  if (dims[0] == dims[1]) c.fail("the dimensions of a matrix norm must differ");
  return dims;
}
enum class NormKind : uint8_t { vector, frobenius, columns, rows };
struct NormPlan {
  NormKind kind;
  bool least = false;  // ord -1 and -inf: the least sum
};
[[noreturn]] void fail_order(const Call& c, const std::string& order) {
  throw Unsupported(fmt::format(
      "[{}] order {} needs singular values: not implemented (ops); orders 1, -1, inf, -inf and "
      "\"fro\" are accepted",
      c.op().schema.full_name(), order));
}
NormPlan matrix_norm_plan(const Call& c) {
  const ir::Arg& order = c.arg("ord");
  if (const std::string* name = std::get_if<std::string>(&order)) {
    if (*name == "fro") return {NormKind::frobenius};
    if (*name == "nuc") fail_order(c, "\"nuc\"");
    c.fail(fmt::format("order \"{}\" is neither \"fro\" nor \"nuc\"", *name));
  }
  double p = c.floating("ord");
  if (std::abs(p) == 2) fail_order(c, fmt::format("{}", p));
  if (std::abs(p) == 1) return {NormKind::columns, p < 0};
  if (!std::isinf(p)) c.fail(fmt::format("order {} is no matrix norm", p));
  return {NormKind::rows, p < 0};
}
/// linalg_norm without an order or over one dimension is a vector norm.
NormPlan norm_plan(const Call& c) {
  if (c.op().schema.name == "aten::linalg_matrix_norm") return matrix_norm_plan(c);
  size_t dims = c.has("dim") ? c.ints("dim").size() : self_sizes(c).size();
  bool named = c.op().schema.overload == "ord_str" ||
               (c.op().functional != nullptr && c.op().functional->schema.overload == "ord_str");
  if (!c.has("ord") || (dims == 1 && !named)) return {NormKind::vector};
  if (dims > 2 || dims == 0) c.fail(fmt::format("an order over {} dimensions is no norm", dims));
  return matrix_norm_plan(c);
}
DType norm_dtype(const Call& c) { return c.dtype("dtype", c.type("self").dtype); }
std::vector<ir::Arg> vector_args(const Call& c) {
  ir::Arg order = c.has("ord") ? c.arg("ord") : ir::Arg(2.0);
  return {c.arg("self"), order, c.arg("dim"), c.arg("keepdim"), c.arg("dtype")};
}
/// The largest of no sums is 0.
bool compares_none(const Call& c, const NormPlan& plan) {
  return self_sizes(c)[matrix_dims(c)[plan.kind == NormKind::columns]] == Expr(0);
}
Types any_norm_types(const Call& c) {
  need_float(c, "self");
  NormPlan plan = norm_plan(c);
  if (plan.kind == NormKind::vector) return types_of("aten.linalg_vector_norm", vector_args(c));
  std::vector<int64_t> dims = matrix_dims(c);
  if (plan.least && compares_none(c, plan))
    c.fail("a reduction without an identity over an empty dimension");
  return {
      ir::Type::tensor(norm_dtype(c), reduced_sizes(self_sizes(c), dims, c.boolean("keepdim")))};
}
// columns: the largest sum of |x| over rows; rows: over columns.
Tensors any_norm(Builder& b, const Call& c) {
  NormPlan plan = norm_plan(c);
  std::vector<ir::Arg> args = vector_args(c);
  if (plan.kind == NormKind::vector)
    return {call(b, "aten.linalg_vector_norm", {args.begin(), args.end()})};
  std::vector<int64_t> dims = matrix_dims(c);
  bool keep = c.boolean("keepdim");
  if (plan.kind == NormKind::frobenius)
    return {call(b, "aten.linalg_vector_norm", {args[0], 2.0, dims, keep, args[4]})};
  const ir::Type& result = c.result()->type;
  if (compares_none(c, plan)) return {full(b, result.sizes, 0, result.dtype)};
  int64_t summed = dims[plan.kind == NormKind::rows];
  int64_t compared = dims[plan.kind == NormKind::columns];
  Tensor sums = sum(widened(abs(to(self_of(b, c), norm_dtype(c)))), {summed}, true);
  Tensor norm =
      call(b, plan.least ? "aten.amin" : "aten.amax", {sums, std::vector<int64_t>{compared}, true});
  return {to(reshape(norm, result.sizes), result.dtype)};
}
#define TANDEM_LINALG_NORM(Name, text, has_out, ...)                                         \
  const OpDef Name {                                                                         \
    .schema = "aten::" text ", bool keepdim=False, *, ScalarType? dtype=None) -> Tensor",    \
    .types = any_norm_types, .decompose = any_norm, .samples = {__VA_ARGS__}, .out = has_out \
  }
TANDEM_LINALG_NORM(kLinalgNorm, "linalg_norm(Tensor self, Scalar? ord=None, int[1]? dim=None", true,
                   "$[3, 4]", "$[2, 3, 4]", "$[5], 1", "$[3, 4], 1", "$[3, 4], inf",
                   "$[3, 4], -1, [0, 1], true", "$[2, 3, 4], 3, [1]", "$[2, 3, 4], -inf, [2, 0]",
                   "$[2, 3, 4], 1", "f32[3], none, none, false, dtype=f64");
TANDEM_LINALG_NORM(kLinalgNormName, "linalg_norm.ord_str(Tensor self, str ord, int[1]? dim=None",
                   false, "$[3, 4], \"fro\"", "$[2, 3, 4], \"fro\", [0, 2], true",
                   "$[3, 4], \"no\"");
TANDEM_LINALG_NORM(kMatrixNorm, "linalg_matrix_norm(Tensor self, Scalar ord, int[] dim=[-2, -1]",
                   true, "$[3, 4], 1", "$[2, 3, 4], inf, [0, 1], true", "$[3, 4], -1", "$[3, 4], 3",
                   "$[3], 1", "$[3, 4], 1, [0, 0]", "$[2, 0, 3], 1", "$[0, 3], inf",
                   "$[0, 3], -inf", "$[3, 0], 1");
TANDEM_LINALG_NORM(kMatrixNormName,
                   "linalg_matrix_norm.str_ord(Tensor self, str ord=\"fro\", int[] dim=[-2, -1]",
                   false, "$[3, 4]", "$[2, 3, 4], \"fro\", [0, 1], true");
#undef TANDEM_LINALG_NORM

const OpDef kDist{.schema = "aten::dist(Tensor self, Tensor other, Scalar p=2) -> Tensor",
                  .types = [](const Call& c) -> Types {
                    Types types = binary(c);
                    const DType dtype = part_type(types[0].dtype);
                    if (!is_float(dtype)) c.fail("needs floats");
                    return {ir::Type::tensor(dtype, {})};
                  },
                  .decompose = [](Builder& b, const Call& c) -> Tensors {
                    Tensor difference = self_of(b, c) - Tensor{b, c.value("other")};
                    return {call(b, "aten.linalg_vector_norm", {difference, c.arg("p")})};
                  },
                  .samples = {"$[3, 4], $[3, 4]", "$[3, 4], $[4], 1", "$[5], $[5], 3",
                              "$[5], $[5], inf", "$[0], $[0]", "$[2], $[2], 0"},
                  .out = true};

// Rows of `dim` with a larger norm are scaled down to it.
const OpDef kRenorm{
    .schema = "aten::renorm(Tensor self, Scalar p, int dim, Scalar maxnorm) -> Tensor",
    .types =
        [](const Call& c) {
          need_float(c, "self");
          if (c.floating("p") <= 0) c.fail(c.describe("p") + " must be positive");
          if (c.floating("maxnorm") < 0) c.fail(c.describe("maxnorm") + " must not be negative");
          if (c.type("self").rank() < 2) c.fail(c.describe("self") + " must have 2 dimensions");
          c.dim("dim", c.type("self").rank());
          return unary_same(c);
        },
    .decompose = [](Builder& b, const Call& c) -> Tensors {
      Tensor x = widened(self_of(b, c));
      std::vector<int64_t> others;
      for (int64_t i = 0; i < x.rank(); ++i)
        if (i != c.dim("dim", x.rank())) others.push_back(i);
      Tensor norm = call(b, "aten.linalg_vector_norm", {x, c.arg("p"), others, true});
      double most = c.floating("maxnorm");
      Tensor scale = where(compare("gt", norm, most), most / (norm + 1e-7), 1.0);
      return {to(x * scale, c.type("self").dtype)};
    },
    .samples = {"$[3, 4], 2, 0, 1", "$[3, 4], 1, 1, 2.5", "$[2, 3, 4], 2, -1, 0.5",
                "$[3, 4], 0, 0, 1", "$[3], 2, 0, 1"},
    .inplace = true,
    .out = true};

// --- along a dimension
// ----------------------------------------------------------------------------

int64_t dim_of(const Call& c, std::string_view name) {
  const ir::Type& type = c.type(name);
  if (type.rank() == 0) c.fail(c.describe(name) + " must have a dimension");
  return c.dim("dim", type.rank());
}
Tensor part(Tensor x, int64_t dim, Expr start, Expr end) { return slice(x, dim, start, end); }
/// Neighbours along dim: all but the first, all but the last.
struct Neighbours {
  Tensor right, left;
};
Neighbours neighbours(Tensor x, int64_t dim) {
  Expr n = x.size(dim);
  return {part(x, dim, 1, n), part(x, dim, 0, sym::max(n - 1, 0))};
}

constexpr int64_t kMostDifferences = 4096;  // nodes: each is a step
const OpDef kDiff{.schema =
                      "aten::diff(Tensor self, int n=1, int dim=-1, Tensor? prepend=None, Tensor? "
                      "append=None) -> Tensor",
                  .types = [](const Call& c) -> Types {
                    int64_t dim = dim_of(c, "self");
                    if (c.constant("n") < 0) c.fail(c.describe("n") + " must not be negative");
                    if (std::min(c.constant("n"), self_sizes(c)[dim].range().hi) > kMostDifferences)
                      c.fail(fmt::format("{} is over {}", c.describe("n"), kMostDifferences));
                    Sizes sizes = self_sizes(c);
                    Promotion promotion;
                    promotion.add(c.type("self"));
                    if (c.constant("n") == 0) return {ir::Type::tensor(promotion.result(c), sizes)};
                    for (std::string_view name : {"prepend", "append"}) {
                      if (!c.has(name)) continue;
                      Sizes own = c.type(name).sizes;
                      if (own.size() != sizes.size())
                        c.fail(c.describe(name) + " must have as many dimensions as self");
                      sizes[dim] = sizes[dim] + own[dim];
                      own[dim] = sizes[dim];
                      if (!same_sizes(own, sizes))
                        c.fail(c.describe(name) + " must have self's sizes but for dimension dim");
                      promotion.add(c.type(name));
                    }
                    sizes[dim] = sym::max(sizes[dim] - c.constant("n"), 0);
                    return {ir::Type::tensor(promotion.result(c), sizes)};
                  },
                  .decompose = [](Builder& b, const Call& c) -> Tensors {
                    int64_t dim = dim_of(c, "self");
                    if (c.constant("n") == 0) return {call(b, "aten.clone", {self_of(b, c)})};
                    Tensors parts;
                    if (c.has("prepend")) parts.push_back({b, c.value("prepend")});
                    parts.push_back(self_of(b, c));
                    if (c.has("append")) parts.push_back({b, c.value("append")});
                    Tensor x = parts.size() > 1 ? cat(parts, dim) : parts[0];
                    // No elements are left after as many steps as there were.
                    const int64_t steps = std::min(c.constant("n"), x.size(dim).range().hi);
                    for (int64_t i = 0; i < steps; ++i) {
                      Neighbours pair = neighbours(x, dim);
                      bool is_bool = x.dtype() == DType::boolean;
                      x = is_bool ? compare("ne", pair.right, pair.left) : pair.right - pair.left;
                    }
                    return {reshape(x, c.result()->type.sizes)};
                  },
                  .samples = {"$[5]", "$[3, 4]", "$[3, 5], 2", "$[3, 4], 1, 0", "$[3, 4], 0",
                              "$[3, 4], 9", "$[3, 4], 1, 1, $[3, 1], $[3, 2]",
                              "$[3, 4], 1, 0, none, $[1, 4]", "$[]", "$[3], -1", "$[0]"},
                  .sample_dtypes = DTypes::all,
                  .out = true};

/// dx for each pair of neighbours, to be multiplied with values along dim.
Tensor spacing(Builder& b, const Call& c, int64_t dim) {
  Tensor x{b, c.value("x")};
  int64_t rank = c.type("y").rank();
  if (x.rank() == 1) {
    Neighbours pair = neighbours(x, 0);
    Sizes row(static_cast<size_t>(rank), Expr(1));
    Tensor dx = pair.right - pair.left;
    row[dim] = dx.size(0);
    return reshape(dx, row);
  }
  Sizes padded = x.sizes();
  while (static_cast<int64_t>(padded.size()) < rank) padded.insert(padded.begin(), Expr(1));
  Neighbours pair = neighbours(reshape(x, padded), dim);
  return pair.right - pair.left;
}
/// Twice the areas between neighbours.
Tensor areas(Builder& b, const Call& c, int64_t dim) {
  Tensor y{b, c.value("y")};
  Neighbours pair = neighbours(y, dim);
  Tensor heights = pair.left + pair.right;
  if (c.op().schema.find("x") >= 0) return heights * spacing(b, c, dim);
  return call(b, "aten.mul.Scalar", {heights, c.arg("dx")});
}
Types area_types(const Call& c, bool cumulative) {
  int64_t dim = dim_of(c, "y");
  const ir::Type& y = c.type("y");
  if (y.dtype == DType::boolean) c.fail(c.describe("y") + " must not be bool");
  Promotion promotion;
  promotion.add(y);
  Sizes sizes = y.sizes;
  if (c.op().schema.find("x") >= 0) {
    const ir::Type& x = c.type("x");
    if (x.dtype == DType::boolean) c.fail(c.describe("x") + " must not be bool");
    promotion.add(x);
    bool fits =
        x.rank() >= 1 && x.rank() <= y.rank() && (x.rank() == 1 ? x.sizes[0] == sizes[dim] : true);
    if (!fits) c.fail(fmt::format("{} does not fit {}", c.describe("x"), c.describe("y")));
    if (x.rank() > 1) sizes = broadcast(c, sizes, x.sizes);
  } else {
    promotion.add(c.arg("dx"));
  }
  if (cumulative)
    sizes[dim] = sym::max(sizes[dim] - 1, 0);
  else
    sizes.erase(sizes.begin() + dim);
  return {ir::Type::tensor(to_float(promotion.result(c)), sizes)};
}
template <bool cumulative>
Types integral_types(const Call& c) {
  return area_types(c, cumulative);
}
template <bool cumulative>
Tensors integral(Builder& b, const Call& c) {
  int64_t dim = dim_of(c, "y");
  const ir::Type& result = c.result()->type;
  if (!cumulative && c.type("y").sizes[dim] == Expr(0))
    return {full(b, result.sizes, 0, result.dtype)};
  Tensor doubled = widened(areas(b, c, dim));
  Tensor total = cumulative ? call(b, "aten.cumsum", {doubled, dim}) : sum(doubled, {dim});
  return {to(total / 2.0, result.dtype)};
}
#define TANDEM_INTEGRAL(Name, text, cumulative, ...)                                        \
  const OpDef Name {                                                                        \
    .schema = "aten::" text ", int dim=-1) -> Tensor", .types = integral_types<cumulative>, \
    .decompose = integral<cumulative>, .samples = {                                         \
      __VA_ARGS__                                                                           \
    }                                                                                       \
  }
TANDEM_INTEGRAL(kTrapezoidX, "trapezoid.x(Tensor y, Tensor x, *", false, "$[5], $[5]",
                "$[3, 5], $[5]", "$[5, 3], $[5], dim=0", "$[3, 5], $[3, 5]", "$[3, 5], $[4]");
TANDEM_INTEGRAL(kTrapezoid, "trapezoid.dx(Tensor y, *, Scalar dx=1", false, "$[5]",
                "$[3, 5], dx=0.5", "$[5, 3], dim=0", "$[0]", "$[1]", "$[]");
TANDEM_INTEGRAL(kTrapzX, "trapz.x(Tensor y, Tensor x, *", false, "$[3, 5], $[5]");
TANDEM_INTEGRAL(kTrapz, "trapz.dx(Tensor y, *, float dx=1.", false, "$[3, 5], dx=0.5");
TANDEM_INTEGRAL(kCumulativeTrapezoidX, "cumulative_trapezoid.x(Tensor y, Tensor x, *", true,
                "$[5], $[5]", "$[5, 3], $[5], dim=0", "$[3, 5], $[3, 5]");
TANDEM_INTEGRAL(kCumulativeTrapezoid, "cumulative_trapezoid.dx(Tensor y, *, Scalar dx=1", true,
                "$[5]", "$[3, 5], dx=0.5", "$[5, 3], dim=0", "$[1]");
#undef TANDEM_INTEGRAL

const OpDef kSpecialLogsumexp{
    .schema = "aten::special_logsumexp(Tensor self, int[1] dim, bool keepdim=False) -> Tensor",
    .types = other_types<"aten.logsumexp">,
    .decompose = other_call<"aten.logsumexp">,
    .samples = {"$[3, 4], [1]", "$[3, 4], [0], true"},
    .out = true};

const OpDef* const kOps[] = {&kNansum,
                             &kNanmean,
                             &kCountNonzero,
                             &kCountNonzeroDims,
                             &kAminmax,
                             &kNorm,
                             &kNormDim,
                             &kNormDtype,
                             &kNormDimDtype,
                             &kFrobeniusDim,
                             &kLinalgNorm,
                             &kLinalgNormName,
                             &kMatrixNorm,
                             &kMatrixNormName,
                             &kDist,
                             &kRenorm,
                             &kDiff,
                             &kTrapezoidX,
                             &kTrapezoid,
                             &kTrapzX,
                             &kTrapz,
                             &kCumulativeTrapezoidX,
                             &kCumulativeTrapezoid,
                             &kSpecialLogsumexp};

}  // namespace

Family reduce_composite_family() { return kOps; }

}  // namespace tandem::ops
