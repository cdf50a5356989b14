// Sorting. One primitive, the place of each element in its sorted row (tandem::ranks); sorted
// values and their indices are scatters to these places, the k largest are the first k of them.
// The definition counts what comes before an element, in time quadratic in the row; the route is a
// sort in the runtime. Rows of a few elements are compared pair by pair, which vectorises.
// NaN is above all numbers, equal elements keep their order.
#include <fmt/format.h>

#include <cmath>

#include "ops/elements.h"
#include "ops/families.h"

namespace tandem::ops {
namespace {

constexpr std::string_view kPosition = "a position is not differentiable";
constexpr int64_t kShortRow = 16;

const Sizes& self_sizes(const Call& c) { return c.type("self").sizes; }
Tensor self_of(Builder& b, const Call& c) { return {b, c.value("self")}; }
int64_t self_dim(const Call& c) { return c.dim("dim", c.type("self").rank()); }
Expr row_length(const Call& c) {
  return self_sizes(c).empty() ? Expr(1) : self_sizes(c)[self_dim(c)];
}

// --- the primitive
// --------------------------------------------------------------------------------

Element below(Element a, Element b) {
  if (!is_float(a.dtype())) return a < b;
  return either(a < b, both(not_equal(b, b), equal(a, a)));
}
/// Places take half the memory where they are known to fit.
DType place_dtype(const Call& c) {
  return self_sizes(c).back().range().hi < INT32_MAX ? DType::i32 : DType::i64;
}
/// Number of elements that come before this one, at most `limit`.
Definition count_before(Lowering& lowering, const Call& c) {
  Definition definition;
  definition.kind = Definition::Kind::reduce;
  definition.combiner = loop::Combiner::sum;
  definition.reduce_sizes = {self_sizes(c).back()};
  DType dtype = place_dtype(c);
  definition.input = [&lowering, c, dtype](const Index& out, const Index& r) {
    loop::ScalarPool& pool = lowering.scalars();
    Index at = out;
    at.back() = r[0];
    Element mine{pool, lowering.load(c.value("self"), out)};
    Element other{pool, lowering.load(c.value("self"), at)};
    if (mine.dtype() == DType::boolean) {
      mine = mine.cast(DType::i32);
      other = other.cast(DType::i32);
    }
    bool down = c.boolean("descending");
    Element earlier{pool, pool.binary(Opcode::lt, pool.index(r[0]), pool.index(out.back()))};
    Element before = down ? below(mine, other) : below(other, mine);
    Element after = down ? below(other, mine) : below(mine, other);
    Element not_after = after.apply(Opcode::logical_not);
    return std::vector<loop::Val>{either(before, both(earlier, not_after)).cast(dtype).value()};
  };
  if (int64_t limit = c.constant("limit"); limit >= 0)
    definition.finish = [&lowering, limit](std::span<const loop::Val> counts, const Index&) {
      Element count{lowering.scalars(), counts[0]};
      Element most{lowering.scalars(), lowering.scalars().integer(count.dtype(), limit)};
      return std::vector<loop::Val>{min(count, most).value()};
    };
  return definition;
}
std::string sort_declines(const Call& c, const Target&) {
  std::optional<int64_t> length = self_sizes(c).back().constant();
  if (length && *length <= kShortRow) return "short rows are compared pair by pair";
  return "";
}
const OpDef kRanks{
    .schema = "tandem::ranks(Tensor self, bool descending, int limit) -> Tensor",
    .types = [](const Call& c) -> Types {
      if (self_sizes(c).empty()) c.fail(c.describe("self") + " has no rows");
      return {ir::Type::tensor(place_dtype(c), self_sizes(c))};
    },
    .lower = count_before,
    .no_grad = kPosition,
    .fast = {{RouteKind::rank, sort_declines}},
    .samples = {"$[3, 5], false, -1", "$[40], true, 7", "$[3, 20]:special, true, -1",
                "$[2, 3, 17]{3, 1, 6}, false, 30", "$[0], false, -1", "$[2, 0], true, 3"},
    .sample_dtypes = DTypes::all,
    .batch = batch_along_dims};

/// Places along dimension `dim`; those from `limit` on are `limit` (negative: none are cut).
Tensor ranks(Tensor x, int64_t dim, bool descending, int64_t limit = -1) {
  int64_t last = x.rank() - 1;
  if (dim != last) x = transpose(x, dim, last);
  Tensor places = call(x.builder(), "tandem.ranks", {x, descending, limit});
  return dim == last ? places : transpose(places, dim, last);
}
/// 0, 1, … along dim, of x's sizes.
Tensor positions(Tensor x, int64_t dim) {
  Sizes row(static_cast<size_t>(x.rank()), Expr(1));
  row[dim] = x.size(dim);
  return expand(reshape(arange(x.builder(), x.size(dim), DType::i64), row), x.sizes());
}
// Integers stay integers beside integers.
Tensor plus(Tensor x, int64_t number) { return call(x.builder(), "aten.add.Scalar", {x, number}); }
Tensor or_zero(Tensor condition, Tensor x) {
  return call(x.builder(), "aten.where.ScalarOther", {condition, x, 0});
}
/// result[places[i]] = x[i] along dim, which gets `extent` elements.
Tensor put(const Call& c, Tensor x, Tensor places, int64_t dim, Expr extent) {
  Builder& b = x.builder();
  Sizes sizes = x.sizes();
  sizes[dim] = extent;
  Tensor zeros = full(b, sizes, 0, x.dtype());
  return call(b, "tandem.scatter",
              {zeros, dim, places, x, false, c.op().schema.full_name().c_str()});
}

// The gradient of each result goes to the element that it is.
Gradients picked_vjp(Builder& b, const Call& c, Grads g) {
  if (!g[0]) return {};
  if (self_sizes(c).empty()) return {{"self", reshape(g[0], {})}};
  int64_t dim = self_dim(c);
  Tensor grad = g[0];
  Tensor indices{b, c.result(1)};
  if (indices.rank() < c.type("self").rank()) {
    indices = unsqueeze(indices, dim);
    grad = unsqueeze(grad, dim);
  }
  Tensor zeros = full(b, self_sizes(c), 0, grad.dtype());
  return {{"self", call(b, "aten.scatter.src", {zeros, dim, indices, grad})}};
}

// --- sort
// -----------------------------------------------------------------------------------------

Types values_and_indices(const Call& c, const Sizes& sizes) {
  return {ir::Type::tensor(c.type("self").dtype, sizes), ir::Type::tensor(DType::i64, sizes)};
}
Types sort_types(const Call& c) {
  self_dim(c);
  return values_and_indices(c, self_sizes(c));
}
Tensors sorted(Builder& b, const Call& c) {
  Tensor x = self_of(b, c);
  if (x.rank() == 0) return {x, full(b, {}, 0, DType::i64)};
  int64_t dim = self_dim(c);
  Tensor places = ranks(x, dim, c.boolean("descending"));
  return {put(c, x, places, dim, x.size(dim)), put(c, positions(x, dim), places, dim, x.size(dim))};
}
const OpDef kSort{.schema =
                      "aten::sort(Tensor self, int dim=-1, bool descending=False) -> (Tensor "
                      "values, Tensor indices)",
                  .types = sort_types,
                  .decompose = sorted,
                  .vjp = picked_vjp,
                  // Without equal elements: eager's order of those is any.
                  .samples = {"f32[3, 4]", "f64[3, 4], 0", "f32[2, 30, 3], 1, true", "$[]",
                              "$[0, 3], 0", "f64[40]", "f32[20, 3]{1, 20}, 0", "$[3], 1"},
                  .sample_dtypes = DTypes::all};
const OpDef kSortStable{
    .schema =
        "aten::sort.stable(Tensor self, *, bool? stable, int dim=-1, bool descending=False) "
        "-> (Tensor values, Tensor indices)",
    .types = sort_types,
    .decompose = sorted,
    .vjp = picked_vjp,
    .samples = {"$[3, 4], stable=true", "$[3, 40], stable=true, descending=true",
                "$[3, 50]:special, stable=true", "$[3, 50]:special, stable=true, descending=true",
                "$[20, 3]{1, 20}, stable=true, dim=0", "f32[20, 3], stable=none, dim=0",
                "$[3, 14]:special, stable=true", "$[3, 14]:special, stable=true, descending=true"},
    .sample_dtypes = DTypes::all};
Types argsort_types(const Call& c) { return {sort_types(c)[1]}; }
Tensors argsorted(Builder& b, const Call& c) { return {sorted(b, c)[1]}; }
const OpDef kArgsort{
    .schema = "aten::argsort(Tensor self, int dim=-1, bool descending=False) -> Tensor",
    .types = argsort_types,
    .decompose = argsorted,
    .no_grad = kPosition,
    .samples = {"f32[3, 4]", "f64[30, 2], 0, true", "$[]"},
    .sample_dtypes = DTypes::all};
const OpDef kArgsortStable{
    .schema =
        "aten::argsort.stable(Tensor self, *, bool stable, int dim=-1, bool "
        "descending=False) -> Tensor",
    .types = argsort_types,
    .decompose = argsorted,
    .no_grad = kPosition,
    .samples = {"$[3, 4], stable=true", "$[30, 2], stable=true, dim=0, descending=true"},
    .sample_dtypes = DTypes::all};
const OpDef kMsort{.schema = "aten::msort(Tensor self) -> Tensor",
                   .types = unary_same,
                   .decompose = [](Builder& b, const Call& c) -> Tensors {
                     return {call_many(b, "aten.sort", {self_of(b, c), 0})[0]};
                   },
                   .samples = {"$[3, 4]", "$[40]", "$[]"},
                   .out = true};

// --- topk
// -----------------------------------------------------------------------------------------

Types topk_types(const Call& c) {
  Expr k = c.integer("k");
  if (k.range().hi < 0 || sym::known_lt(row_length(c), k))
    c.fail(fmt::format("k {} is not within dimension {} of {}", sym::to_string(k), self_dim(c),
                       c.describe("self")));
  Sizes sizes = self_sizes(c);
  if (!sizes.empty()) sizes[self_dim(c)] = k;
  return values_and_indices(c, sizes);
}
/// What does not belong to the k largest lands on a place behind them, which is cut off.
Tensors topk(Builder& b, const Call& c) {
  Tensor x = self_of(b, c);
  if (x.rank() == 0) return {x, full(b, {}, 0, DType::i64)};
  int64_t dim = self_dim(c);
  Expr k = c.integer("k");
  bool cuts = k.constant().has_value() && k != x.size(dim);
  Tensor places = ranks(x, dim, c.boolean("largest"), cuts ? *k.constant() : -1);
  Expr extent = cuts ? k + 1 : x.size(dim);
  Tensor indices = slice(put(c, positions(x, dim), places, dim, extent), dim, 0, k);
  return {call(b, "aten.gather", {x, dim, indices}), indices};
}
const OpDef kTopk{
    .schema =
        "aten::topk(Tensor self, SymInt k, int dim=-1, bool largest=True, bool sorted=True) "
        "-> (Tensor values, Tensor indices)",
    .types = topk_types,
    .decompose = topk,
    .vjp = picked_vjp,
    .samples = {"f32[3, 4], 2", "f64[3, 4], 2, 0", "f32[2, 30], 5", "f32[30, 2], 30, 0",
                "f64[2, 30], 5, 1, false", "$[3, 4], 0", "$[], 1", "$[5], 6", "$[5], -1",
                "f64[2, 100], 3, 1, true, true"}};

// --- one place of the sorted row
// ------------------------------------------------------------------

Types selected_types(const Call& c) {
  Sizes sizes = self_sizes(c);
  if (!sizes.empty()) {
    if (c.boolean("keepdim"))
      sizes[self_dim(c)] = 1;
    else
      sizes.erase(sizes.begin() + self_dim(c));
  } else {
    self_dim(c);
  }
  return values_and_indices(c, sizes);
}
void need_elements(const Call& c) {
  if (row_length(c) == Expr(0))
    c.fail(fmt::format("dimension {} of {} has no elements", self_dim(c), c.describe("self")));
}
/// The elements whose place is `place` (which keeps dim), and where they stand.
Tensors at_place(Builder& b, const Call& c, Tensor places, Tensor place) {
  Tensor x = self_of(b, c);
  int64_t dim = self_dim(c);
  Tensor found = or_zero(eq(places, place), positions(x, dim));
  Tensor index = sum(found, {dim}, true);
  Tensor value = call(b, "aten.gather", {x, dim, index});
  const Sizes& sizes = c.result()->type.sizes;
  return {reshape(value, sizes), reshape(index, sizes)};
}

const OpDef kKthvalue{
    .schema =
        "aten::kthvalue(Tensor self, SymInt k, int dim=-1, bool keepdim=False) -> (Tensor "
        "values, Tensor indices)",
    .types =
        [](const Call& c) {
          need_number(c, "self");
          need_elements(c);
          if (!(sym::known_le(1, c.integer("k")) && sym::known_le(c.integer("k"), row_length(c))))
            c.fail(fmt::format("k {} is not within dimension {} of {}",
                               sym::to_string(c.integer("k")), self_dim(c), c.describe("self")));
          return selected_types(c);
        },
    .decompose = [](Builder& b, const Call& c) -> Tensors {
      Tensor x = self_of(b, c);
      if (x.rank() == 0) return {x, full(b, {}, 0, DType::i64)};
      Expr k = c.integer("k");
      Tensor places = ranks(x, self_dim(c), false, k.constant().value_or(-1));
      Tensor place = call(b, "aten.scalar_tensor", {k - 1, DType::i64});
      return at_place(b, c, places, place);
    },
    .vjp = picked_vjp,
    .samples = {"$[3, 4], 2", "$[3, 4], 1, 0, true", "$[2, 30], 30", "$[30], 7", "$[], 1",
                "$[4], 5", "$[4], 0", "$[0], 1"}};

bool ignores_nan(const Call& c) { return c.op().schema.name == "aten::nanmedian"; }
/// Place of the median along dim: of n elements (n - 1) / 2. A NaN is the median, the first one;
/// nanmedian takes numbers only as long as there are any.
Tensor median_place(const Call& c, Tensor x, int64_t dim) {
  Builder& b = x.builder();
  Tensor numbers = sum(to(eq(x, x), DType::i64), {dim}, true);
  Tensor length = call(b, "aten.scalar_tensor", {x.size(dim), DType::i64});
  Tensor middle_of = ignores_nan(c) ? call(b, "aten.clamp", {numbers, 1}) : length;
  Tensor middle =
      to(call(b, "aten.floor", {to(plus(middle_of, -1), DType::f64) * 0.5}), DType::i64);
  if (ignores_nan(c)) return middle;
  return where(eq(numbers, length), expand(middle, numbers.sizes()), numbers);
}
Tensors median(Builder& b, const Call& c) {
  Tensor x = self_of(b, c);
  if (x.rank() == 0) return {x, full(b, {}, 0, DType::i64)};
  int64_t dim = self_dim(c);
  return at_place(b, c, ranks(x, dim, false), median_place(c, x, dim));
}
Types median_types(const Call& c) {
  need_number(c, "self");
  need_elements(c);
  return selected_types(c);
}
// The gradient is shared equally between the elements that equal the median, NaNs included.
Gradients whole_median_vjp(Builder& b, const Call& c, Grads g) {
  Tensor self = self_of(b, c);
  Tensor result{b, c.result()};
  Tensor nan =
      call(b, "aten.logical_and", {compare("ne", self, self), compare("ne", result, result)});
  Tensor reached = to(call(b, "aten.logical_or", {eq(self, result), nan}), self.dtype());
  return {{"self", where(compare("ne", reached, 0.0), g[0] / sum_all(reached), 0.0)}};
}
Tensors whole_median(Builder& b, const Call& c) {
  Tensor x = self_of(b, c);
  if (x.type().numel() == Expr(0)) return {to(full(b, {}, NAN, DType::f64), x.dtype())};
  std::string op = std::string(ignores_nan(c) ? "aten.nanmedian" : "aten.median") + ".dim";
  return {call_many(b, op, {reshape(x, {x.type().numel()}), 0})[0]};
}
#define TANDEM_MEDIAN(Name, text)                                                                 \
  const OpDef Name##Dim{                                                                          \
      .schema = "aten::" text                                                                     \
                ".dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor "       \
                "indices)",                                                                       \
      .types = median_types,                                                                      \
      .decompose = median,                                                                        \
      .vjp = picked_vjp,                                                                          \
      .samples = {"$[3, 5], 1", "$[3, 4], 0, true", "$[2, 31], -1", "$[30], 0", "$[], 0",         \
                  "$[0, 3], 0", "$[2, 21, 3], 1"}};                                               \
  const OpDef Name {                                                                              \
    .schema = "aten::" text "(Tensor self) -> Tensor",                                            \
    .types = [](const Call& c) -> Types {                                                         \
      need_number(c, "self");                                                                     \
      return {ir::Type::tensor(c.type("self").dtype, {})};                                        \
    },                                                                                            \
    .decompose = whole_median, .vjp = whole_median_vjp,                                           \
    .samples = {"$[3, 5]", "$[2, 2]", "$[40]", "$[]", "f32[0]", "$[40]:special", "$[6]:special"}, \
    .sample_dtypes = DTypes::numbers, .out = true                                                 \
  }
TANDEM_MEDIAN(kMedian, "median");
TANDEM_MEDIAN(kNanmedian, "nanmedian");
#undef TANDEM_MEDIAN

// --- mode
// -----------------------------------------------------------------------------------------

/// The longest run of the sorted row, the first among equals; the last element of it.
Tensors mode(Builder& b, const Call& c) {
  Tensor x = self_of(b, c);
  if (x.rank() == 0) return {x, full(b, {}, 0, DType::i64)};
  int64_t dim = self_dim(c);
  Expr length = x.size(dim);
  Tensors pairs = call_many(b, "aten.sort", {x, dim});
  Tensor at = positions(x, dim);
  Tensor next = call(b, "aten.roll", {pairs[0], ir::Ints{-1}, std::vector<int64_t>{dim}});
  Tensor last = call(b, "aten.eq.Scalar", {at, length - 1});
  Tensor ends = call(b, "aten.logical_or", {compare("ne", pairs[0], next), last});
  Tensor starts = call(b, "aten.roll", {ends, ir::Ints{1}, std::vector<int64_t>{dim}});
  Tensor start = call_many(b, "aten.cummax", {or_zero(starts, at), dim})[0];
  Tensor run = or_zero(ends, plus(at - start, 1));
  Tensor best = call(b, "aten.argmax", {run, dim, true});
  Tensor value = call(b, "aten.gather", {pairs[0], dim, best});
  Tensor index = call(b, "aten.gather", {pairs[1], dim, best});
  const Sizes& sizes = c.result()->type.sizes;
  return {reshape(value, sizes), reshape(index, sizes)};
}
const OpDef kMode{.schema =
                      "aten::mode(Tensor self, int dim=-1, bool keepdim=False) -> (Tensor "
                      "values, Tensor indices)",
                  .types =
                      [](const Call& c) {
                        need_elements(c);
                        return selected_types(c);
                      },
                  .decompose = mode,
                  .vjp = picked_vjp,
                  .samples = {"$[3, 5]", "$[3, 9], 1, true", "$[12, 2], 0", "$[]", "$[0]"},
                  .sample_dtypes = DTypes::all};

const OpDef kSelectingBackward{
    .schema =
        "aten::value_selecting_reduction_backward(Tensor grad, int dim, Tensor indices, "
        "SymInt[] sizes, bool keepdim) -> Tensor",
    .types = [](const Call& c) -> Types {
      c.dim("dim", static_cast<int64_t>(c.ints("sizes").size()));
      return {ir::Type::tensor(c.type("grad").dtype, c.ints("sizes"))};
    },
    .decompose = [](Builder& b, const Call& c) -> Tensors {
      Tensor grad{b, c.value("grad")};
      Tensor indices{b, c.value("indices")};
      const Sizes& sizes = c.ints("sizes");
      int64_t dim = c.dim("dim", static_cast<int64_t>(sizes.size()));
      if (!c.boolean("keepdim") && !sizes.empty()) {
        grad = unsqueeze(grad, dim);
        indices = unsqueeze(indices, dim);
      }
      return {call(b, "aten.scatter.src", {full(b, sizes, 0, grad.dtype()), dim, indices, grad})};
    },
    .samples = {"$[3], 1, i64[3]:index(4), [3, 4], false",
                "$[1, 4], 0, i64[1, 4]:index(3), [3, 4], true",
                "$[], 0, i64[]:index(1), [], false"}};

const OpDef* const kOps[] = {
    &kRanks,    &kSort,   &kSortStable, &kArgsort,   &kArgsortStable, &kMsort, &kTopk,
    &kKthvalue, &kMedian, &kMedianDim,  &kNanmedian, &kNanmedianDim,  &kMode,  &kSelectingBackward};

}  // namespace

Family sort_family() { return kOps; }

}  // namespace tandem::ops
