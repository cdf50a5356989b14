// Mapping: how the axes of a kernel meet the machine. Three shapes:
//   points   no reduction: the axis that most accesses walk with stride 1 becomes the vector axis;
//            blocks of it (and the other axes) become tasks. Two axes where operands are transposed
//            (square tiles) or few channels are written side by side (interleaved).
//   rows     reduction along memory: a task per row, lanes along the row.
//   columns  reduction across memory: lanes along the kept axis, the reduced axis is the inner
//   serial loop; long sums are kept in scratch and read whole rows.
// Block sizes depend on shapes only, never on the number of threads.
#include <algorithm>
#include <map>

#include "schedule/axes.h"
#include "schedule/chain.h"
#include "schedule/map.h"

namespace tandem::schedule {
namespace {

using loop::Axis;
using loop::AxisKind;
using loop::Kernel;
using loop::Stage;
using loop::Val;
using sym::Expr;

constexpr int64_t kPointBlock = 8192;  // elements of one task of a pointwise kernel
constexpr int64_t kSmallestTask = 2048;
constexpr int64_t kManyRows = 16;       // from here on column sums read whole rows
constexpr int64_t kColumnBlock = 2048;  // columns whose sums stay in the first-level cache
constexpr int64_t kFewTasks = 8;
constexpr int64_t kFewChannels = 4;
constexpr int64_t kTile = 64;  // both sides of a transposing tile

/// How well lanes along an axis fit the accesses: unit strides and broadcasts against gathers.
int lane_score(const std::vector<Expr>& indices, Expr axis) {
  int score = 0;
  for (Expr e : indices) {
    if (!sym::depends_on(e, axis)) {
      score += 1;
      continue;
    }
    std::optional<sym::Affine> affine = sym::affine_in(e, axis);
    score += affine && affine->coefficient == Expr(1) ? 3 : -4;
  }
  return score;
}

std::vector<Expr> loaded_addresses(const Stage& stage) {
  std::vector<Expr> found;
  for (Val value : loop::scalars_of(stage))
    if (value->opcode == loop::Opcode::load) found.push_back(value->index);
  return found;
}

/// Addresses of memory accesses only: index values cost nothing along any axis.
std::vector<Expr> addresses(const Stage& stage) {
  std::vector<Expr> found = loaded_addresses(stage);
  // Twice: a scattered store costs more than a gathered load.
  loop::for_each_store(
      stage, [&](const loop::Store& store) { found.insert(found.end(), 2, store.index); });
  return found;
}

int best_axis(const std::vector<Axis>& axes, const std::vector<Expr>& indices, int* best_score) {
  int best = -1;
  for (size_t i = 0; i < axes.size(); ++i) {
    int score = lane_score(indices, axes[i].index);
    bool last_wins_ties = best < 0 || score >= *best_score;
    if (!last_wins_ties) continue;
    best = static_cast<int>(i);
    *best_score = score;
  }
  return best;
}

void move_last(std::vector<Axis>& axes, int number) {
  std::rotate(axes.begin() + number, axes.begin() + number + 1, axes.end());
}

void all_tasks(std::vector<Axis>& axes) {
  for (Axis& axis : axes) axis.kind = AxisKind::task;
}

// --- points
// ---------------------------------------------------------------------------------------

/// The axis along which some load walks memory while the lanes' axis (the last) does not; -1 for
/// none.
int crossing_axis(const Kernel& kernel) {
  const Stage& stage = kernel.stages[0];
  Expr lanes = kernel.outer.back().index;
  for (size_t i = 0; i + 1 < kernel.outer.size(); ++i) {
    for (Val value : loop::scalars_of(stage)) {
      if (value->opcode != loop::Opcode::load || !value->args.empty()) continue;
      std::optional<sym::Affine> along = sym::affine_in(value->index, kernel.outer[i].index);
      std::optional<sym::Affine> across = sym::affine_in(value->index, lanes);
      if (along && across && along->coefficient == Expr(1) && across->coefficient != Expr(0) &&
          across->coefficient != Expr(1))
        return static_cast<int>(i);
    }
  }
  return -1;
}

/// Square tiles: lanes along the stores, an unrolled axis along the transposed loads, blocks of
/// both as tasks.
void map_tiles(Kernel& kernel, int crossing, const Target& target) {
  Stage& stage = kernel.stages[0];
  Axis across = take_block(kernel, static_cast<size_t>(crossing), kTile, {&stage});
  Axis along = take_block(kernel, kernel.outer.size() - 1, kTile, {&stage});
  along.kind = AxisKind::vector;
  along.lanes = target.lanes();
  across.kind = AxisKind::unroll;
  across.lanes = target.lanes();
  stage.axes = {along, across};
  all_tasks(kernel.outer);
}

bool long_enough(const Axis& axis, int lanes) {
  std::optional<int64_t> extent = axis.extent.constant();
  return !extent || *extent >= lanes;
}

/// Where a few values (the channels of an image) lie side by side in all that is stored, the axis
/// that is the next one in memory and along which everything else is read with stride 1; or -1.
int interleaving_axis(const Kernel& kernel, const Target& target) {
  const Stage& stage = kernel.stages[0];
  const std::optional<int64_t> few = kernel.outer.back().extent.constant();
  if (!few || *few < 2 || *few > kFewChannels) return -1;
  const auto has_step = [](Expr index, const Axis& axis, int64_t step) {
    const std::optional<sym::Affine> affine = sym::affine_in(index, axis.index);
    return affine && affine->coefficient == Expr(step);
  };
  const auto fits = [&](const Axis& axis) {
    for (const loop::Store& store : stage.body)
      if (store.accumulate || !has_step(store.index, kernel.outer.back(), 1) ||
          !has_step(store.index, axis, *few))
        return false;
    for (Val value : loop::scalars_of(stage))
      if (value->opcode == loop::Opcode::load && sym::depends_on(value->index, axis.index) &&
          !has_step(value->index, axis, 1))
        return false;
    return long_enough(axis, target.lanes());
  };
  for (size_t i = 0; i + 1 < kernel.outer.size(); ++i)
    if (fits(kernel.outer[i])) return static_cast<int>(i);
  return -1;
}

/// Blocks of the last axis, or it and those before it as long as they are short, go into the task.
void take_points(Kernel& kernel) {
  Stage& stage = kernel.stages[0];
  std::optional<int64_t> length = kernel.outer.back().extent.constant();
  if (!length || *length > kPointBlock) {
    stage.axes = {take_block(kernel, kernel.outer.size() - 1, kPointBlock, {&stage})};
  } else {
    int64_t inside = 1;
    while (!kernel.outer.empty() && inside < kSmallestTask) {
      std::optional<int64_t> extent = kernel.outer.back().extent.constant();
      if (!extent || (inside > 1 && inside * *extent > 4 * kPointBlock)) break;
      inside *= std::max<int64_t>(*extent, 1);
      stage.axes.insert(stage.axes.begin(), kernel.outer.back());
      kernel.outer.pop_back();
    }
    // The next axis alone would be too much: some of it.
    if (!kernel.outer.empty() && inside < kSmallestTask)
      stage.axes.insert(stage.axes.begin(), take_block(kernel, kernel.outer.size() - 1,
                                                       kPointBlock / inside, {&stage}));
  }
  all_tasks(kernel.outer);
}

/// Lanes along what is read; each writes its few values side by side.
void map_interleaved(Kernel& kernel, int along, const Target& target) {
  Stage& stage = kernel.stages[0];
  Axis few = kernel.outer.back();
  kernel.outer.pop_back();
  few.kind = AxisKind::unroll;
  few.lanes = kFewChannels;
  move_last(kernel.outer, along);
  take_points(kernel);
  stage.axes.back().kind = AxisKind::vector;
  stage.axes.back().lanes = target.lanes();
  stage.axes.push_back(few);
}

void map_points(Kernel& kernel, const Target& target) {
  Stage& stage = kernel.stages[0];
  if (kernel.outer.empty()) return;
  int score = 0;
  move_last(kernel.outer, best_axis(kernel.outer, addresses(stage), &score));
  int crossing = crossing_axis(kernel);
  if (crossing >= 0 && long_enough(kernel.outer[static_cast<size_t>(crossing)], target.lanes()) &&
      long_enough(kernel.outer.back(), target.lanes()))
    return map_tiles(kernel, crossing, target);
  int interleaving = interleaving_axis(kernel, target);
  if (interleaving >= 0) return map_interleaved(kernel, interleaving, target);
  take_points(kernel);
  make_vector(stage.axes.back(), stage, target, false);
}

// --- rows
// -----------------------------------------------------------------------------------------

/// Rows that add to the same columns stay in one task, one after the other: an axis that some store
/// does not walk.
void rows_to_tasks(Kernel& kernel) {
  for (Axis& axis : kernel.outer) {
    bool shared = false;
    for (const Stage& stage : kernel.stages)
      loop::for_each_store(stage, [&](const loop::Store& store) {
        bool scratch =
            kernel.buffers[static_cast<size_t>(store.buffer)].access == loop::Access::scratch;
        shared |= !scratch && !sym::depends_on(store.index, axis.index);
      });
    axis.kind = shared ? AxisKind::serial : AxisKind::task;
  }
}

void map_rows(Kernel& kernel, const Target& target) {
  rows_to_tasks(kernel);
  for (Stage& stage : kernel.stages) map_row_stage(stage, target);
}

// --- columns
// --------------------------------------------------------------------------------------

/// The outer axis that lanes should run along: when the reduction walks across memory, or is too
/// short to fill them (a pool's window). Of a long reduction what is loaded says which, as a result
/// is stored once for many loads: where that says nothing (quotients by unknown sizes), lanes run
/// along the reduction.
int column_axis(const Kernel& kernel, const Target& target) {
  if (kernel.stages.size() != 1 || kernel.outer.empty()) return -1;
  const Stage& stage = kernel.stages[0];
  std::vector<Expr> indices = addresses(stage);
  int outer_score = 0;
  int inner_score = 0;
  int outer = best_axis(kernel.outer, indices, &outer_score);
  int inner = best_axis(stage.reduce_axes, indices, &inner_score);
  std::optional<int64_t> extent = kernel.outer[outer].extent.constant();
  bool too_short = extent && *extent < 4;
  if (inner < 0) return outer;
  if (long_enough(stage.reduce_axes[inner], target.lanes())) indices = loaded_addresses(stage);
  bool across = lane_score(indices, kernel.outer[outer].index) >
                lane_score(indices, stage.reduce_axes[inner].index);
  if (across && !too_short) return outer;
  bool idle_lanes = !long_enough(stage.reduce_axes[inner], target.lanes() / 2);
  return idle_lanes && long_enough(kernel.outer[outer], target.lanes()) ? outer : -1;
}

/// Whether sums should be kept in memory: many rows of many columns. Lanes in registers would walk
/// down a strip of each row, a new page at every step.
bool sums_many_rows(const Stage& stage, const Axis& columns, int lanes) {
  for (const loop::Reduction& reduction : stage.reductions)
    if (reduction.combiner != loop::Combiner::sum) return false;
  Expr rows = 1;
  for (const Axis& axis : stage.reduce_axes) rows = rows * axis.extent;
  std::optional<int64_t> count = rows.constant();
  std::optional<int64_t> width = columns.extent.constant();
  return (!count || *count >= kManyRows) && (!width || *width > lanes);
}

/// Columns of one task: whole rows where there are tasks enough.
int64_t column_block(const Kernel& kernel, int lanes) {
  Expr others = 1;
  for (size_t i = 0; i + 1 < kernel.outer.size(); ++i) others = others * kernel.outer[i].extent;
  int64_t count = others.constant().value_or(kFewTasks);
  int64_t width = kernel.outer.back().extent.constant().value_or(kColumnBlock);
  int64_t block = kColumnBlock;
  while (block > lanes && (count * width < block * kFewTasks || block >= 2 * width)) block /= 2;
  return block;
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

void map_columns(Kernel& kernel, int axis, const Target& target) {
  move_last(kernel.outer, axis);
  Stage& stage = kernel.stages[0];
  int lanes = choose_lanes(stage, target, kernel.outer.back().extent, true);
  bool in_scratch = sums_many_rows(stage, kernel.outer.back(), lanes);
  int64_t block = in_scratch ? column_block(kernel, lanes) : lanes;
  Axis low = take_block(kernel, kernel.outer.size() - 1, block, {&stage});
  low.kind = AxisKind::vector;
  low.lanes = lanes;
  all_tasks(kernel.outer);
  if (block > lanes) return sum_in_scratch(kernel, low, block);
  stage.axes.push_back(low);
}

// --- scatter
// --------------------------------------------------------------------------------------

bool accumulates(const Kernel& kernel) {
  return kernel.stages.size() == 2 && kernel.stages[1].reductions.empty() &&
         !kernel.stages[1].body.empty() &&
         std::any_of(kernel.stages[1].body.begin(), kernel.stages[1].body.end(),
                     [&](const loop::Store& store) {
                       std::vector<Expr> symbols = sym::free_symbols(store.index);
                       return store.accumulate ||
                              std::any_of(symbols.begin(), symbols.end(), [&](Expr symbol) {
                                return kernel.scalars->indirect(symbol) != nullptr;
                              });
                     });
}

/// Tasks own blocks of the dimensions that source and destination share; lanes along the last of
/// them.
void map_scatter(Kernel& kernel, const Target& target) {
  if (kernel.outer.empty()) {
    kernel.parallel = false;
    if (!kernel.stages[0].axes.empty())
      make_vector(kernel.stages[0].axes.back(), kernel.stages[0], target, false);
    return;
  }
  Stage& sources = kernel.stages[1];
  int score = 0;
  int axis = best_axis(kernel.outer, {sources.body[0].index}, &score);
  if (score < 3) return all_tasks(kernel.outer);
  move_last(kernel.outer, axis);
  int lanes = choose_lanes(sources, target, kernel.outer.back().extent, false);
  Axis low = take_block(kernel, kernel.outer.size() - 1, lanes, {&kernel.stages[0], &sources});
  low.kind = AxisKind::vector;
  low.lanes = lanes;
  for (Stage& stage : kernel.stages) stage.axes.push_back(low);
  all_tasks(kernel.outer);
}

bool has_reduction(const Kernel& kernel) {
  return std::any_of(kernel.stages.begin(), kernel.stages.end(),
                     [](const Stage& stage) { return !stage.reductions.empty(); });
}

}  // namespace

void map_row_stage(Stage& stage, const Target& target) {
  std::vector<Axis>& axes = stage.reduce_axes.empty() ? stage.axes : stage.reduce_axes;
  if (axes.empty()) return;
  bool scans = std::any_of(stage.reductions.begin(), stage.reductions.end(),
                           [](const loop::Reduction& reduction) { return reduction.scan; });
  if (scans) return;
  int score = 0;
  move_last(axes, best_axis(axes, addresses(stage), &score));
  make_vector(axes.back(), stage, target, !stage.reduce_axes.empty());
}

void map_axes(Kernel& kernel, const Target& target) {
  kernel.target = target.features;
  split_by_divisors(kernel);
  if (is_chain(kernel) && !has_footprint(kernel)) return map_chain(kernel, target);
  order_axes(kernel);
  merge_axes(kernel);
  if (accumulates(kernel)) return map_scatter(kernel, target);
  if (map_window(kernel, target)) return;
  if (map_product(kernel, target)) return;
  if (!has_reduction(kernel) && kernel.stages.size() == 1 && kernel.stages[0].axes.empty())
    return map_points(kernel, target);
  bool one_reduction = kernel.stages.size() == 1 && !kernel.stages[0].reductions.empty() &&
                       !kernel.stages[0].reductions[0].scan && kernel.stages[0].axes.empty();
  int column = one_reduction ? column_axis(kernel, target) : -1;
  if (column >= 0) return map_columns(kernel, column, target);
  map_rows(kernel, target);
}

}  // namespace tandem::schedule
