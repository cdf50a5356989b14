// Positions in the dimensions of a pool, and winners: a maximum with the number of its place.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "ops/nn/pool.h"

namespace tandem::ops::pool {

size_t dims_of(const Call& c) {
  const std::string& name = c.op().schema.name;
  if (name.find("1d") != std::string::npos) return 1;
  return name.find("3d") != std::string::npos ? 3 : 2;
}
void need_planes(const Call& c, std::string_view param) {
  auto dims = static_cast<int64_t>(dims_of(c));
  need_rank(c, param, dims + 1, dims + 2);
}

std::span<const Expr> spatial(const Call& c, const Index& index) {
  return std::span(index).last(dims_of(c));
}
Index moved(Index index, const Index& at) {
  std::ranges::copy(at, index.end() - static_cast<int64_t>(at.size()));
  return index;
}
Sizes plane_sizes(const Call& c, const Sizes& sizes) {
  return {sizes.end() - static_cast<int64_t>(dims_of(c)), sizes.end()};
}
Expr position_in(const Sizes& sizes, std::span<const Expr> at) {
  Expr position = 0;
  for (size_t i = 0; i < sizes.size(); ++i) position = position * sizes[i] + at[i];
  return position;
}

Definition reduction(loop::Combiner combiner, Sizes reduce_sizes) {
  Definition definition;
  definition.kind = Definition::Kind::reduce;
  definition.combiner = combiner;
  definition.reduce_sizes = std::move(reduce_sizes);
  return definition;
}

std::vector<loop::Val> candidate(loop::ScalarPool& pool, loop::Val x, Expr position,
                                 loop::Val inside) {
  loop::Val place = pool.index(position);
  if (is_float(x->dtype))
    place = pool.select(pool.binary(Opcode::ne, x, x), pool.index(Expr(-1) - position), place);
  return {
      pool.select(inside, x, loop::identity_of(pool, loop::Combiner::max, x->dtype)),
      pool.select(inside, place, pool.integer(DType::i64, std::numeric_limits<int64_t>::max()))};
}
std::vector<loop::Val> winner(loop::ScalarPool& pool, std::span<const loop::Val> combined) {
  Element at{pool, combined[1]};
  return {combined[0], choose(at < 0.0, -1.0 - at, at).value()};
}

void check_indices(const Call& c, const Sizes& sizes) {
  if (c.type("indices").dtype != DType::i64 || !same_sizes(c.type("indices").sizes, sizes))
    c.fail(fmt::format("{} must be i64{}", c.describe("indices"), ir::to_string(sizes)));
}
Types gradient_types(const Call& c, const Sizes& result) {
  need_float(c, "self");
  need_same_dtype(c, {"grad_output", "self"});
  if (!same_sizes(c.type("grad_output").sizes, result))
    c.fail(fmt::format("{} must have sizes {}", c.describe("grad_output"), ir::to_string(result)));
  return {ir::Type::tensor(c.type("self").dtype, c.type("self").sizes)};
}

Tensor rows(Tensor x, size_t dims) {
  Sizes sizes(x.sizes().begin(), x.sizes().end() - static_cast<int64_t>(dims));
  sizes.push_back(sym::product(std::span(x.sizes()).last(dims)));
  return reshape(x, sizes);
}
Gradients winners_vjp(Builder& b, const Call& c, Grads g) {
  size_t dims = dims_of(c);
  Tensor read = call(b, "aten.gather", {rows(g[0], dims), -1, rows(tensor(b, c, "indices"), dims)});
  return {{"grad_output", reshape(read, c.type("grad_output").sizes)}};
}

}  // namespace tandem::ops::pool
