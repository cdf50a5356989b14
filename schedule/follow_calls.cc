// Problem: what is computed of a convolution's result, element by element, reads it from memory
// that the library has just filled, and the library's own activations drop NaN. Approach: such a
// kernel runs along the call. Its tasks are the lines of the result (of each image, the rows of its
// first dimension), and whoever has computed some of them runs their tasks while a cache holds
// them. So any pointwise epilogue comes along, whatever it reads beside: batch norm, activation,
// residual.
//
// A task must need no line but its own: what is read of the result is read where it is stored, at
// the very address. It must not write what the call still reads for other lines, which only an
// input can be: all other memory is alive while both run.
#include <algorithm>

#include "loop/stage.h"
#include "schedule/map.h"
#include "schedule/steps.h"
#include "schedule/strided.h"

namespace tandem::schedule {
namespace {

using loop::Kernel;
using loop::Stage;
using sym::Expr;

/// Lines of a channels-last result of known size; nothing of others.
std::optional<int64_t> lines_of(const Group& call) {
  if (!call.is_library() || call.first().route != ops::RouteKind::convolution) return std::nullopt;
  const Slot& result = call.first().slots[0];
  if (result.strides != channels_last_strides(result.sizes)) return std::nullopt;
  for (const Expr size : result.sizes)
    if (!size.constant() || size == Expr(0)) return std::nullopt;
  return *result.sizes[0].constant() * *result.sizes[2].constant();
}

/// Where the kernel stores, if that is one address.
std::optional<Expr> stored_at(const Stage& stage) {
  if (stage.body.empty()) return std::nullopt;
  const Expr at = stage.body[0].index;
  const bool is_one = std::ranges::all_of(
      stage.body, [&](const loop::Store& store) { return store.index == at && !store.accumulate; });
  return is_one ? std::optional(at) : std::nullopt;
}

bool reads_only_at(const Group& group, const ir::Value* value, Expr at) {
  const Kernel& kernel = group.kernel;
  bool reads = false;
  for (const loop::Val scalar : loop::all_scalars_of(*kernel.scalars, kernel.stages[0])) {
    if (scalar->opcode != loop::Opcode::load) continue;
    if (group.buffer_values[static_cast<size_t>(scalar->slot)] != value) continue;
    if (scalar->index != at) return false;
    reads = true;
  }
  return reads;
}

bool writes_input(const Group& group) {
  return std::ranges::any_of(group.members, [](const Member& member) {
    return std::ranges::any_of(member.item->slots,
                               [](const Slot& slot) { return slot.in_place_of != nullptr; });
  });
}

/// Why the group, which comes next, does not run along the call; null where it does.
Misfit follows(const Group& call, const Group& group) {
  if (group.is_library() || !has_points_only(group.kernel)) return "it is not pointwise";
  const Kernel& kernel = group.kernel;
  if (!kernel.errors.empty() || !kernel.parallel) return "it may fail, or runs in one piece";
  if (writes_input(group)) return "it writes over an input";
  const std::optional<Expr> at = stored_at(kernel.stages[0]);
  if (!at) return "it stores at several addresses";
  return reads_only_at(group, call.first().slots[0].value, *at)
             ? nullptr
             : "it reads the result elsewhere than where it stores";
}

}  // namespace

void follow_calls(KernelGraph& graph) {
  if (graph.target.is_gpu()) return;
  for (size_t i = 0; i + 1 < graph.groups.size(); ++i) {
    const std::optional<int64_t> lines = lines_of(graph.groups[i]);
    if (!lines || graph.groups[i + 1].needs.groups.count(static_cast<uint32_t>(i)) == 0) continue;
    const uint32_t call = static_cast<uint32_t>(i);
    const Misfit misfit = follows(graph.groups[i], graph.groups[i + 1]);
    if (misfit == nullptr) graph.groups[i + 1].follows = Followed{call, *lines};
    graph.decisions.follows.push_back({call, call + 1, misfit == nullptr ? "" : misfit});
  }
}

}  // namespace tandem::schedule
