// What pools share: positions in the dimensions that they slide over, and the gradient of a winner.
#pragma once

#include "ops/families.h"
#include "ops/window.h"

namespace tandem::ops::pool {

inline Tensor tensor(Builder& b, const Call& c, std::string_view name) {
  return {b, c.value(name)};
}

/// Dimensions pooled over: the number in the op's name (`avg_pool3d`).
size_t dims_of(const Call& call);
/// A tensor of channels, with a batch or without.
void need_planes(const Call& call, std::string_view param);

std::span<const Expr> spatial(const Call& call, const Index& index);
/// `index` with its last positions replaced by `at`.
Index moved(Index index, const Index& at);
/// The last sizes, `dims_of` many.
Sizes plane_sizes(const Call& call, const Sizes& sizes);
/// Row-major number of `at` in a tensor of `sizes`.
Expr position_in(const Sizes& sizes, std::span<const Expr> at);

Definition reduction(loop::Combiner combiner, Sizes reduce_sizes);
/// Two numbers for combiner argmax: x and its position, of which those that are not inside never
/// win. Of several NaN the last one wins, as in eager: they carry -1 - position, of which the
/// combiner keeps the lowest.
std::vector<loop::Val> candidate(loop::ScalarPool& pool, loop::Val x, Expr position,
                                 loop::Val inside);
/// The winner and its position.
std::vector<loop::Val> winner(loop::ScalarPool& pool, std::span<const loop::Val> combined);

/// `indices` are i64 of those sizes.
void check_indices(const Call& call, const Sizes& sizes);
/// grad_output of a pool, against the sizes that the pool's result has.
Types gradient_types(const Call& call, const Sizes& result);
/// x with its planes made rows.
Tensor rows(Tensor x, size_t dims);
/// Gradient of `grad_output` of an op that adds it up at `indices`: the winners' elements.
Gradients winners_vjp(Builder& b, const Call& call, Grads g);

}  // namespace tandem::ops::pool
