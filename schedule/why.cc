// Answers to questions about a schedule: why a value has a kernel of its own, a library call or no
// place at all, and why two values that meet are not computed by one kernel.
#include <fmt/format.h>

#include <algorithm>

#include "base/diagnostic.h"
#include "ir/text.h"
#include "schedule/kernel_graph.h"
#include "schedule/schedule.h"

namespace tandem::schedule {
namespace {

using ir::Value;

class Answers {
 public:
  explicit Answers(const KernelGraph& graph)
      : graph_(graph), names_(ir::value_names(*graph.graph)) {}

  const Value* named(std::string_view name) const {
    const std::string_view bare = name.starts_with("%") ? name.substr(1) : name;
    for (const ir::Node* node = graph_.graph->first(); node != nullptr; node = node->next)
      for (const Value* result : node->results)
        if (names_.at(result) == bare) return result;
    throw UserError(
        fmt::format("no node of @{} makes %{}; TANDEM_DUMP=before:schedule prints the "
                    "graph that is asked about",
                    graph_.graph->name(), bare));
  }

  std::string place(const Value* value) const {
    const Item* item = graph_.homes.at(value).item;
    std::string text = fmt::format("%{} = {}: ", names_.at(value), ir::to_string(*value->node));
    if (item == nullptr) return text + "inlined into its readers\n";
    text += item->kind == Item::Kind::library ? "a library call" : "item of a kernel";
    text += fmt::format(", because {}\n", item->reason);
    for (const RouteDecision& route : graph_.decisions.routes)
      if (route.node == value->node && !route.taken)
        text += fmt::format("  library declined: {}\n", route.reason);
    return text + members(*item);
  }

  std::string pair(const Value* a, const Value* b) const {
    const Item* first = graph_.homes.at(a).item;
    const Item* second = graph_.homes.at(b).item;
    if (first == nullptr || second == nullptr) return "";
    if (group_with(*first) == group_with(*second)) return "they share a kernel\n";
    const std::string declined = joins(*first, *second) + joins(*second, *first) +
                                 computed_at(*first, *second) + computed_at(*second, *first) +
                                 follows(*first, *second) + follows(*second, *first);
    return declined.empty() ? "no join was tried: neither reads what the other one's kernel reads "
                              "or computes\n"
                            : declined;
  }

 private:
  const Group* group_with(const Item& item) const {
    for (const Group& group : graph_.groups)
      if (std::ranges::find(group.members, &item, &Member::item) != group.members.end())
        return &group;
    return nullptr;
  }

  std::string members(const Item& item) const {
    const Group* group = group_with(item);
    std::string others;
    if (group != nullptr)
      for (const Member& other : group->members)
        if (other.item != &item)
          others += (others.empty() ? "" : ", ") + other.item->node->op->name();
    const std::string also =
        others.empty() ? "" : fmt::format("  its kernel also computes {}\n", others);
    return group == nullptr ? also : also + mapping(*group);
  }

  std::string mapping(const Group& group) const {
    const size_t number = static_cast<size_t>(&group - graph_.groups.data());
    std::string text;
    if (number >= graph_.decisions.maps.size()) return text;
    for (const MapDecision& map : graph_.decisions.maps[number])
      text += map.reason.empty() ? fmt::format("  mapped by {}\n", map.strategy)
                                 : fmt::format("    not {}: {}\n", map.strategy, map.reason);
    return text;
  }

  /// Why `item` did not join the group that `other` is in.
  std::string joins(const Item& item, const Item& other) const {
    std::string text;
    for (const JoinDecision& join : graph_.decisions.joins)
      if (join.item == item.id && !join.taken && join.group == graph_.decisions.group_of[other.id])
        text += fmt::format("{} does not join the kernel of {}: {}\n", item.node->op->name(),
                            other.node->op->name(), join.reason);
    return text;
  }

  /// What was said of computing the kernel of `item` at rows or windows of the one of `other`.
  std::string computed_at(const Item& item, const Item& other) const {
    const std::vector<uint32_t>& group_of = graph_.decisions.group_of;
    std::string text;
    for (const ComputeAtDecision& at : graph_.decisions.compute_at) {
      if (group_of[at.item] != group_of[item.id] || group_of[at.first] != group_of[other.id])
        continue;
      text += fmt::format("{} at the rows or windows of {}: {}\n", item.node->op->name(),
                          other.node->op->name(), at.taken ? "taken" : at.reason);
      if (at.cost)
        text += fmt::format("  apart {}\n  together {}\n", to_string(at.cost->apart, graph_.target),
                            to_string(at.cost->together, graph_.target));
    }
    return text;
  }

  /// Whether the kernel of `item` runs along the library call `call`.
  std::string follows(const Item& call, const Item& item) const {
    for (const FollowDecision& follow : graph_.decisions.follows)
      if (group_with(call) == &graph_.groups[follow.call] &&
          group_with(item) == &graph_.groups[follow.group])
        return fmt::format("the kernel of {} along the lines of {}: {}\n", item.node->op->name(),
                           call.node->op->name(), follow.reason.empty() ? "taken" : follow.reason);
    return "";
  }

  const KernelGraph& graph_;
  DenseMap<Value, std::string> names_;
};

}  // namespace

std::string why(const ir::Graph& graph, const Target& target, std::span<const std::string> values) {
  KernelGraph kernels(graph, target);
  run_steps(kernels);
  const Answers answers(kernels);
  std::string text;
  std::vector<const Value*> found;
  for (const std::string& name : values) {
    found.push_back(answers.named(name));
    text += answers.place(found.back());
  }
  for (size_t i = 1; i < found.size(); ++i) text += answers.pair(found[i - 1], found[i]);
  return text;
}

}  // namespace tandem::schedule
