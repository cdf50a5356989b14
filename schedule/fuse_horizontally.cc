// An optimizer's graph has one kernel, or a few, for each parameter, and none needs another: what
// they cost is waking the team each time. So pointwise launches that do not depend on each other
// become one step: from the first that has not run, those after it join that conflict with nothing
// between. What they write must take no room (in place, a result, a number): others stay where the
// fuser put them, next to their readers. Libraries and kernels that may fail are not passed.
#include "schedule/fuse_horizontally.h"

#include <algorithm>
#include <unordered_set>

#include "schedule/steps.h"

namespace tandem::schedule {
namespace {

/// Places that groups in between read and write.
class Between {
 public:
  bool conflicts(const GroupUse& use) const {
    return any(use.reads, written_) || any(use.writes, written_) || any(use.writes, read_);
  }
  void add(const GroupUse& use) {
    read_.insert(use.reads.begin(), use.reads.end());
    written_.insert(use.writes.begin(), use.writes.end());
  }

 private:
  using Places = std::unordered_set<const void*>;
  static bool any(const std::vector<const void*>& places, const Places& in) {
    return std::any_of(places.begin(), places.end(),
                       [&](const void* place) { return in.count(place) != 0; });
  }
  Places read_;
  Places written_;
};

/// What is written takes none of the arena, or too little to matter: it is in the place of an
/// input, or leaves the graph.
bool takes_no_room(const ir::Value& value, int64_t small) {
  bool is_output = std::any_of(value.uses.begin(), value.uses.end(),
                               [](const ir::Use& use) { return use.node == nullptr; });
  std::optional<int64_t> elements = value.type.numel().constant();
  return value.node == nullptr || is_output || (elements && *elements <= small);
}

bool may_join(const GroupUse& use) { return use.is_pointwise && use.is_free; }

/// Of one alone; null where it may be beside others.
const char* misfit_of(const GroupUse& use) {
  if (use.writes.empty()) return "one is a library call";
  if (!use.is_pointwise) return "one is not pointwise";
  return use.is_free ? nullptr : "what one leaves would take memory for longer";
}

std::vector<size_t> together_with(size_t first, const std::vector<GroupUse>& groups,
                                  std::vector<char>& is_placed) {
  std::vector<size_t> together{first};
  Between between;
  between.add(groups[first]);
  for (size_t i = first + 1; i < groups.size(); ++i) {
    if (is_placed[i]) continue;
    const GroupUse& use = groups[i];
    if (use.writes.empty()) break;  // a library call
    if (use.can_fail) break;        // a write to an input must not run before it
    if (may_join(use) && !between.conflicts(use)) {
      together.push_back(i);
      is_placed[i] = true;
    }
    between.add(use);
  }
  return together;
}

}  // namespace

GroupUse use_of(const Group& group, const KernelGraph& graph) {
  GroupUse use;
  if (group.is_library()) return use;
  const loop::Kernel& kernel = group.kernel;
  use.is_pointwise = !group.follows && kernel.stages.size() == 1 &&
                     kernel.stages[0].reductions.empty() && kernel.errors.empty() &&
                     kernel.parallel;
  use.is_free = true;
  use.can_fail = !kernel.errors.empty();
  for (size_t i = 0; i < kernel.buffers.size(); ++i) {
    loop::Access access = kernel.buffers[i].access;
    if (access == loop::Access::scratch) continue;
    const ir::Value* value = group.buffer_values[i];  // an input where it is written in place
    bool is_input = value != nullptr && value->node == nullptr;
    Home home = value != nullptr && !is_input ? graph.homes.at(value) : group.buffer_homes[i];
    const void* memory = is_input ? value : static_cast<const void*>(&home.item->slots[home.slot]);
    if (access != loop::Access::write) use.reads.push_back(memory);
    if (access == loop::Access::read) continue;
    use.writes.push_back(memory);
    use.is_free &=
        value != nullptr && takes_no_room(*value, graph.target.tuning.fusion.small_result);
  }
  return use;
}

const char* why_apart(const std::vector<GroupUse>& groups, size_t first, size_t second) {
  for (size_t i : {first, second})
    if (const char* misfit = misfit_of(groups[i])) return misfit;
  Between between;
  for (size_t i = first; i < second; ++i) {
    if (i > first && groups[i].writes.empty()) return "a library call stands between";
    if (i > first && groups[i].can_fail) return "what stands between may fail";
    between.add(groups[i]);
  }
  return between.conflicts(groups[second]) ? "what stands between uses its memory"
                                           : "the first one is beside others";
}

LaunchOrder order_of(const std::vector<GroupUse>& groups) {
  LaunchOrder order;
  std::vector<char> is_placed(groups.size(), false);
  for (size_t i = 0; i < groups.size(); ++i) {
    if (is_placed[i]) continue;
    is_placed[i] = true;
    if (may_join(groups[i]))
      order.push_back(together_with(i, groups, is_placed));
    else
      order.push_back({i});
  }
  return order;
}

/// Behind its call, and part of that step.
void take_followers(KernelGraph& graph) {
  const auto follows = [&](const std::vector<size_t>& step) {
    return graph.groups[step[0]].follows.has_value();
  };
  for (const std::vector<size_t>& step : graph.order) {
    if (!follows(step)) continue;
    std::vector<size_t>& call = *std::ranges::find_if(graph.order, [&](const auto& other) {
      return other[0] == graph.groups[step[0]].follows->call;
    });
    call.push_back(step[0]);
  }
  std::erase_if(graph.order, follows);
}

void launch_one_by_one(KernelGraph& graph) {
  for (size_t i = 0; i < graph.groups.size(); ++i) graph.order.push_back({i});
  take_followers(graph);
}

void fuse_horizontally(KernelGraph& graph) {
  std::vector<GroupUse> uses;
  for (const Group& group : graph.groups) uses.push_back(use_of(group, graph));
  graph.order = order_of(uses);
  take_followers(graph);
}

}  // namespace tandem::schedule
