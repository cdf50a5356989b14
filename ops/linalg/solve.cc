// Systems of equations with a triangular matrix. By decomposition: forward substitution has a step
// for each row, and a graph of so many nodes; halves of the matrix have log2 of them, and are
// products, for all blocks of one size and all matrices of a batch at once:
//   [a 0; c d]^-1 = [a^-1 0; -d^-1 c a^-1, d^-1]
// A product with the inverse leaves a residual that substitution does not, so it is taken off once.
// B is taken in the matrix's dtype, whichever it has, as eager takes it.
// What cannot be inverted gives infinities and NaN, in eager from its row on, here in all rows.
#include <fmt/format.h>

#include <bit>

#include "base/diagnostic.h"
#include "ops/linalg/operands.h"

namespace tandem::ops {

using namespace linalg;  // NOLINT(google-build-using-namespace): what the files of linalg/ share

namespace {

Tensor transposed(Tensor x) { return transpose(x, -2, -1); }

/// Sizes but the last two.
Sizes batch_of(const Sizes& sizes) { return {sizes.begin(), sizes.end() - 2}; }

Sizes with(Sizes batch, std::initializer_list<Expr> last) {
  batch.insert(batch.end(), last);
  return batch;
}

Types solve_types(const Call& c) {
  const ir::Type& a = c.type("self");
  const ir::Type& b = c.type("B");
  if (a.rank() < 2 || b.rank() < 2) c.fail("both operands need at least 2 dimensions");
  if (a.dtype != DType::f32 && a.dtype != DType::f64)
    throw Unsupported(fmt::format("[{}] of {}: not implemented (ops); f32 and f64 are",
                                  c.op().schema.full_name(), name_of(a.dtype)));
  const Expr order = a.sizes.back();
  need_equal(c, order, a.sizes[a.sizes.size() - 2]);
  need_equal(c, order, b.sizes[b.sizes.size() - (c.boolean("left") ? 2 : 1)]);
  if (!order.constant())
    throw Unsupported(fmt::format("[{}] of matrices of unknown order {}: not implemented (ops)",
                                  c.op().schema.full_name(), sym::to_string(order)));
  const Sizes batch = broadcast(c, batch_of(a.sizes), batch_of(b.sizes));
  return {ir::Type::tensor(a.dtype, with(batch, {b.sizes[b.sizes.size() - 2], b.sizes.back()}))};
}

/// What of the matrix counts.
Tensor triangle(Builder& b, Tensor a, bool upper, bool has_ones) {
  const int64_t diagonal = !has_ones ? 0 : upper ? 1 : -1;
  const Tensor part = call(b, upper ? "aten.triu" : "aten.tril", {a, diagonal});
  return has_ones ? part + call(b, "aten.eye", {a.size(-1), a.dtype()}) : part;
}

/// With ones on the diagonal behind it, up to that order.
Tensor padded(Builder& b, Tensor lower, int64_t order, int64_t whole) {
  if (order == whole) return lower;
  const int64_t more = whole - order;
  const Tensor zeros = call(b, "aten.constant_pad_nd", {lower, ir::Ints{0, more, 0, more}, 0.0});
  const Tensor is_behind = compare("ge", arange(b, whole, DType::i64), static_cast<double>(order));
  return zeros + call(b, "aten.diag_embed", {to(is_behind, lower.dtype())});
}

/// The blocks below the diagonal of each pair: [.., pairs, side, side] of [.., n, n].
Tensor blocks_below(Builder& b, Tensor lower, int64_t order, int64_t side) {
  const int64_t pairs = order / (2 * side);
  const Sizes sizes = with(batch_of(lower.sizes()), {pairs, 2 * side, pairs, 2 * side});
  const Tensor diagonal =
      call(b, "aten.diagonal", {reshape(lower, sizes), int64_t{0}, int64_t{-4}, int64_t{-2}});
  const Tensor block = slice(slice(diagonal, -3, side, 2 * side), -2, 0, side);
  return call(b, "aten.movedim.int", {block, int64_t{-1}, int64_t{-3}});
}

/// Of blocks [.., pairs, 2, side, side] on the diagonal, the inverses of all [.., pairs, 2 side,
/// 2 side].
Tensor joined(Builder& b, Tensor inverses, Tensor below) {
  const Tensor first = select(inverses, -3, 0);
  const Tensor second = select(inverses, -3, 1);
  const Tensor corner = call(b, "aten.neg", {matmul(matmul(second, below), first)});
  return cat({cat({first, zeros_like(first)}, -1), cat({corner, second}, -1)}, -2);
}

Tensor inverse_of_lower(Builder& b, Tensor lower, int64_t order) {
  const Sizes batch = batch_of(lower.sizes());
  const int64_t whole = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(order)));
  const Tensor all = padded(b, lower, order, whole);
  const Tensor diagonal = call(b, "aten.diagonal", {all, int64_t{0}, int64_t{-2}, int64_t{-1}});
  Tensor inverses = reciprocal(reshape(diagonal, with(batch, {whole, 1, 1})));
  for (int64_t side = 1; side < whole; side *= 2) {
    const Sizes pairs = with(batch, {whole / (2 * side), 2, side, side});
    inverses = joined(b, reshape(inverses, pairs), blocks_below(b, all, whole, side));
  }
  const Tensor inverse = reshape(inverses, with(batch, {whole, whole}));
  return order == whole ? inverse : slice(slice(inverse, -2, 0, order), -1, 0, order);
}

Tensors solve(Builder& b, const Call& c) {
  const Tensor right = to(tensor(b, c, "B"), c.type("self").dtype);
  const bool upper = c.boolean("upper");
  const bool left = c.boolean("left");
  const int64_t order = *right.size(left ? -2 : -1).constant();
  if (order == 0) return {full(b, c.result()->type.sizes, 0, right.dtype())};
  const Tensor a = triangle(b, self_of(b, c), upper, c.boolean("unitriangular"));
  const Tensor lower = inverse_of_lower(b, upper ? transposed(a) : a, order);
  const Tensor inverse = upper ? transposed(lower) : lower;
  const auto product = [&](Tensor matrix, Tensor x) {
    return left ? matmul(matrix, x) : matmul(x, matrix);
  };
  const Tensor x = product(inverse, right);
  return {x + product(inverse, right - product(a, x))};
}

// a x = b: db = a^-T dx, da = -db x^T; x a = b: db = dx a^-T, da = -x^T db. Of the triangle.
Gradients solve_vjp(Builder& b, const Call& c, std::span<const Tensor> g) {
  const bool upper = c.boolean("upper");
  const bool left = c.boolean("left");
  const bool has_ones = c.boolean("unitriangular");
  const Tensor x{b, c.result()};
  const Tensor right = call(b, "aten.linalg_solve_triangular",
                            {transposed(self_of(b, c)), g[0], !upper, left, has_ones});
  const Tensor both = left ? matmul(right, transposed(x)) : matmul(transposed(x), right);
  const int64_t diagonal = !has_ones ? 0 : upper ? 1 : -1;
  const Tensor of_triangle = call(b, upper ? "aten.triu" : "aten.tril", {both, diagonal});
  return {{"self", sum_to(call(b, "aten.neg", {of_triangle}), c.type("self"))},
          {"B", to(sum_to(right, c.type("B")), c.type("B").dtype)}};
}

// Random triangles of 20 rows have a condition of millions: `unit` is within [0, 1), and narrow.
const OpDef kSolveTriangular{
    .schema =
        "aten::linalg_solve_triangular(Tensor self, Tensor B, *, bool upper, bool left=True, "
        "bool unitriangular=False) -> Tensor",
    .types = solve_types,
    .decompose = solve,
    .vjp = solve_vjp,
    .samples = {"$[3, 3]:positive, $[3, 2], upper=false", "$[4, 4]:positive, $[4, 5], upper=true",
                "$[2, 5, 5], $[2, 3, 5], upper=false, left=false, unitriangular=true",
                "$[5, 5], $[2, 3, 5], upper=true, left=false, unitriangular=true",
                "$[2, 1, 6, 6], $[3, 6, 1], upper=false, unitriangular=true",
                "$[1, 1]:positive, $[1, 4], upper=true", "$[3, 3]:positive, i32[3, 2], upper=false",
                "$[0, 0], $[0, 2], upper=true", "$[3, 4], $[3, 2], upper=true",
                "$[3, 3], $[2, 3], upper=true"},
    .sample_dtypes = DTypes::f32_only,
    .out = true};

const OpDef* const kOps[] = {&kSolveTriangular};

}  // namespace

Family solve_family() { return kOps; }

}  // namespace tandem::ops
