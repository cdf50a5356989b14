// A block for each row, its threads along the row: they fold their sums as a tree, and rows of
// scratch lie in shared memory (softmax, layer norm). And a thread for each result: of columns,
// where neighbours in memory are different results; of short sums; of running sums; and of
// scatters, where a thread owns a point of the dimensions that source and destination share, so
// that no two touch one place.
#include <algorithm>

#include "schedule/gpu/blocks.h"
#include "schedule/gpu/map.h"

namespace tandem::schedule::gpu {
namespace {

using loop::Axis;
using loop::AxisKind;
using loop::Kernel;
using loop::Stage;
using sym::Expr;

bool scans(const Stage& stage) {
  return std::ranges::any_of(stage.reductions,
                             [](const loop::Reduction& reduction) { return reduction.scan; });
}

/// The axis that threads go along: one that fills a warp before one that does not, then the one
/// that most accesses walk with stride 1; null where threads would meet along each.
Axis* best_to_spread(const Kernel& kernel, const Stage& stage, std::vector<Axis>& axes,
                     bool reduces, const Target& target) {
  const std::vector<Expr> indices = addresses(stage);
  const auto rank = [&](const Axis& axis) {
    return std::pair(long_enough(axis, target.gpu.warp), lane_score(indices, axis.index));
  };
  Axis* best = nullptr;
  for (Axis& axis : axes) {
    if (axis.extent == Expr(1) || !can_spread(kernel, stage, axis, reduces)) continue;
    if (best == nullptr || rank(axis) >= rank(*best)) best = &axis;
  }
  return best;
}

/// Results of a stage's own axes are independent; where those are few, or none, its sums are cut.
void spread_stage(const Kernel& kernel, Stage& stage, const Target& target) {
  if (scans(stage)) return;
  Axis* own = best_to_spread(kernel, stage, stage.axes, false, target);
  Axis* sum = stage.reduce_axes.empty()
                  ? nullptr
                  : best_to_spread(kernel, stage, stage.reduce_axes, true, target);
  const bool few = own == nullptr || !long_enough(*own, target.gpu.warp);
  Axis* chosen = few && sum != nullptr ? sum : own;
  if (chosen == nullptr) return;
  const Tuning::Blocks& tuning = target.tuning.blocks;
  const bool is_long = chosen->extent.constant().value_or(0) >= tuning.long_row;
  spread(*chosen, lanes_along(chosen->extent, is_long ? 4 * tuning.threads : tuning.threads));
}

constexpr Misfit kManyStages = "it has several stages";

/// Threads along outer axis `number`; fewer to a block where there would be few blocks.
void thread_for_each(Kernel& kernel, size_t number, const Target& target) {
  Expr points = 1;
  for (const Axis& axis : kernel.outer) points = points * axis.extent;
  int lanes = lanes_along(kernel.outer[number].extent, target.tuning.blocks.threads);
  while (points.constant() && lanes > target.gpu.warp &&
         *points.constant() / lanes < target.gpu.multiprocessors)
    lanes /= 2;
  std::vector<Stage*> all;
  for (Stage& stage : kernel.stages) all.push_back(&stage);
  Axis low = take_block(kernel, number, lanes, all);
  spread(low, lanes);
  for (Stage& stage : kernel.stages) stage.axes.insert(stage.axes.begin(), low);
}

/// Whether neighbouring threads should compute different results: memory runs along the outer axis
/// rather than along the reduced ones, or the sums are short.
bool wants_columns(const Kernel& kernel, size_t axis, const Target& target) {
  const Stage& stage = kernel.stages[0];
  const std::optional<int64_t> terms = length_of(stage).constant();
  if (terms && *terms <= target.tuning.blocks.short_sum) return true;
  if (!long_enough(kernel.outer[axis], target.gpu.warp / 2)) return false;
  const std::vector<Expr> indices = loaded_addresses(stage);
  int inner_score = 0;
  if (best_axis(stage.reduce_axes, indices, &inner_score) < 0) return true;
  return lane_score(indices, kernel.outer[axis].index) > inner_score;
}

/// The outer axis that results should be spread along; -1 for none.
int result_axis(const Kernel& kernel) {
  int score = 0;
  const int axis = best_axis(kernel.outer, addresses(kernel.stages[0]), &score);
  if (axis < 0) return -1;
  const Axis& outer = kernel.outer[static_cast<size_t>(axis)];
  return can_spread(kernel, kernel.stages[0], outer, false) ? axis : -1;
}

}  // namespace

Misfit map_scans(Kernel& kernel, const Target& target) {
  if (kernel.stages.size() != 1) return kManyStages;
  if (!scans(kernel.stages[0])) return "nothing runs along its rows";
  if (!kernel.outer.empty() && owns_its_stores(kernel) && kernel.stages[0].axes.empty())
    if (const int axis = result_axis(kernel); axis >= 0)
      thread_for_each(kernel, static_cast<size_t>(axis), target);
  outer_to_blocks(kernel);
  finish_blocks(kernel, target);
  return nullptr;
}

Misfit map_columns(Kernel& kernel, const Target& target) {
  if (kernel.stages.size() != 1) return kManyStages;
  if (!kernel.stages[0].axes.empty() || kernel.outer.empty() || !owns_its_stores(kernel))
    return "it is not one reduction of many results";
  const int axis = result_axis(kernel);
  if (axis < 0 || !wants_columns(kernel, static_cast<size_t>(axis), target))
    return "the reduction is long, and walks along memory";
  thread_for_each(kernel, static_cast<size_t>(axis), target);
  outer_to_blocks(kernel);
  finish_blocks(kernel, target);
  return nullptr;
}

Misfit map_rows(Kernel& kernel, const Target& target) {
  outer_to_blocks(kernel);
  for (Stage& stage : kernel.stages) spread_stage(kernel, stage, target);
  finish_blocks(kernel, target);
  return nullptr;
}

Misfit map_scatter(Kernel& kernel, const Target& target) {
  if (!stores_where_data_says(kernel)) return "nothing is stored where data says";
  for (size_t i = kernel.outer.size(); i-- > 0;) {
    const Axis& axis = kernel.outer[i];
    if (!std::ranges::all_of(kernel.stages, [&](const Stage& stage) {
          return can_spread(kernel, stage, axis, false);
        }))
      continue;
    thread_for_each(kernel, i, target);
    break;
  }
  // One thread writes in order where they would meet; what is there before may be spread.
  if (kernel.outer.empty() && kernel.stages.size() > 1)
    spread_stage(kernel, kernel.stages[0], target);
  for (Axis& axis : kernel.outer) axis.kind = AxisKind::block;
  finish_blocks(kernel, target);
  return nullptr;
}

}  // namespace tandem::schedule::gpu
