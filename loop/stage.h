// Walks over a stage: all that it computes, all that it touches, and copies of it with other
// addresses, buffers or values. Whoever adds a member to Stage adds it here.
#pragma once

#include <functional>
#include <vector>

#include "loop/kernel.h"

namespace tandem::loop {

/// Calls `visit` for every store: those of the body, then those after the loops.
template <class S, class F>
void for_each_store(S& stage, F visit) {
  for (auto* list : {&stage.body, &stage.after})
    for (auto& store : *list) visit(store);
}

/// Inputs of reductions and stored values, in text order.
std::vector<Val> roots_of(const Stage& stage);

/// All scalars that a stage computes, operands before users; without those that only an address of
/// a store or of a prefetch is made of.
std::vector<Val> scalars_of(const Stage& stage);
/// Those that every step of the stage's loops computes: all but what follows them.
std::vector<Val> loop_scalars_of(const Stage& stage);
/// With the scalars behind indirect symbols of addresses.
std::vector<Val> all_scalars_of(const ScalarPool& pool, const Stage& stage);

/// Every index expression (loads, index values, stores), of a stage or of the kernel. Prefetches
/// mean nothing, and do not count. In the order of the text where it says so: the same after a
/// print and a parse, however old a pool's scalars are.
std::vector<sym::Expr> index_expressions(const Kernel& kernel, const Stage& stage);
std::vector<sym::Expr> index_expressions(const Kernel& kernel);

/// Under a vector axis: whether all that the stage stores lies point by point of its last axis, of
/// few known points, for each lane. What an interleaved axis is.
bool lies_point_by_point(const Kernel& kernel, const Stage& stage);
/// Unmasked loads of the stage's values with stride 1 along its last axis and one constant step
/// along its lanes: what a transposed axis turns.
std::vector<Val> turned_loads(const Stage& stage);
/// Under a vector axis, whose lanes store pairs side by side: whether the last axis counts the two
/// elements of 16 bits of a pair that is copied, and memory runs along the axis before it, pair by
/// pair. What is turned as one of 32 bits.
bool turns_pairs(const Kernel& kernel, const Stage& stage);
/// Whether the lanes that it stores at once lie side by side, from a multiple of their size on (or
/// of 64 bytes, where they are more), as long as the buffer starts at a multiple of 64 bytes.
bool starts_on_registers(const Stage& stage, const Store& store, DType dtype);

/// Whether any part of the value is addressed along the axis.
bool walks(Val value, sym::Expr axis);

/// What becomes of a stage's expressions. Extents of axes are left alone.
struct StageRewrite {
  /// Of every index expression; null leaves them as they are.
  std::function<sym::Expr(sym::Expr)> map_index;
  /// A replacement for a scalar, or null: as Rewrite::replace.
  std::function<Val(const Scalar& node, std::span<const Val> args)> replace;
  /// Of every load, store and prefetch, after `map_index`: may change buffer and address.
  std::function<void(int32_t& buffer, sym::Expr& index)> place;
  int32_t first_local = 0;  // added to the numbers of locals, read and made
};
/// In place; the scalars of the result are in `to`.
void rewrite(ScalarPool& to, const ScalarPool& from, Stage& stage, const StageRewrite& how);

/// Symbols of one stage, or of all, replaced by expressions.
void substitute(Kernel& kernel, Stage& stage, const sym::Substitution& map);
void substitute(Kernel& kernel, const sym::Substitution& map);

}  // namespace tandem::loop
