// Problem: how a loop is spelled decides about its speed (steps without a loop, square tiles turned
// in registers, wide loads of which some lanes are taken, memory asked for ahead), and who writes
// machine code should have nothing to decide. Approach: one last pass over kernels writes it all
// down, as marks of axes; code generation reads those. What the marks need is verified with them.
#include <algorithm>

#include "loop/stage.h"
#include "schedule/map.h"

namespace tandem::schedule {
namespace {

using loop::Axis;
using loop::AxisKind;
using loop::Kernel;
using loop::Stage;
using loop::Val;
using sym::Expr;

/// Of the stage's points, not of what it reduces; null where its points have no lanes.
const Axis* lanes_of(const Stage& stage) {
  for (const Axis& axis : stage.axes)
    if (axis.kind == AxisKind::vector && axis.lanes > 1) return &axis;
  return nullptr;
}

class Marker {
 public:
  Marker(Kernel& kernel, const Tuning::Loops& tuning) : kernel_(kernel), tuning_(tuning) {}

  void run() {
    for (Stage& stage : kernel_.stages) {
      mark_steps(stage);
      if (!stage.axes.empty()) mark_tile(stage, stage.axes.back());
      for (std::vector<Axis>* axes : {&stage.axes, &stage.reduce_axes})
        for (Axis& axis : *axes)
          if (axis.kind == AxisKind::vector && axis.lanes > 1) mark_loads(stage, axis);
    }
  }

 private:
  // --- steps of reductions

  /// Of the axes from `first` on; nothing where one of them is long or unknown.
  std::optional<int64_t> steps_from(const std::vector<Axis>& axes, size_t first) const {
    int64_t steps = 1;
    for (size_t i = first; i < axes.size(); ++i) {
      const std::optional<int64_t> extent = axes[i].extent.constant();
      if (!extent || *extent > tuning_.kept) return std::nullopt;
      steps *= *extent;
    }
    return steps;
  }

  /// Bodies of few steps are worth writing out: masks and addresses of a window's positions fold
  /// then. A step of a register tile is many instructions: more of them would keep nothing in
  /// registers, and where LLVM would write them out it is told not to. A scan stores at every step
  /// and stays a loop. What a mapping marked stays so.
  void mark_steps(Stage& stage) const {
    std::vector<Axis>& axes = stage.reduce_axes;
    const bool is_tile = !stage.axes.empty() && stage.axes.back().kind == AxisKind::unroll;
    const bool scans = std::ranges::any_of(stage.reductions, &loop::Reduction::scan);
    const std::optional<int64_t> all = steps_from(axes, 0);
    for (size_t i = axes.size(); i-- > 0;) {
      if (axes[i].steps != loop::Steps::loop) continue;
      if (is_tile && all && *all <= tuning_.kept) axes[i].steps = loop::Steps::kept;
      const bool is_serial =
          std::all_of(axes.begin() + static_cast<std::ptrdiff_t>(i), axes.end(),
                      [](const Axis& axis) { return axis.kind == AxisKind::serial; });
      const std::optional<int64_t> steps = steps_from(axes, i);
      const int64_t few = is_tile ? tuning_.written_out_in_tile : tuning_.written_out;
      if (!scans && is_serial && steps && *steps <= few) axes[i].steps = loop::Steps::written_out;
    }
  }

  // --- tiles without a reduction

  void mark_tile(const Stage& stage, Axis& last) const {
    const Axis* lanes = lanes_of(stage);
    if (last.kind != AxisKind::unroll || lanes == nullptr || !stage.reductions.empty()) return;
    if (loop::lies_point_by_point(kernel_, stage)) {
      last.kind = AxisKind::interleave;
    } else if (last.lanes == lanes->lanes && !loop::turned_loads(stage).empty()) {
      last.kind = AxisKind::transpose;
    }
  }

  // --- loads under lanes

  void mark_loads(const Stage& stage, Axis& axis) const {
    const std::optional<int64_t> extent = axis.extent.constant();
    const bool has_tail =
        extent ? *extent % axis.lanes != 0 : !sym::known_divisible(axis.extent, axis.lanes);
    for (const Val value : loop::all_scalars_of(*kernel_.scalars, stage)) {
      if (value->opcode != loop::Opcode::load) continue;
      const std::optional<sym::Affine> along = sym::affine_in(value->index, axis.index);
      const std::optional<int64_t> stride = along ? along->coefficient.constant() : std::nullopt;
      if (!stride || *stride < 1 || *stride > tuning_.widest_stride) continue;
      axis.stride = std::max(axis.stride, static_cast<int>(*stride));
      // What is in scratch is at hand.
      const bool is_far =
          kernel_.buffers[static_cast<size_t>(value->slot)].access != loop::Access::scratch;
      if (is_far && (*stride > 1 || value->masked || has_tail)) axis.ahead = tuning_.ahead;
    }
  }

  Kernel& kernel_;
  const Tuning::Loops& tuning_;
};

}  // namespace

void mark_loops(Kernel& kernel, const Target& target) { Marker(kernel, target.tuning.loops).run(); }

}  // namespace tandem::schedule
