// Problem: what is larger than all caches comes from memory and goes there, and how decides about
// the speed of kernels that do little else. To write a line, a processor reads it first, and drives
// out another one; for a result that nobody will find in a cache both are in vain. What it reads it
// sees coming, but not far enough where there is much to do with each line. Approach: large results
// are stored past the caches, and loops that read large buffers from end to end ask for what they
// read some lines before. Only results of this program's own making begin on a line, and what a
// kernel reads again, stores in two places or adds to belongs into a cache.
#include <algorithm>
#include <set>

#include "loop/stage.h"
#include "schedule/cost.h"
#include "schedule/steps.h"

namespace tandem::schedule {
namespace {

using loop::Stage;
using loop::Store;
using sym::Expr;

/// What the buffer holds; null for scratch, some of which mapping has added.
const ir::Value* held_by(const Group& group, size_t buffer) {
  return buffer < group.buffer_values.size() ? group.buffer_values[buffer] : nullptr;
}

bool is_larger(const ir::Value* value, int64_t bytes) {
  return value != nullptr && value->type.numel().range().lo > bytes / size_of(value->type.dtype);
}

// --- stores

/// How many elements the stage stores at most.
Expr points_of(const loop::Kernel& kernel, const Stage& stage) {
  Expr points = 1;
  for (const std::vector<loop::Axis>* axes : {&kernel.outer, &stage.axes, &stage.reduce_axes})
    for (const loop::Axis& axis : *axes) points = points * axis.extent;
  return points;
}

int64_t stores_to(const Stage& stage, size_t buffer) {
  int64_t count = 0;
  loop::for_each_store(
      stage, [&](const Store& store) { count += store.buffer == static_cast<int32_t>(buffer); });
  return count;
}

/// The stage whose one store makes the buffer; null where there is none such, or where stages
/// behind it store to more than few of its elements again. Few are what is scattered into the
/// gradient of a large table of zeros: they come back from memory.
Stage* filled_by(loop::Kernel& kernel, size_t buffer, Expr elements, const Target& target) {
  const auto first = std::ranges::find_if(
      kernel.stages, [&](const Stage& stage) { return stores_to(stage, buffer) != 0; });
  if (first == kernel.stages.end() || stores_to(*first, buffer) != 1) return nullptr;
  Expr later = 0;
  for (auto stage = first + 1; stage != kernel.stages.end(); ++stage)
    if (const int64_t stores = stores_to(*stage, buffer))
      later = later + points_of(kernel, *stage) * stores;
  const auto most =
      count_of(elements, target) / static_cast<double>(target.tuning.loops.fewest_once);
  return count_of(later, target) <= most ? &*first : nullptr;
}

/// Whether only this kernel's stores touch it, in memory of the program's own.
bool is_fresh(const KernelGraph& graph, const Group& group, size_t buffer) {
  const ir::Value* value = held_by(group, buffer);
  return group.kernel.buffers[buffer].access == loop::Access::write && value != nullptr &&
         graph.has_own_memory(value);
}

/// Whether what lies side by side is stored one piece after the other, or a line at a time: parts
/// of many lines at once would leave as parts.
bool fills_lines(const Stage& stage, const Store& store, DType dtype) {
  constexpr int64_t kLine = 64;
  if (store.accumulate || !loop::starts_on_registers(stage, store, dtype)) return false;
  const std::vector<loop::Axis>& axes = stage.axes.empty() ? stage.reduce_axes : stage.axes;
  const auto vector = std::ranges::find(axes, loop::AxisKind::vector, &loop::Axis::kind);
  return vector != axes.end() &&
         (vector == axes.end() - 1 || vector->lanes * size_of(dtype) >= kLine);
}

/// A line that was asked for to be written would have to leave again.
void send_past_caches(Stage& stage, Store& store) {
  store.nontemporal = true;
  std::erase_if(stage.prefetches,
                [&](const loop::Prefetch& hint) { return hint.buffer == store.buffer; });
}

void mark_stores(const KernelGraph& graph, Group& group) {
  const int64_t most = std::min(graph.target.tuning.loops.past_caches, graph.target.l3_bytes / 2);
  loop::Kernel& kernel = group.kernel;
  for (size_t i = 0; i < kernel.buffers.size(); ++i) {
    const ir::Value* value = held_by(group, i);
    if (!is_larger(value, most) || !is_fresh(graph, group, i)) continue;
    Stage* const stage = filled_by(kernel, i, value->type.numel(), graph.target);
    if (stage == nullptr) continue;
    loop::for_each_store(*stage, [&](Store& store) {
      if (store.buffer == static_cast<int32_t>(i) &&
          fills_lines(*stage, store, kernel.buffers[i].dtype))
        send_past_caches(*stage, store);
    });
  }
}

// --- loads

/// The innermost loop, where it has lanes; a tile in registers walks rows of its own. Null for all
/// else.
loop::Axis* stream_of(Stage& stage) {
  std::vector<loop::Axis>& axes = stage.reduce_axes.empty() ? stage.axes : stage.reduce_axes;
  const bool has_lanes =
      !axes.empty() && axes.back().kind == loop::AxisKind::vector && axes.back().lanes > 1;
  return has_lanes ? &axes.back() : nullptr;
}

/// Buffers of more bytes that the stage reads along the axis. What is read under a mask asks
/// anyway.
std::set<int32_t> read_along(const Group& group, const Stage& stage, Expr axis, int64_t bytes) {
  std::set<int32_t> found;
  for (const loop::Val value : loop::all_scalars_of(*group.kernel.scalars, stage)) {
    if (value->opcode != loop::Opcode::load) continue;
    const std::optional<sym::Affine> along = sym::affine_in(value->index, axis);
    const bool is_stream = along && along->coefficient == Expr(1);
    if (is_stream && is_larger(held_by(group, static_cast<size_t>(value->slot)), bytes))
      found.insert(value->slot);
  }
  return found;
}

bool sums_products(const Stage& stage) {
  return stage.reductions.size() == 1 && loop::multiplies(stage.reductions[0].combiner);
}

/// Stages that read a row once more find it in a cache.
void mark_loads(const Tuning::Loops& tuning, Group& group) {
  std::set<int32_t> far;
  for (Stage& stage : group.kernel.stages) {
    loop::Axis* const axis = stream_of(stage);
    if (axis == nullptr) continue;
    const int64_t bytes = sums_products(stage) ? tuning.far_matrix : tuning.far;
    for (const int32_t buffer : read_along(group, stage, axis->index, bytes))
      axis->streams |= far.insert(buffer).second;
    if (axis->streams && axis->ahead == 0) axis->ahead = tuning.ahead;
  }
  for (const int32_t buffer : far) group.kernel.buffers[static_cast<size_t>(buffer)].far = true;
}

}  // namespace

void mark_memory(const KernelGraph& graph, Group& group) {
  mark_stores(graph, group);
  mark_loads(graph.target.tuning.loops, group);
}

}  // namespace tandem::schedule
