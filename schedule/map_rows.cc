// Mapping of rows, which fits all but scatters: a task for each row, lanes along the row. And of
// scatters: tasks own blocks of the dimensions that source and destination share, so that no two
// touch one place. Blocks are wide where there are tasks enough: what is there before is stored row
// by row, and pieces of 32 bytes take memory three times as long as whole lines (the gradient of a
// table of 30522 rows 15 ms, then 6).
#include <algorithm>

#include "schedule/axes.h"
#include "schedule/map.h"
#include "schedule/matrix_tile.h"

namespace tandem::schedule {
namespace {

using loop::Axis;
using loop::AxisKind;
using loop::Kernel;
using loop::Stage;
using loop::Val;
using sym::Expr;

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

}  // namespace

// What is there before is a stage in front of it, but where it stores in place.
bool stores_where_data_says(const Kernel& kernel) {
  const size_t stages = kernel.stages.size();
  if (stages == 0 || stages > 2 || !kernel.stages[stages - 1].reductions.empty()) return false;
  return std::ranges::any_of(kernel.stages[stages - 1].body, [&](const loop::Store& store) {
    return (stages == 2 && store.accumulate) ||
           std::ranges::any_of(sym::free_symbols(store.index), [&](Expr symbol) {
             return kernel.scalars->indirect(symbol) != nullptr;
           });
  });
}

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

Misfit map_rows(Kernel& kernel, const Target& target) {
  if (stores_where_data_says(kernel)) return "data says where it stores: lanes might meet";
  rows_to_tasks(kernel);
  for (Stage& stage : kernel.stages) {
    if (comes_in_bf16_words(stage, target)) sum_packs(kernel, stage);
    map_row_stage(stage, target);
  }
  return nullptr;
}

Misfit map_scatter(Kernel& kernel, const Target& target) {
  if (!stores_where_data_says(kernel)) return "nothing is stored where data says";
  if (kernel.outer.empty()) {
    kernel.parallel = false;
    if (kernel.stages.size() > 1 && !kernel.stages[0].axes.empty())
      make_vector(kernel.stages[0].axes.back(), kernel.stages[0], target, false);
    return nullptr;
  }
  Stage& sources = kernel.stages.back();  // the only one where it writes in place
  int score = 0;
  int axis = best_axis(kernel.outer, {sources.body[0].index}, &score);
  if (score < 3) {
    all_tasks(kernel.outer);
    return nullptr;
  }
  move_last(kernel.outer, axis);
  int lanes = choose_lanes(sources, target, kernel.outer.back().extent, false);
  std::vector<Stage*> stages;
  for (Stage& stage : kernel.stages) stages.push_back(&stage);
  const int64_t block = column_block(kernel, lanes, target.tuning.columns);
  Axis low = take_block(kernel, kernel.outer.size() - 1, block, stages);
  low.kind = AxisKind::vector;
  low.lanes = lanes;
  for (Stage& stage : kernel.stages) stage.axes.push_back(low);
  all_tasks(kernel.outer);
  return nullptr;
}

}  // namespace tandem::schedule
