// Mapping of kernels without a reduction: lanes along the axis that most accesses walk with stride
// 1, blocks of it (and the other axes) as tasks. Two axes where operands are transposed (square
// tiles) or few channels are written side by side (interleaved). Block sizes depend on shapes only,
// never on the number of threads.
#include <algorithm>

#include "schedule/axes.h"
#include "schedule/map.h"

namespace tandem::schedule {

using loop::Axis;
using loop::AxisKind;
using loop::Kernel;
using loop::Stage;
using loop::Val;
using sym::Expr;

bool has_points_only(const Kernel& kernel) {
  return kernel.stages.size() == 1 && kernel.stages[0].reductions.empty() &&
         kernel.stages[0].axes.empty();
}

bool writes_what_it_reads(const Kernel& kernel) {
  return std::ranges::any_of(kernel.buffers, [](const loop::Buffer& buffer) {
    return buffer.access == loop::Access::read_write;
  });
}

void move_lanes_last(Kernel& kernel) {
  int score = 0;
  move_last(kernel.outer, best_axis(kernel.outer, addresses(kernel.stages[0]), &score));
}

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

namespace {

constexpr Misfit kNoPoints = "it has a reduction, or several stages";

/// Square tiles: lanes along the stores, an unrolled axis along the transposed loads, blocks of
/// both as tasks.
void write_tiles(Kernel& kernel, int crossing, const Target& target) {
  Stage& stage = kernel.stages[0];
  Axis across =
      take_block(kernel, static_cast<size_t>(crossing), target.tuning.points.tile, {&stage});
  Axis along = take_block(kernel, kernel.outer.size() - 1, target.tuning.points.tile, {&stage});
  along.kind = AxisKind::vector;
  along.lanes = target.lanes();
  across.kind = AxisKind::unroll;
  across.lanes = target.lanes();
  stage.axes = {along, across};
  all_tasks(kernel.outer);
}

/// Where a few values (the channels of an image) lie side by side in all that is stored, the axis
/// that is the next one in memory and along which everything else is read with stride 1; or -1.
int interleaving_axis(const Kernel& kernel, const Target& target) {
  const Stage& stage = kernel.stages[0];
  const std::optional<int64_t> few = kernel.outer.back().extent.constant();
  if (!few || *few < 2 || *few > target.tuning.points.interleaved) return -1;
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
/// A point that stores many values (of transforms) is as much as many points.
void take_points(Kernel& kernel, const Tuning::Points& tuning) {
  Stage& stage = kernel.stages[0];
  constexpr int64_t kMany = 4;
  const int64_t stores = static_cast<int64_t>(stage.body.size());
  const int64_t smallest = tuning.smallest_task / (stores < kMany ? 1 : stores);
  std::optional<int64_t> length = kernel.outer.back().extent.constant();
  if (!length || *length > tuning.block) {
    stage.axes = {take_block(kernel, kernel.outer.size() - 1, tuning.block, {&stage})};
  } else {
    int64_t inside = 1;
    while (!kernel.outer.empty() && inside < smallest) {
      std::optional<int64_t> extent = kernel.outer.back().extent.constant();
      if (!extent || (inside > 1 && inside * *extent > 4 * tuning.block)) break;
      inside *= std::max<int64_t>(*extent, 1);
      stage.axes.insert(stage.axes.begin(), kernel.outer.back());
      kernel.outer.pop_back();
    }
    // The next axis alone would be too much: some of it.
    if (!kernel.outer.empty() && inside < smallest)
      stage.axes.insert(stage.axes.begin(), take_block(kernel, kernel.outer.size() - 1,
                                                       tuning.block / inside, {&stage}));
  }
  all_tasks(kernel.outer);
}

/// Lanes along what is read; each writes its few values side by side.
void write_interleaved(Kernel& kernel, int along, const Target& target) {
  Stage& stage = kernel.stages[0];
  Axis few = kernel.outer.back();
  kernel.outer.pop_back();
  few.kind = AxisKind::unroll;
  few.lanes = static_cast<int>(target.tuning.points.interleaved);
  move_last(kernel.outer, along);
  take_points(kernel, target.tuning.points);
  stage.axes.back().kind = AxisKind::vector;
  stage.axes.back().lanes = target.lanes();
  stage.axes.push_back(few);
}

}  // namespace

Misfit map_tiles(Kernel& kernel, const Target& target) {
  if (!has_points_only(kernel) || kernel.outer.empty()) return kNoPoints;
  move_lanes_last(kernel);
  const int crossing = crossing_axis(kernel);
  if (crossing < 0) return "no operand is transposed";
  if (!long_enough(kernel.outer[static_cast<size_t>(crossing)], target.lanes()) ||
      !long_enough(kernel.outer.back(), target.lanes()))
    return "the transposed operand is narrower than a register";
  write_tiles(kernel, crossing, target);
  return nullptr;
}

Misfit map_interleaved(Kernel& kernel, const Target& target) {
  if (!has_points_only(kernel) || kernel.outer.empty()) return kNoPoints;
  move_lanes_last(kernel);
  const int along = interleaving_axis(kernel, target);
  if (along < 0) return "no few values are stored side by side";
  write_interleaved(kernel, along, target);
  return nullptr;
}

Misfit map_points(Kernel& kernel, const Target& target) {
  if (!has_points_only(kernel)) return kNoPoints;
  if (kernel.outer.empty()) return nullptr;
  move_lanes_last(kernel);
  take_points(kernel, target.tuning.points);
  Stage& stage = kernel.stages[0];
  make_vector(stage.axes.back(), stage, target, false);
  return nullptr;
}

}  // namespace tandem::schedule
