// Which stage needs how many threads, what lies where and who waits for whom follows from the axes,
// so mappings write axes only and the rest is done here, in one way for all.
#include "schedule/gpu/blocks.h"

#include <algorithm>
#include <bit>

#include "loop/threads.h"

namespace tandem::schedule::gpu {

using loop::Axis;
using loop::AxisKind;
using loop::Kernel;
using loop::Space;
using loop::Stage;
using sym::Expr;

namespace {

bool is_argument(const Kernel& kernel, int32_t buffer) {
  return kernel.buffers[static_cast<size_t>(buffer)].access != loop::Access::scratch;
}

/// Whether all stores to memory walk the axis.
bool is_walked(const Kernel& kernel, const Axis& axis) {
  bool walked = true;
  for (const Stage& stage : kernel.stages)
    loop::for_each_store(stage, [&](const loop::Store& store) {
      walked &= !is_argument(kernel, store.buffer) || sym::depends_on(store.index, axis.index);
    });
  return walked || axis.extent == Expr(1);
}

/// In the order of the buffers: what comes first is used first.
void place_scratch(Kernel& kernel, int64_t shared_bytes) {
  for (const loop::Buffer& buffer : kernel.buffers)
    if (buffer.space == Space::shared) shared_bytes -= most_bytes(buffer);
  for (loop::Buffer& buffer : kernel.buffers) {
    if (buffer.access != loop::Access::scratch || buffer.space != Space::global) continue;
    if (most_bytes(buffer) > shared_bytes) continue;
    buffer.space = Space::shared;
    shared_bytes -= most_bytes(buffer);
  }
}

}  // namespace

int lanes_along(Expr extent, int64_t most) {
  const int64_t points = std::clamp<int64_t>(extent.range().hi, 1, most);
  return static_cast<int>(std::bit_ceil(static_cast<uint64_t>(points)));
}

void spread(Axis& axis, int lanes) {
  axis.kind = AxisKind::thread;
  axis.lanes = lanes;
}

void outer_to_blocks(Kernel& kernel) {
  for (Axis& axis : kernel.outer)
    axis.kind = is_walked(kernel, axis) ? AxisKind::block : AxisKind::serial;
}

bool owns_its_stores(const Kernel& kernel) {
  return std::ranges::all_of(kernel.outer,
                             [&](const Axis& axis) { return is_walked(kernel, axis); });
}

bool can_spread(const Kernel& kernel, const Stage& stage, const Axis& axis, bool reduces) {
  Axis spread_out = axis;
  spread(spread_out, 2);
  const auto apart = [&](const loop::Store& store) {
    return loop::are_threads_apart(*kernel.scalars, store, spread_out);
  };
  return std::ranges::all_of(stage.body, apart) &&
         (reduces || std::ranges::all_of(stage.after, apart));
}

int32_t add_scratch(Kernel& kernel, DType dtype, Expr elements, Space space) {
  kernel.buffers.push_back({dtype, loop::Access::scratch, elements, true, "", space});
  return static_cast<int32_t>(kernel.buffers.size()) - 1;
}

int64_t most_bytes(const loop::Buffer& buffer) {
  constexpr int64_t kLine = 64;  // as the launch rounds
  const int64_t most = buffer.elements.range().hi;
  if (most > INT64_MAX / 16) return INT64_MAX / 4;
  return ceil_div(most * size_of(buffer.dtype), kLine) * kLine;
}

void finish_blocks(Kernel& kernel, const Target& target) {
  int64_t threads = target.gpu.warp;
  for (const Stage& stage : kernel.stages) threads = std::max(threads, loop::threads_of(stage));
  kernel.threads = static_cast<int32_t>(threads);
  place_scratch(kernel, target.gpu.shared_bytes);
  loop::place_barriers(kernel);
}

}  // namespace tandem::schedule::gpu
