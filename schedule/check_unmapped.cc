// Problem: chains and mapping count on kernels as build_kernels and compute_at_rows leave them (a
// group's space as loops, factors of a chain's products that walk apart), and text can say
// anything. Approach: those shapes are asked for before a step that maps takes a text. Mapped
// kernels have others, so this is no rule of kernel graphs.
#include <fmt/format.h>

#include <algorithm>

#include "loop/stage.h"
#include "schedule/check_groups.h"
#include "schedule/compute_at.h"

namespace tandem::schedule {
namespace {

using loop::Axis;
using loop::Stage;
using loop::Val;
using sym::Expr;

constexpr int64_t kMostPoints = int64_t{1} << 48;  // of a nest: what is made of them fits 64 bits

/// Of one group.
class Checker {
 public:
  Checker(const Group& group, size_t number) : group_(group), number_(number) {}

  Problems run() {
    if (group_.is_library() || group_.kernel.scalars == nullptr) return {};
    expect(group_.kernel.buffers.size() == group_.buffer_values.size(),
           "its kernel has buffers of which it does not say what they hold");
    for (const Stage& stage : group_.kernel.stages) check_extents(stage);
    if (group_.kind == Group::Kind::loops) check_space();
    if (group_.kind == Group::Kind::chain) check_chain();
    return std::move(problems_);
  }

 private:
  void expect(bool holds, std::string text) {
    if (!holds) problems_.push_back({Problem::Of::group, number_, std::move(text)});
  }

  void check_extents(const Stage& stage) {
    int64_t points = 1;
    for (const std::vector<Axis>* axes : {&group_.kernel.outer, &stage.axes, &stage.reduce_axes})
      for (const Axis& axis : *axes) {
        const int64_t extent = axis.extent.constant().value_or(1);
        const bool fits = extent >= 0 && extent <= kMostPoints / std::max<int64_t>(points, 1);
        expect(fits, fmt::format("axis {} of {} points", axis.index.name(), extent));
        if (fits) points = std::max<int64_t>(points * extent, 1);
      }
  }

  /// The rows around, and in each stage all of a row, or none of it.
  void check_space() {
    const Space& space = group_.space;
    bool fills = extents(group_.kernel.outer) == space.outer;
    for (const Stage& stage : group_.kernel.stages) {
      if (stage.kind == loop::StageKind::footprint) {
        expect(group_.footprint != nullptr && &stage == group_.kernel.stages.data() &&
                   group_.kernel.stages.size() == 2,
               "a footprint stands before the stage that reads it, and is said");
        continue;
      }
      const ir::Sizes axes = extents(stage.axes);
      const ir::Sizes reduced = extents(stage.reduce_axes);
      fills &= stage.kind == loop::StageKind::loops && (axes.empty() || axes == space.inner) &&
               (reduced.empty() || (reduced == space.inner && axes.empty()));
    }
    expect(fills, "its kernel does not walk its space");
  }

  // --- chains

  /// Under the rows: products of a factor that walks the rows and one that does not, what is done
  /// to a row, and gathers. Scratch is a row's.
  void check_chain() {
    if (group_.kernel.outer.empty() || group_.kernel.stages.size() < 2)
      return expect(false, "a chain has rows, and several stages");
    row_ = group_.kernel.outer.back().index;
    for (const Stage& stage : group_.kernel.stages) {
      bool fits = stage.kind != loop::StageKind::footprint && stage.prefetches.empty();
      if (multiplies(stage) && !stage.axes.empty())
        fits &= stage.axes.size() == 1 && walks_apart(stage) && stores_along(stage);
      if (stage.kind == loop::StageKind::gather) fits &= gathers_apart(stage);
      expect(fits, "a stage of its chain is no product of rows, and nothing else");
      check_scratch(stage);
    }
  }

  static bool multiplies(const Stage& stage) {
    return std::ranges::any_of(stage.reductions, [](const loop::Reduction& reduction) {
      return reduction.combiner == loop::Combiner::dot;
    });
  }

  bool walks_apart(const Stage& stage) const {
    if (stage.reductions.size() != 1 || !stage.body.empty()) return false;
    return are_apart(stage.reductions[0].inputs, stage.axes[0].index, row_);
  }

  /// Of two factors one walks the first axis, the other one the second. Scratch is one row's.
  bool are_apart(std::span<const Val> factors, Expr column, Expr row) const {
    for (const size_t left : {0, 1}) {
      const Val rows = factors[left];
      const Val columns = factors[1 - left];
      if ((loop::walks(rows, row) || reads_scratch(rows)) && !loop::walks(rows, column) &&
          loop::walks(columns, column) && !loop::walks(columns, row) && !reads_scratch(columns))
        return true;
    }
    return false;
  }

  bool reads_scratch(Val value) const {
    const std::array roots{value};
    return std::ranges::any_of(loop::reachable(roots), [&](Val part) {
      return part->opcode == loop::Opcode::load && is_scratch(part->slot);
    });
  }

  bool is_scratch(int32_t buffer) const {
    return group_.kernel.buffers[static_cast<size_t>(buffer)].access == loop::Access::scratch;
  }

  static bool stores_along(const Stage& stage) {
    return std::ranges::all_of(stage.after, [&](const loop::Store& store) {
      const std::optional<sym::Affine> along = sym::affine_in(store.index, stage.axes[0].index);
      return along && along->coefficient == Expr(1) && !store.accumulate;
    });
  }

  bool gathers_apart(const Stage& stage) const {
    if (!stage.reduce_axes.empty() || stage.axes.size() != 2) return false;
    const loop::Store& store = stage.body[0];
    const std::vector<Val>& args = store.value->args;
    const auto of_row = [&](Val factor) {
      return reads_scratch(factor) || loop::walks(factor, row_);
    };
    const Expr a = stage.axes[0].index;
    const Expr b = stage.axes[1].index;
    const bool apart = (loop::walks(args[0], a) && !loop::walks(args[0], b) &&
                        loop::walks(args[1], b) && !loop::walks(args[1], a)) ||
                       (loop::walks(args[1], a) && !loop::walks(args[1], b) &&
                        loop::walks(args[0], b) && !loop::walks(args[0], a));
    return apart && of_row(args[0]) && of_row(args[1]) && !is_scratch(store.buffer) &&
           store.value->dtype == DType::f32 && !store.accumulate &&
           !sym::depends_on(store.index, row_);
  }

  void check_scratch(const Stage& stage) {
    bool own = true;
    const auto check = [&](int32_t buffer, Expr index) {
      if (!is_scratch(buffer)) return;
      for (const Axis& axis : group_.kernel.outer) own &= !sym::depends_on(index, axis.index);
    };
    for (const Val value : loop::scalars_of(stage))
      if (value->opcode == loop::Opcode::load) check(value->slot, value->index);
    loop::for_each_store(stage,
                         [&](const loop::Store& store) { check(store.buffer, store.index); });
    expect(own, "scratch is a row's, and addressed in it");
  }

  const Group& group_;
  size_t number_;
  Expr row_ = 0;
  Problems problems_;
};

}  // namespace

Problems problems_of_unmapped(const KernelGraph& graph) {
  Problems problems;
  for (size_t i = 0; i < graph.groups.size(); ++i)
    std::ranges::move(Checker(graph.groups[i], i).run(), std::back_inserter(problems));
  return problems;
}

}  // namespace tandem::schedule
