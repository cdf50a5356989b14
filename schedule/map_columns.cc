// Mapping of a reduction across memory, or of one that is too short to fill lanes: lanes along the
// kept axis, the reduced axis is the inner serial loop. Long sums are kept in scratch and read
// whole rows.
#include <algorithm>
#include <map>

#include "schedule/axes.h"
#include "schedule/map.h"

namespace tandem::schedule {
namespace {

using loop::Axis;
using loop::AxisKind;
using loop::Kernel;
using loop::Stage;
using loop::Val;
using sym::Expr;

std::vector<Expr> read_at_each_step(const Stage& stage, const Axis& step) {
  std::vector<Expr> indices = loaded_addresses(stage);
  std::erase_if(indices, [&](Expr index) { return !sym::depends_on(index, step.index); });
  return indices;
}

/// The outer axis that lanes should run along: when the reduction walks across memory, or is too
/// short to fill them (a pool's window). Of a long reduction what is loaded says which, as a result
/// is stored once for many loads, and of those what is read at each step, not once for all: where
/// that says nothing (quotients by unknown sizes), lanes run along the reduction.
int column_axis(const Kernel& kernel, const Target& target) {
  const Stage& stage = kernel.stages[0];
  std::vector<Expr> indices = addresses(stage);
  int outer_score = 0;
  int inner_score = 0;
  int outer = best_axis(kernel.outer, indices, &outer_score);
  int inner = best_axis(stage.reduce_axes, indices, &inner_score);
  std::optional<int64_t> extent = kernel.outer[outer].extent.constant();
  bool too_short = extent && *extent < 4;
  if (inner < 0) return outer;
  if (long_enough(stage.reduce_axes[inner], target.lanes()))
    indices = read_at_each_step(stage, stage.reduce_axes[inner]);
  bool across = lane_score(indices, kernel.outer[outer].index) >
                lane_score(indices, stage.reduce_axes[inner].index);
  if (across && !too_short) return outer;
  bool idle_lanes = !long_enough(stage.reduce_axes[inner], target.lanes() / 2);
  return idle_lanes && long_enough(kernel.outer[outer], target.lanes()) ? outer : -1;
}

/// Whether sums should be kept in memory: many rows of many columns. Lanes in registers would walk
/// down a strip of each row, a new page at every step.
bool sums_many_rows(const Stage& stage, const Axis& columns, int lanes, int64_t many_rows) {
  for (const loop::Reduction& reduction : stage.reductions)
    if (reduction.combiner != loop::Combiner::sum) return false;
  Expr rows = 1;
  for (const Axis& axis : stage.reduce_axes) rows = rows * axis.extent;
  std::optional<int64_t> count = rows.constant();
  std::optional<int64_t> width = columns.extent.constant();
  return (!count || *count >= many_rows) && (!width || *width > lanes);
}

/// What sums are kept in, row by row: of f32 and many rows, or nobody knows how many, in f64.
/// They have no blocks (loop::sums_in_blocks), and their error would grow with the rows.
DType scratch_dtype(DType dtype, const std::vector<Axis>& rows) {
  constexpr int64_t kFewRows = 1024;
  Expr count = 1;
  for (const Axis& axis : rows) count = count * axis.extent;
  const bool is_short = count.constant() && *count.constant() <= kFewRows;
  return dtype == DType::f32 && !is_short ? DType::f64 : dtype;
}

/// Clear, add row by row, finish.
void sum_in_scratch(Kernel& kernel, const Axis& columns, int64_t block) {
  loop::ScalarPool& pool = *kernel.scalars;
  Stage stage = std::move(kernel.stages[0]);
  Stage clear;
  Stage add;
  add.body = std::move(stage.body);  // what is stored of each element on the way
  std::map<int32_t, Val> sums;
  for (const loop::Reduction& reduction : stage.reductions) {
    int32_t number = static_cast<int32_t>(kernel.buffers.size());
    const DType given = reduction.inputs[0]->dtype;
    const DType dtype = scratch_dtype(given, stage.reduce_axes);
    kernel.buffers.push_back({dtype, loop::Access::scratch, Expr(block), true, ""});
    Val zero = loop::identity_of(pool, loop::Combiner::sum, dtype);
    clear.body.push_back({number, columns.index, zero, false});
    add.body.push_back({number, columns.index, pool.cast(reduction.inputs[0], dtype), true});
    Val sum = pool.load(number, dtype, columns.index, nullptr);
    sums[reduction.first_local] = pool.cast(sum, given);
  }
  Stage finish;
  finish.body = std::move(stage.after);
  replace_locals(pool, finish.body, sums);
  clear.axes = finish.axes = {columns};
  add.axes = std::move(stage.reduce_axes);
  add.axes.push_back(columns);
  kernel.stages = {std::move(clear), std::move(add), std::move(finish)};
  kernel.locals = 0;
}

constexpr Misfit kNoColumns = "it is not one reduction of many results";

/// Lanes' axis last. Not where the reduction walks memory itself.
Misfit find_columns(Kernel& kernel, const Target& target) {
  const bool is_one = kernel.stages.size() == 1 && !kernel.stages[0].reductions.empty() &&
                      !kernel.stages[0].reductions[0].scan && kernel.stages[0].axes.empty();
  if (!is_one || kernel.outer.empty()) return kNoColumns;
  const int axis = column_axis(kernel, target);
  if (axis < 0) return "the reduction walks along memory";
  move_last(kernel.outer, axis);
  return nullptr;
}

Axis take_columns(Kernel& kernel, int64_t block, int lanes) {
  Axis low = take_block(kernel, kernel.outer.size() - 1, block, {&kernel.stages[0]});
  low.kind = AxisKind::vector;
  low.lanes = lanes;
  all_tasks(kernel.outer);
  return low;
}

}  // namespace

Misfit map_column_sums(Kernel& kernel, const Target& target) {
  if (Misfit misfit = find_columns(kernel, target)) return misfit;
  const Stage& stage = kernel.stages[0];
  const int lanes = choose_lanes(stage, target, kernel.outer.back().extent, true);
  if (!sums_many_rows(stage, kernel.outer.back(), lanes, target.tuning.columns.many_rows))
    return "it sums few rows or columns";
  const int64_t block = column_block(kernel, lanes, target.tuning.columns);
  if (block <= lanes) return "a task's columns fit into registers";
  sum_in_scratch(kernel, take_columns(kernel, block, lanes), block);
  return nullptr;
}

Misfit map_columns(Kernel& kernel, const Target& target) {
  if (Misfit misfit = find_columns(kernel, target)) return misfit;
  const int lanes = choose_lanes(kernel.stages[0], target, kernel.outer.back().extent, true);
  Axis low = take_columns(kernel, lanes, lanes);
  kernel.stages[0].axes.push_back(low);
  return nullptr;
}

}  // namespace tandem::schedule
