// Rewriting the axes of an unmapped kernel: the moves that mapping is made of.
#pragma once

#include <functional>
#include <map>
#include <vector>

#include "base/target.h"
#include "loop/kernel.h"
#include "loop/stage.h"

namespace tandem::schedule {

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// Cuts axes that are addressed by a // c and a % c into two, until none is.
void split_by_divisors(loop::Kernel& kernel);

/// Puts values in the place of locals.
void replace_locals(loop::ScalarPool& pool, std::vector<loop::Store>& stores,
                    const std::map<int32_t, loop::Val>& values);

/// Lanes of a loop over `extent`: registers enough to hide latency, fewer where the body is heavy
/// or wide. `reduces`: the lanes are accumulators.
int choose_lanes(const loop::Stage& stage, const Target& target, sym::Expr extent, bool reduces);
void make_vector(loop::Axis& axis, const loop::Stage& stage, const Target& target, bool reduces);

/// Lanes along the axis that most accesses of a stage of rows walk with stride 1.
void map_row_stage(loop::Stage& stage, const Target& target);

/// What the loads and stores of a stage say: lanes along which axis walk memory with stride 1.
std::vector<sym::Expr> loaded_addresses(const loop::Stage& stage);
std::vector<sym::Expr> addresses(const loop::Stage& stage);
/// Unit strides and broadcasts against gathers.
int lane_score(const std::vector<sym::Expr>& indices, sym::Expr axis);
/// The axis of the highest score, the last of equal ones; -1 of none.
int best_axis(const std::vector<loop::Axis>& axes, const std::vector<sym::Expr>& indices,
              int* best_score);
/// Those of one element come first, as long as they are last: lanes run along what has several.
void lanes_last(std::vector<loop::Axis>& axes);
void move_last(std::vector<loop::Axis>& axes, int number);
void all_tasks(std::vector<loop::Axis>& axes);
/// Whether it fills that many lanes once; a size that nobody knows does.
bool long_enough(const loop::Axis& axis, int lanes);

/// Cuts axis `number` of `outer` into blocks (left in place, as tasks) and positions inside a block
/// (returned, for a stage); `stages` are rewritten.
loop::Axis take_block(loop::Kernel& kernel, size_t number, int64_t block,
                      const std::vector<loop::Stage*>& stages);

/// Columns of one task, of the last outer axis: whole rows where there are tasks enough.
int64_t column_block(const loop::Kernel& kernel, int lanes, const Tuning::Columns& tuning);

/// Sorts the outer axes as the first store that walks most of them does: widest stride first.
void order_axes(loop::Kernel& kernel);

/// Whether every index walks a (outer) and b (inner) as one axis.
bool walks_as_one(const std::vector<sym::Expr>& indices, const loop::Axis& a, const loop::Axis& b);
/// Axis `number` and the next one become one: a * n + b is one position, of which a is the quotient
/// by n and b the remainder. `axes` are of the kernel.
void merge_with_next(loop::Kernel& kernel, std::vector<loop::Axis>& axes, size_t number);

/// Merges neighbouring axes that every access walks as one.
void merge_axes(loop::Kernel& kernel);

/// Whether blocks of rows are summed, each added to what the ones before have stored.
bool gathers(const loop::Kernel& kernel);
/// Whether one of the stage's reductions runs over so many points.
bool reduces(const loop::Stage& stage, sym::Expr extent);

}  // namespace tandem::schedule
