// Mapping of a reduction across memory, or of one that is too short to fill lanes: lanes along the
// kept axis, the reduced axis is the inner serial loop. Long sums are kept in scratch and read
// whole rows, some of them side by side: processors fetch several streams at once, and a sum in
// memory is read and written once for all of them.
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
using loop::Store;
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
    if (reduction.combiner != loop::Combiner::sum && reduction.combiner != loop::Combiner::dot)
      return false;
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

/// Rows that are walked side by side: each load of their columns is one stream more.
int64_t rows_at_once(const Stage& stage, const Axis& rows, const Axis& columns,
                     const Tuning::Columns& tuning) {
  const int64_t streams = std::ranges::count_if(read_at_each_step(stage, rows), [&](Expr index) {
    return sym::depends_on(index, columns.index);
  });
  return std::max(tuning.rows_at_once / std::max<int64_t>(streams, 1), tuning.fewest_at_once);
}

/// Of a block: a number that leaves no rows over, where there is one that is not much smaller.
int64_t rows_of_block(const Axis& rows, int64_t most) {
  const std::optional<int64_t> known = rows.extent.constant();
  if (!known) return most;
  if (*known <= most) return *known;
  for (int64_t count = most; 2 * count > most; --count)
    if (*known % count == 0) return count;
  return most;
}

/// Lanes that read a line of memory, or what there is of one: a line of each row at a time.
int lanes_of_line(const Stage& stage, int most) {
  constexpr int64_t kLine = 64;
  int64_t narrowest = 8;
  for (Val value : loop::loop_scalars_of(stage))
    if (value->opcode == loop::Opcode::load) narrowest = std::min(narrowest, size_of(value->dtype));
  return std::min(most, static_cast<int>(kLine / narrowest));
}

/// Whether lines that are read together share few sets of the first-level cache, where the rows of
/// a block are so many rows apart. Of a size that nobody knows: as if they did.
bool would_share_sets(const Stage& stage, const Axis& rows, Expr apart) {
  constexpr int64_t kSets = 4096;  // bytes, from where on the same sets come again
  return std::ranges::any_of(loop::loop_scalars_of(stage), [&](Val value) {
    if (value->opcode != loop::Opcode::load || !sym::depends_on(value->index, rows.index))
      return false;
    const std::optional<sym::Affine> walk = sym::affine_in(value->index, rows.index);
    const std::optional<int64_t> step =
        walk ? (walk->coefficient * apart).constant() : std::nullopt;
    return !step || *step * size_of(value->dtype) % kSets == 0;
  });
}

/// What a stage adds to the sums in memory, at the columns.
using Sums = std::map<int32_t, int32_t>;  // from first locals to buffers

std::vector<Store> stores_to(const Kernel& kernel, const Stage& stage, const Sums& sums,
                             const Axis& columns, bool is_in_register) {
  std::vector<Store> stores;
  for (const loop::Reduction& reduction : stage.reductions) {
    const int32_t number = sums.at(reduction.first_local);
    const std::vector<Val>& given = reduction.inputs;
    const DType dtype = given[0]->dtype;
    const Val value = is_in_register ? kernel.scalars->local(reduction.first_local, dtype)
                      : given.size() == 2
                          ? kernel.scalars->binary(loop::Opcode::mul, given[0], given[1])
                          : given[0];
    const DType kept = kernel.buffers[static_cast<size_t>(number)].dtype;
    stores.push_back({number, columns.index, kernel.scalars->cast(value, kept), true});
  }
  return stores;
}

/// Blocks of rows, each of which is summed in registers and then added to the sums in memory, a
/// line of each row at a time: as many streams of memory as a block has rows. They go on from block
/// to block where the rows of a block are as far apart as there are blocks (times as fast as with
/// neighbours, Zen 4: 768 columns of bf16 1.5, of f32 1.02, 2304 1.2 and 1.05; .9 where they share
/// sets). What is left over is added row by row.
std::vector<Stage> add_blocks(Kernel& kernel, const Stage& stage, const Sums& sums, Axis columns,
                              const Tuning::Columns& tuning) {
  sym::Pool& symbols = kernel.scalars->symbols();
  const Axis rows = stage.reduce_axes.back();
  const int64_t count = rows_of_block(rows, rows_at_once(stage, rows, columns, tuning));
  const Expr blocks = sym::floor_div(rows.extent, count);
  const Axis high{symbols.index("y", blocks), blocks};
  const Axis low{symbols.index("r", Expr(count)), Expr(count)};
  const bool is_one = blocks == Expr(1);  // its number is 0 and must not occur
  Stage add = stage;
  add.after = stores_to(kernel, stage, sums, columns, true);
  add.axes.assign(stage.reduce_axes.begin(), stage.reduce_axes.end() - 1);
  add.reduce_axes = {low};
  if (!is_one) add.axes.push_back(high);
  const Expr row = is_one                                  ? low.index
                   : would_share_sets(stage, rows, blocks) ? high.index * count + low.index
                                                           : low.index * blocks + high.index;
  loop::substitute(kernel, add, {{rows.index, row}});
  columns.lanes = lanes_of_line(stage, columns.lanes);
  add.axes.push_back(columns);
  if (sym::known_divisible(rows.extent, count)) return {std::move(add)};

  Stage rest;
  const Axis over{symbols.index("y", Expr(count - 1)), sym::mod(rows.extent, count)};
  rest.body = stage.body;
  for (const Store& sum : stores_to(kernel, stage, sums, columns, false)) rest.body.push_back(sum);
  rest.axes.assign(stage.reduce_axes.begin(), stage.reduce_axes.end() - 1);
  rest.axes.push_back(over);
  loop::substitute(kernel, rest, {{rows.index, blocks * count + over.index}});
  rest.axes.push_back(columns);
  return {std::move(add), std::move(rest)};
}

/// Clear, add the rows, finish.
void sum_in_scratch(Kernel& kernel, const Axis& columns, int64_t block,
                    const Tuning::Columns& tuning) {
  loop::ScalarPool& pool = *kernel.scalars;
  const Stage stage = std::move(kernel.stages[0]);
  Stage clear;
  Stage finish;
  Sums sums;
  std::map<int32_t, Val> finished;
  for (const loop::Reduction& reduction : stage.reductions) {
    const int32_t number = static_cast<int32_t>(kernel.buffers.size());
    const DType given = reduction.inputs[0]->dtype;
    const DType dtype = scratch_dtype(given, stage.reduce_axes);
    kernel.buffers.push_back({dtype, loop::Access::scratch, Expr(block), true, ""});
    const Val zero = loop::identity_of(pool, loop::Combiner::sum, dtype);
    clear.body.push_back({number, columns.index, zero, false});
    sums[reduction.first_local] = number;
    const Val sum = pool.load(number, dtype, columns.index, nullptr);
    finished[reduction.first_local] = pool.cast(sum, given);
  }
  finish.body = stage.after;
  replace_locals(pool, finish.body, finished);
  clear.axes = finish.axes = {columns};
  kernel.stages = add_blocks(kernel, stage, sums, columns, tuning);
  kernel.stages.insert(kernel.stages.begin(), std::move(clear));
  kernel.stages.push_back(std::move(finish));
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

/// Columns of a task, their sums in half of the first-level cache: whole rows where there are tasks
/// enough without, else blocks of one size, but for what fills lanes.
int64_t even_block(const Kernel& kernel, int lanes, Tuning::Columns tuning) {
  const std::vector<Axis>& rows = kernel.stages[0].reduce_axes;
  const DType given = kernel.stages[0].reductions[0].inputs[0]->dtype;
  if (size_of(scratch_dtype(given, rows)) < 8) tuning.block *= 2;
  const int64_t most = column_block(kernel, lanes, tuning);
  const std::optional<int64_t> width = kernel.outer.back().extent.constant();
  if (!width) return most;
  Expr others = 1;
  for (size_t i = 0; i + 1 < kernel.outer.size(); ++i) others = others * kernel.outer[i].extent;
  const bool has_tasks = others.constant().value_or(0) >= tuning.few_tasks;
  const int64_t block = has_tasks ? tuning.block : std::min(most, *width);
  const int64_t even = ceil_div(*width, ceil_div(*width, block));
  return ceil_div(even, lanes) * lanes;
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
  const int64_t block = even_block(kernel, lanes, target.tuning.columns);
  if (block <= lanes) return "a task's columns fit into registers";
  sum_in_scratch(kernel, take_columns(kernel, block, lanes), block, target.tuning.columns);
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
