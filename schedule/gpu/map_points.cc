// Kernels without a reduction. Threads go along the axis that most accesses walk with stride 1, so
// that a warp reads neighbours, each as many as one access holds where there is work enough; where
// that axis is short, along the one before it as well. Where an
// operand runs along another axis than the results, a square tile of it goes through shared memory:
// it is filled along the one and read along the other. Its rows are one element longer than the
// tile, so that a column of it does not lie in one bank.
#include <algorithm>
#include <map>

#include "schedule/gpu/blocks.h"
#include "schedule/gpu/map.h"

namespace tandem::schedule::gpu {
namespace {

using loop::Axis;
using loop::AxisKind;
using loop::Kernel;
using loop::Stage;
using loop::Val;
using sym::Expr;

constexpr Misfit kNoPoints = "it has a reduction, or several stages";

/// Of one thread along the last axis: one where there would be too few blocks otherwise.
int64_t points_of_thread(const Kernel& kernel, const Target& target) {
  const Tuning::Blocks& tuning = target.tuning.blocks;
  Expr points = 1;
  for (const Axis& axis : kernel.outer) points = points * axis.extent;
  const int64_t enough = tuning.threads * tuning.points * target.gpu.multiprocessors;
  return points.constant() && *points.constant() < enough ? 1 : tuning.points;
}

/// Elements of the last axis that a thread loads and stores at once: as many as the widest access
/// holds of the widest of them, where all lie side by side; else one.
int64_t elements_at_once(const Kernel& kernel, const Target& target) {
  const Stage& stage = kernel.stages[0];
  const Axis& last = kernel.outer.back();
  int64_t widest = 1;
  bool side_by_side = true;
  const auto visit = [&](DType dtype, Expr index, bool plain) {
    if (!sym::depends_on(index, last.index)) return;
    const std::optional<sym::Affine> affine = sym::affine_in(index, last.index);
    side_by_side &= plain && affine && affine->coefficient == Expr(1);
    widest = std::max(widest, size_of(dtype));
  };
  for (Val value : loop::scalars_of(stage))
    if (value->opcode == loop::Opcode::load) visit(value->dtype, value->index, value->args.empty());
  loop::for_each_store(stage, [&](const loop::Store& store) {
    visit(store.value->dtype, store.index, !store.accumulate);
  });
  const int64_t elements = target.vector_bytes / widest;
  return side_by_side && sym::known_divisible(last.extent, elements) ? elements : 1;
}

/// A block's part of outer axis `number`, spread over threads.
Axis take_threads(Kernel& kernel, size_t number, int lanes, int64_t points) {
  Axis low = take_block(kernel, number, lanes * points, {&kernel.stages[0]});
  spread(low, lanes);
  return low;
}

void spread_points(Kernel& kernel, const Target& target) {
  const int64_t threads = target.tuning.blocks.threads;
  const size_t last = kernel.outer.size() - 1;
  int64_t points = points_of_thread(kernel, target);
  const int64_t at_once = points > 1 ? elements_at_once(kernel, target) : 1;
  std::vector<Axis>& axes = kernel.stages[0].axes;
  if (at_once > 1) {
    Axis few = take_block(kernel, last, at_once, {&kernel.stages[0]});
    few.kind = AxisKind::unroll;
    few.lanes = static_cast<int>(at_once);
    axes = {few};
    points = 1;
  }
  const int lanes = lanes_along(kernel.outer[last].extent, threads);
  axes.insert(axes.begin(), take_threads(kernel, last, lanes, points));
  if (last == 0 || lanes == threads) return;
  const int rows = lanes_along(kernel.outer[last - 1].extent, threads / lanes);
  axes.insert(axes.begin(), take_threads(kernel, last - 1, rows, 1));
}

// --- transposing tiles

/// What is read along `across`, and with a stride along `along`.
std::vector<Val> crossing_loads(const Stage& stage, Expr across, Expr along) {
  std::vector<Val> found;
  for (Val value : loop::scalars_of(stage)) {
    if (value->opcode != loop::Opcode::load || !value->args.empty()) continue;
    const std::optional<sym::Affine> first = sym::affine_in(value->index, across);
    const std::optional<sym::Affine> second = sym::affine_in(value->index, along);
    if (first && second && first->coefficient == Expr(1) && second->coefficient != Expr(0) &&
        second->coefficient != Expr(1))
      found.push_back(value);
  }
  return found;
}

class Transposer {
 public:
  Transposer(Kernel& kernel, const Target& target)
      : kernel_(kernel), tuning_(target.tuning.blocks), shared_(target.gpu.shared_bytes) {}

  Misfit run(size_t crossing) {
    const int64_t side = tuning_.tile;
    across_ = take_block(kernel_, crossing, side, {&kernel_.stages[0]});
    along_ = take_block(kernel_, kernel_.outer.size() - 1, side, {&kernel_.stages[0]});
    Stage use = std::move(kernel_.stages[0]);
    const std::vector<Val> loads = crossing_loads(use, across_.index, along_.index);
    if (loads.empty()) return "no operand is transposed";
    if (static_cast<int64_t>(loads.size()) * side * (side + 1) * 8 > shared_)
      return "its tiles are more than shared memory holds";
    Stage fill = filled(loads);
    read_tiles(use);
    fill.axes = threads(along_, across_);
    use.axes = threads(across_, along_);
    kernel_.stages = {std::move(fill), std::move(use)};
    return nullptr;
  }

 private:
  Expr place() const { return along_.index * (tuning_.tile + 1) + across_.index; }

  Stage filled(const std::vector<Val>& loads) {
    Stage fill;
    for (Val load : loads) {
      const int32_t tile =
          add_scratch(kernel_, load->dtype, tuning_.tile * (tuning_.tile + 1), loop::Space::shared);
      tiles_.push_back({load->slot, load->index, tile});
      fill.body.push_back({tile, place(), load, false});
    }
    return fill;
  }

  void read_tiles(Stage& use) {
    loop::ScalarPool& pool = *kernel_.scalars;
    loop::StageRewrite how;
    how.replace = [&](const loop::Scalar& node, std::span<const Val>) -> Val {
      if (node.opcode != loop::Opcode::load || !node.args.empty()) return nullptr;
      for (const Tile& tile : tiles_)
        if (tile.of == node.slot && tile.index == node.index)
          return pool.load(tile.buffer, node.dtype, place());
      return nullptr;
    };
    loop::rewrite(pool, pool, use, how);
  }

  /// Neighbouring threads go along `inner`.
  std::vector<Axis> threads(Axis outer, Axis inner) const {
    spread(inner, static_cast<int>(tuning_.tile));
    spread(outer, lanes_along(tuning_.tile, tuning_.threads / tuning_.tile));
    return {outer, inner};
  }

  struct Tile {
    int32_t of;
    Expr index;
    int32_t buffer;
  };

  Kernel& kernel_;
  const Tuning::Blocks& tuning_;
  int64_t shared_;
  Axis across_;
  Axis along_;
  std::vector<Tile> tiles_;
};

}  // namespace

Misfit map_transpose(Kernel& kernel, const Target& target) {
  if (!has_points_only(kernel) || kernel.outer.size() < 2) return kNoPoints;
  if (!owns_its_stores(kernel)) return "several of its points store to one place";
  move_lanes_last(kernel);
  const int crossing = crossing_axis(kernel);
  if (crossing < 0) return "no operand is transposed";
  const int64_t fewest = target.tuning.blocks.tile / 4;
  if (!long_enough(kernel.outer[static_cast<size_t>(crossing)], static_cast<int>(fewest)) ||
      !long_enough(kernel.outer.back(), static_cast<int>(fewest)))
    return "the transposed operand is narrower than a tile";
  if (Misfit misfit = Transposer(kernel, target).run(static_cast<size_t>(crossing))) return misfit;
  outer_to_blocks(kernel);
  finish_blocks(kernel, target);
  return nullptr;
}

Misfit map_points(Kernel& kernel, const Target& target) {
  if (!has_points_only(kernel)) return kNoPoints;
  if (!owns_its_stores(kernel)) return "several of its points store to one place";
  if (!kernel.outer.empty()) {
    move_lanes_last(kernel);
    spread_points(kernel, target);
  }
  outer_to_blocks(kernel);
  finish_blocks(kernel, target);
  return nullptr;
}

}  // namespace tandem::schedule::gpu
