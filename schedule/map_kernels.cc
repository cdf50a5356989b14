// Problem: mapping tries strategies on copies of a kernel, and a network of twelve layers has each
// of its kernels twelve times. Approach: a kernel that is the same as one before it, whatever its
// axes are called (loop/match.h), takes over what that one was mapped to, axes and all: symbols of
// axes mean nothing outside of their kernel.
#include <algorithm>
#include <utility>

#include "base/interrupt.h"
#include "loop/match.h"
#include "schedule/map.h"
#include "schedule/steps.h"

namespace tandem::schedule {
namespace {

/// Where its lines are no tasks it is a kernel like others.
bool runs_along_call(KernelGraph& graph, Group& group, size_t number) {
  if (!group.follows) return false;
  const Misfit misfit = map_lines(group.kernel, group.follows->lines, graph.target);
  if (misfit != nullptr) {
    group.follows.reset();
    for (FollowDecision& follow : graph.decisions.follows)
      if (follow.group == number) follow.reason = misfit;
    return false;
  }
  graph.decisions.maps[number] = {{"map_lines", ""}};
  return true;
}

/// A kernel before it was mapped, and whose it is.
struct Unmapped {
  loop::Kernel kernel;
  size_t group;
};

/// The layers of a network have the same kernels: the second one is as the first was mapped.
bool is_mapped_as_before(KernelGraph& graph, size_t number, const std::vector<Unmapped>& known) {
  Group& group = graph.groups[number];
  const auto is_same = [&](const Unmapped& before) {
    const std::optional<sym::Substitution> others = loop::matched(before.kernel, group.kernel);
    return others && others->empty();
  };
  const auto before = std::ranges::find_if(known, is_same);
  if (before == known.end()) return false;
  const loop::Kernel own = std::exchange(group.kernel, graph.groups[before->group].kernel);
  group.kernel.name = own.name;
  group.kernel.errors = own.errors;
  for (size_t i = 0; i < own.buffers.size(); ++i)
    group.kernel.buffers[i].label = own.buffers[i].label;
  graph.decisions.maps[number] = graph.decisions.maps[before->group];
  return true;
}

}  // namespace

void map_kernels(KernelGraph& graph) {
  graph.decisions.maps.resize(graph.groups.size());
  std::vector<Unmapped> known;
  for (size_t number = 0; number < graph.groups.size(); ++number) {
    Group& group = graph.groups[number];
    if (group.is_library() || group.kernel.scalars == nullptr) continue;
    poll_interrupt();
    if (runs_along_call(graph, group, number)) continue;
    if (graph.choose && choose_mapping(graph, group)) continue;
    if (is_mapped_as_before(graph, number, known)) continue;
    known.push_back({group.kernel, number});
    graph.decisions.maps[number] = map_axes(group.kernel, graph.target);
  }
}

}  // namespace tandem::schedule
