// Joined products (compute_at_rows.cc): a block owns rows of the chain, the last outer axis, and
// runs stage after stage over them. What one stage leaves for the next is a matrix of these rows in
// shared memory, so scores of attention never reach memory; where they would not fit, the chain was
// not made (Chainer asks the same numbers), or its rows become blocks one by one (map_rows). In
// each stage some threads share a row and the others take the other rows.
#include <algorithm>

#include "schedule/gpu/blocks.h"
#include "schedule/gpu/map.h"
#include "schedule/row_block.h"

namespace tandem::schedule::gpu {
namespace {

using loop::Axis;
using loop::Kernel;
using loop::Stage;

bool is_chain(const Kernel& kernel) {
  const auto is_product = [](const Stage& stage) {
    return stage.reductions.size() == 1 && stage.axes.size() == 1 && stage.body.empty() &&
           stage.reductions[0].combiner == loop::Combiner::dot;
  };
  return kernel.stages.size() >= 2 && !kernel.outer.empty() &&
         std::ranges::any_of(kernel.stages, is_product);
}

bool gathers(const Kernel& kernel) {
  return std::ranges::any_of(
      kernel.stages, [](const Stage& stage) { return stage.kind == loop::StageKind::gather; });
}

int64_t scratch_bytes(const Kernel& kernel) {
  int64_t bytes = 0;
  for (const loop::Buffer& buffer : kernel.buffers)
    if (buffer.access == loop::Access::scratch)
      bytes = std::min(bytes + most_bytes(buffer), INT64_MAX / 4);
  return bytes;
}

/// Threads along the stage's own axis, or along its sum where it has none.
void spread_row(const Kernel& kernel, Stage& stage, int lanes) {
  const bool reduces = stage.axes.empty();
  std::vector<Axis>& axes = reduces ? stage.reduce_axes : stage.axes;
  const bool scans = std::ranges::any_of(
      stage.reductions, [](const loop::Reduction& reduction) { return reduction.scan; });
  if (axes.empty() || scans) return;
  int score = 0;
  move_last(axes, best_axis(axes, addresses(stage), &score));
  if (can_spread(kernel, stage, axes.back(), reduces))
    spread(axes.back(), lanes_along(axes.back().extent, lanes));
}

}  // namespace

Misfit map_chain(Kernel& kernel, const Target& target) {
  if (!is_chain(kernel)) return "it is no chain of products";
  if (gathers(kernel)) return "it gathers over its rows";
  const Tuning::Blocks& tuning = target.tuning.blocks;
  RowBlock block = widen_rows(kernel, tuning.chain_rows);
  if (scratch_bytes(kernel) > target.gpu.shared_bytes)
    return "what is computed of a block's rows is more than shared memory holds";
  const int lanes = static_cast<int>(tuning.chain_lanes);
  spread(block.rows, lanes_along(block.height, tuning.threads / lanes));
  for (Stage& stage : kernel.stages) {
    spread_row(kernel, stage, lanes);
    stage.axes.insert(stage.axes.begin(), block.rows);
  }
  outer_to_blocks(kernel);
  finish_blocks(kernel, target);
  return nullptr;
}

}  // namespace tandem::schedule::gpu
