// Products of groups of rows, each with a matrix of its own (mixtures of experts). `offs` holds the
// end of each group, ascending: group g has the rows offs[g - 1] <= i < offs[g]. Inside, each row
// has its group's number, so that a call with other offsets is the same program; rows behind the
// last group have the number of groups, and their results are 0 (eager leaves them unwritten).
//   rows:  C[i, n] = sum_k A[i, k] B[group i, k, n]
//   sums:  C[g, m, n] = sum over the i of group g of A[m, i] B[i, n]
// Each is the other's gradient. The route is a library product for each group.
#include <fmt/format.h>

#include "base/diagnostic.h"
#include "ops/elements.h"
#include "ops/families.h"

namespace tandem::ops {
namespace {

Tensor tensor(Builder& b, const Call& c, std::string_view name) { return {b, c.value(name)}; }

void need_equal(const Call& c, std::string_view what, Expr a, Expr b) {
  if (a != b && !sym::known_eq(a, b))
    c.fail(fmt::format("{} and {}: {} {} and {} differ", c.describe("self"), c.describe("mat2"),
                       what, sym::to_string(a), sym::to_string(b)));
}

std::string library_declines(const Call& c, const Target&) {
  DType dtype = c.type("self").dtype;
  if (dtype == DType::f32 || dtype == DType::bf16) return "";
  return fmt::format("the library has no {} product", name_of(dtype));
}

// --- the primitives
// -------------------------------------------------------------------------------

/// Factors of two dtypes or of a dtype without products; `groups` must number all of `rows`.
void check_factors(const Call& c, Expr rows) {
  need_number(c, "self");
  need_same_dtype(c, {"self", "mat2"});
  need_rank(c, "groups", 1, 1);
  if (c.type("groups").dtype != DType::i64) c.fail(c.describe("groups") + " must have dtype i64");
  Expr count = c.type("groups").sizes[0];
  if (count != rows && !sym::known_eq(count, rows))
    c.fail(c.describe("groups") + " must have a number for each row");
}

/// The sum over r of a product, in the accumulation type.
template <class Factors>
Definition sum_of_products(Expr extent, Factors factors) {
  Definition definition;
  definition.kind = Definition::Kind::reduce;
  definition.combiner = loop::Combiner::sum;
  definition.reduce_sizes = {extent};
  definition.input = [factors](const Index& out, const Index& r) {
    return std::vector<loop::Val>{factors(out, r[0]).value()};
  };
  return definition;
}

Element group_of(Lowering& lowering, const Call& c, Expr row) {
  return {lowering.scalars(), lowering.load(c.value("groups"), {row})};
}

Definition rows_lower(Lowering& lowering, const Call& c) {
  DType dtype = compute_type(c.type("self").dtype);
  return sum_of_products(c.type("self").sizes[1], [&lowering, c, dtype](const Index& out, Expr k) {
    loop::ScalarPool& pool = lowering.scalars();
    Expr count = c.type("mat2").sizes[0];
    Element group = group_of(lowering, c, out[0]);
    Element inside = both(group >= group.integer(0), group < Element{pool, pool.index(count)});
    Expr number = pool.as_index(group.value(), count);
    Element x{pool, lowering.load(c.value("self"), {out[0], k}, inside.value())};
    Element y{pool, lowering.load(c.value("mat2"), {number, k, out[1]}, inside.value())};
    return x.cast(dtype) * y.cast(dtype);
  });
}

Definition sums_lower(Lowering& lowering, const Call& c) {
  DType dtype = compute_type(c.type("self").dtype);
  return sum_of_products(c.type("self").sizes[1], [&lowering, c, dtype](const Index& out, Expr i) {
    loop::ScalarPool& pool = lowering.scalars();
    Element inside = equal(group_of(lowering, c, i), {pool, pool.index(out[0])});
    Element x{pool, lowering.load(c.value("self"), {out[1], i}, inside.value())};
    Element y{pool, lowering.load(c.value("mat2"), {i, out[2]}, inside.value())};
    return x.cast(dtype) * y.cast(dtype);
  });
}

Tensor grouped_rows(Tensor a, Tensor b, Tensor groups) {
  return call(a.builder(), "tandem.grouped_rows", {a, b, groups});
}
Tensor grouped_sums(Tensor a, Tensor b, Tensor groups, Expr count) {
  return call(a.builder(), "tandem.grouped_sums", {a, b, groups, count});
}

// dA[i, k] = sum_n G[i, n] B[group i, k, n];  dB[g, k, n] = sum over the i of g of A[i, k] G[i, n]
Gradients rows_vjp(Builder& b, const Call& c, Grads g) {
  Tensor self = tensor(b, c, "self");
  Tensor mat2 = tensor(b, c, "mat2");
  Tensor groups = tensor(b, c, "groups");
  return {{"self", grouped_rows(g[0], transpose(mat2, 1, 2), groups)},
          {"mat2", grouped_sums(t(self), g[0], groups, mat2.size(0))}};
}
const OpDef kGroupedRows{
    .schema = "tandem::grouped_rows(Tensor self, Tensor mat2, Tensor groups) -> Tensor",
    .types = [](const Call& c) -> Types {
      need_rank(c, "self", 2, 2);
      need_rank(c, "mat2", 3, 3);
      const ir::Type& a = c.type("self");
      const ir::Type& b = c.type("mat2");
      check_factors(c, a.sizes[0]);
      need_equal(c, "inner sizes", a.sizes[1], b.sizes[1]);
      return {ir::Type::tensor(a.dtype, {a.sizes[0], b.sizes[2]})};
    },
    .lower = rows_lower,
    .vjp = rows_vjp,
    .fast = {{RouteKind::grouped_rows, library_declines}},
    .samples = {"$[5, 3], $[1, 3, 4], i64[5]:index(1)", "$[9, 3], $[2, 3, 4], i64[9]:index(3)",
                "$[0, 3], $[2, 3, 4], i64[0]", "$[5, 0], $[1, 0, 4], i64[5]:index(1)",
                "$[40, 70], $[1, 70, 33]{2310, 1, 70}, i64[40]:index(1)"}};

// dA[m, i] = sum_n B[i, n] G[group i, m, n];  dB[i, n] = sum_m A[m, i] G[group i, m, n]
Gradients sums_vjp(Builder& b, const Call& c, Grads g) {
  Tensor groups = tensor(b, c, "groups");
  Tensor self = grouped_rows(tensor(b, c, "mat2"), transpose(g[0], 1, 2), groups);
  return {{"self", t(self)}, {"mat2", grouped_rows(t(tensor(b, c, "self")), g[0], groups)}};
}
const OpDef kGroupedSums{
    .schema =
        "tandem::grouped_sums(Tensor self, Tensor mat2, Tensor groups, SymInt count) -> Tensor",
    .types = [](const Call& c) -> Types {
      need_rank(c, "self", 2, 2);
      need_rank(c, "mat2", 2, 2);
      const ir::Type& a = c.type("self");
      const ir::Type& b = c.type("mat2");
      check_factors(c, a.sizes[1]);
      need_equal(c, "inner sizes", a.sizes[1], b.sizes[0]);
      return {ir::Type::tensor(a.dtype, {c.integer("count"), a.sizes[0], b.sizes[1]})};
    },
    .lower = sums_lower,
    .vjp = sums_vjp,
    .fast = {{RouteKind::grouped_sums, library_declines}},
    .samples = {"$[3, 5], $[5, 4], i64[5]:index(1), 1", "$[3, 5], $[5, 4], i64[5]:index(1), 3",
                "$[3, 0], $[0, 4], i64[0], 2", "$[70, 40]{1, 70}, $[40, 33], i64[40]:index(1), 2"}};

// --- the operator
// ---------------------------------------------------------------------------------

/// The size that groups cut: rows of self, columns of mat2, or what is summed over.
Expr grouped_extent(const Call& c) {
  const ir::Type& a = c.type("self");
  const ir::Type& b = c.type("mat2");
  if (a.rank() == 2) return b.rank() == 3 ? a.sizes[0] : a.sizes[1];
  return b.sizes.back();
}
Sizes grouped_sizes(const Call& c) {
  const ir::Type& a = c.type("self");
  const ir::Type& b = c.type("mat2");
  Expr rows = a.sizes[a.sizes.size() - 2];
  Expr columns = b.sizes.back();
  if (a.rank() == 3 && b.rank() == 3) return {a.sizes[0], rows, columns};
  if (a.rank() == 2 && b.rank() == 2) return {c.type("offs").sizes[0], rows, columns};
  return {rows, columns};
}
void check_offsets(const Call& c) {
  const ir::Type& a = c.type("self");
  const ir::Type& b = c.type("mat2");
  const bool has_groups = a.rank() == 2 || b.rank() == 2;
  if (c.has("offs") != has_groups)
    c.fail(has_groups ? "a 2-d factor needs offs: the end of each group"
                      : "offs must be absent where both factors have 3 dimensions");
  if (!has_groups) return need_equal(c, "numbers of matrices", a.sizes[0], b.sizes[0]);
  need_rank(c, "offs", 1, 1);
  if (c.type("offs").dtype != DType::i32) c.fail(c.describe("offs") + " must have dtype i32");
  if (a.rank() == b.rank()) return;
  Expr matrices = a.rank() == 3 ? a.sizes[0] : b.sizes[0];
  Expr groups = c.type("offs").sizes[0];
  if (groups != matrices && !sym::known_eq(groups, matrices))
    c.fail(c.describe("offs") + " must have an end for each matrix");
}
Types grouped_types(const Call& c) {
  need_rank(c, "self", 2, 3);
  need_rank(c, "mat2", 2, 3);
  const ir::Type& a = c.type("self");
  const ir::Type& b = c.type("mat2");
  need_number(c, "self");
  need_same_dtype(c, {"self", "mat2"});
  need_equal(c, "inner sizes", a.sizes.back(), b.sizes[b.sizes.size() - 2]);
  check_offsets(c);
  if (c.has("bias")) c.fail("a bias is not supported, as in eager");
  if (c.dtype("out_dtype", a.dtype) != a.dtype) c.fail("out_dtype must be the factors' dtype");
  return {ir::Type::tensor(a.dtype, grouped_sizes(c))};
}

/// The number of each row's group: how many groups end at or before it.
Tensor group_numbers(Builder& b, const Call& c) {
  Tensor rows = arange(b, grouped_extent(c), DType::i64);
  Tensor ends = to(tensor(b, c, "offs"), DType::i64);
  return call(b, "aten.searchsorted.Tensor", {ends, rows, false, true});
}

Tensors grouped_mm(Builder& b, const Call& c) {
  Tensor self = tensor(b, c, "self");
  Tensor mat2 = tensor(b, c, "mat2");
  if (self.rank() == 3 && mat2.rank() == 3) return {bmm(self, mat2)};
  Tensor groups = group_numbers(b, c);
  if (self.rank() == 2 && mat2.rank() == 3) return {grouped_rows(self, mat2, groups)};
  if (self.rank() == 2) return {grouped_sums(self, mat2, groups, c.type("offs").sizes[0])};
  return {t(grouped_rows(t(mat2), transpose(self, 1, 2), groups))};
}
const OpDef kGroupedMm{
    .schema =
        "aten::_grouped_mm(Tensor self, Tensor mat2, Tensor? offs=None, Tensor? bias=None, "
        "ScalarType? out_dtype=None) -> Tensor",
    .types = grouped_types,
    .decompose = grouped_mm,
    .samples = {"f32[2, 4, 8], f32[2, 8, 4]", "bf16[2, 8, 16], bf16[2, 16, 8]",
                "f32[4, 8], f32[2, 8, 4], i32[1]", "f32[4, 8], f32[2, 8, 4]"}};

/// The same with ends of i32 or i64, by the name under which transformers' mixtures of experts
/// call it in f32 (a custom operator of theirs, so that torch.compile sees no loop).
const OpDef kExperts{
    .schema =
        "transformers::grouped_mm_fallback(Tensor input, Tensor weight, Tensor offs) -> Tensor",
    .types = [](const Call& c) -> Types {
      need_rank(c, "input", 2, 2);
      need_rank(c, "weight", 3, 3);
      need_rank(c, "offs", 1, 1);
      need_same_dtype(c, {"input", "weight"});
      return {ir::Type::tensor(c.type("input").dtype,
                               {c.type("input").sizes[0], c.type("weight").sizes[2]})};
    },
    .decompose = [](Builder& b, const Call& c) -> Tensors {
      Tensor ends = to(tensor(b, c, "offs"), DType::i32);
      return {call(b, "aten._grouped_mm", {tensor(b, c, "input"), tensor(b, c, "weight"), ends})};
    },
    .samples = {"f32[4, 3], f32[2, 3, 5], i32[2]:index(1)",
                "bf16[0, 3], bf16[1, 3, 5], i64[1]:index(1)"}};

const OpDef* const kOps[] = {&kGroupedRows, &kGroupedSums, &kGroupedMm, &kExperts};

}  // namespace

Family grouped_product_family() { return kOps; }

}  // namespace tandem::ops
