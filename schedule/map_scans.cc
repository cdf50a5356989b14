// Mapping of running sums and their kind. Problem: each result waits for the one before it, so a
// loop along the scan runs at the latency of its combiner, on one core where there is one row.
// Approach: where memory runs along another axis, lanes are columns, each with a running value of
// its own; where it runs along the scan, the lanes of a register are combined among themselves
// first (loop/kernel.h), so that only every register waits.
#include <algorithm>

#include "schedule/axes.h"
#include "schedule/map.h"

namespace tandem::schedule {
namespace {

using loop::Axis;
using loop::AxisKind;
using loop::Kernel;
using loop::Stage;
using sym::Expr;

/// Lanes of one register of the widest running value: more would only add steps among themselves.
int lanes_along(const Stage& stage, const Target& target) {
  int64_t widest = 4;
  for (const loop::Reduction& reduction : stage.reductions)
    for (loop::Val input : reduction.inputs) widest = std::max(widest, size_of(input->dtype));
  return static_cast<int>(target.vector_bytes / widest);
}

/// The axis of columns; -1 where memory runs along the scan, or along nothing.
int column_axis(const Kernel& kernel) {
  const std::vector<Expr> indices = addresses(kernel.stages[0]);
  int score = 0;
  const int axis = best_axis(kernel.outer, indices, &score);
  if (axis < 0 || kernel.outer[static_cast<size_t>(axis)].extent == Expr(1)) return -1;
  const Expr along = kernel.stages[0].reduce_axes[0].index;
  return score > std::max(lane_score(indices, along), 0) ? axis : -1;
}

void scan_columns(Kernel& kernel, int axis, const Target& target) {
  move_last(kernel.outer, axis);
  Stage& stage = kernel.stages[0];
  const int lanes = choose_lanes(stage, target, kernel.outer.back().extent, true);
  Axis low = take_block(kernel, kernel.outer.size() - 1, lanes, {&stage});
  low.kind = AxisKind::vector;
  low.lanes = lanes;
  stage.axes.push_back(low);
}

}  // namespace

Misfit map_scans(Kernel& kernel, const Target& target) {
  if (kernel.stages.size() != 1) return "it has several stages";
  Stage& stage = kernel.stages[0];
  const bool is_scan = stage.reductions.size() == 1 && stage.reductions[0].scan &&
                       stage.reduce_axes.size() == 1 && stage.axes.empty();
  if (!is_scan) return "nothing runs along its rows";
  Axis& along = stage.reduce_axes[0];
  const int lanes = lanes_along(stage, target);
  if (const int columns = column_axis(kernel); columns >= 0) {
    scan_columns(kernel, columns, target);
  } else if (lane_score(addresses(stage), along.index) > 0 && long_enough(along, lanes)) {
    along.kind = AxisKind::vector;
    along.lanes = lanes;
  }
  all_tasks(kernel.outer);
  return nullptr;
}

}  // namespace tandem::schedule
