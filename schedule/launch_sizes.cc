// Numbers of a launch that follow from the kernel alone; they are sizes, not decisions.
#include "schedule/launch_sizes.h"

#include <algorithm>

#include "loop/stage.h"

namespace tandem::schedule {
namespace {

using ir::Value;
using sym::Expr;

Expr elements_of(const Group& group, size_t buffer) {
  const Home& home = group.buffer_homes[buffer];
  return sym::product(home.item->slots[home.slot].sizes);
}

/// An extent without the axes around it. That of a block is min(block, n - start): the first one
/// is whole.
Expr bound(const loop::Kernel& kernel, const loop::Stage& stage, Expr extent) {
  sym::Substitution first;
  for (const std::vector<loop::Axis>* axes : {&kernel.outer, &stage.axes})
    for (const loop::Axis& axis : *axes) first.emplace_back(axis.index, Expr(0));
  return sym::substitute(extent, first);
}

}  // namespace

Expr tasks_of(const Group& group) {
  const loop::Kernel& kernel = group.kernel;
  Expr written = 0;
  for (size_t i = 0; i < kernel.buffers.size(); ++i) {
    const loop::Access access = kernel.buffers[i].access;
    if (access != loop::Access::write && access != loop::Access::read_write) continue;
    const Value* value = group.buffer_values[i];
    written = written + (value != nullptr ? value->type.numel() : elements_of(group, i));
  }
  const bool has_work = written.range().lo > 0 || !kernel.errors.empty();
  return has_work ? kernel.tasks() : kernel.tasks() * sym::min(written, 1);
}

Expr scratch_bytes(const loop::Kernel& kernel, loop::Space space) {
  Expr bytes = 0;
  for (const loop::Buffer& buffer : kernel.buffers)
    if (buffer.access == loop::Access::scratch && buffer.space == space)
      bytes = bytes + sym::ceil_div(buffer.elements * size_of(buffer.dtype), 64) * 64;
  return bytes;
}

Expr work_of(const loop::Kernel& kernel) {
  Expr points = 1;
  for (const loop::Axis& axis : kernel.outer) points = points * axis.extent;
  Expr inner = 0;
  int weight = 0;
  for (const loop::Stage& stage : kernel.stages) {
    Expr count = 1;
    for (const loop::Axis& axis : stage.axes) count = count * bound(kernel, stage, axis.extent);
    for (const loop::Axis& axis : stage.reduce_axes)
      count = count * bound(kernel, stage, axis.extent);
    for (loop::Val value : loop::all_scalars_of(*kernel.scalars, stage))
      weight += loop::is_transcendental(value->opcode) ? 12 : 1;
    inner = inner + count;
  }
  return sym::floor_div(points * inner * std::max(weight, 4), 40) + 1;
}

std::string label_of(const Group& group) {
  std::string label;
  for (const Member& member : group.members)
    label += (label.empty() ? "" : ", ") + member.item->node->op->name();
  const std::string& place = group.first().node->origin.place;
  return place.empty() ? label : label + " (" + place + ")";
}

}  // namespace tandem::schedule
