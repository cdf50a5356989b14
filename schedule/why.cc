// Answers to questions about a schedule: why a value has a kernel of its own, a library call or no
// place at all, and why two values that meet are not computed by one kernel.
#include <fmt/format.h>

#include <algorithm>

#include "base/diagnostic.h"
#include "ir/text.h"
#include "schedule/fuse_horizontally.h"
#include "schedule/kernel_graph.h"
#include "schedule/reads.h"
#include "schedule/schedule.h"
#include "schedule/steps.h"

namespace tandem::schedule {
namespace {

using ir::Value;

class Answers {
 public:
  explicit Answers(const KernelGraph& graph)
      : graph_(graph), reads_(graph), names_(ir::value_names(*graph.graph)) {}

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
    text += item->kind == Item::Kind::library
                ? "a library call\n"
                : fmt::format("item of a kernel, because {}\n", item->reason);
    return text + this->route(*value->node) + members(*item);
  }

  std::string route(const ir::Node& node) const {
    std::string text;
    for (const RouteDecision& route : graph_.decisions.routes)
      if (route.node == &node)
        text += fmt::format("  library {}: {}\n{}", route.taken ? "taken" : "declined",
                            route.reason, route.cost ? costs(*route.cost) : "");
    return text;
  }

  std::string pair(const Value* a, const Value* b) const {
    const Item* first = graph_.homes.at(a).item;
    const Item* second = graph_.homes.at(b).item;
    if (first == nullptr || second == nullptr) return "";
    const Group* const one = group_with(*first);
    const Group* const other = group_with(*second);
    if (one == other) return "they share a kernel\n";
    if (one == nullptr || other == nullptr) return "";
    std::string said = joins(*first, *second) + joins(*second, *first) +
                       computed_at(*first, *second) + computed_at(*second, *first) +
                       follows(*first, *second) + follows(*second, *first);
    if (said.empty()) said = joins_of_members(*one, *other);
    if (said.empty()) said = untried(*one, *other) + untried(*other, *one);
    return said + beside(*first, *second, said.empty());
  }

  /// What is asked of each program: of its library calls why, and of each two kernels of which one
  /// reads what the other one makes why they are two.
  std::string all() const {
    std::string text;
    for (const std::unique_ptr<Item>& item : graph_.items) {
      if (item->kind == Item::Kind::library) text += place(item->slots[0].value);
      text += readers(*item);
    }
    return text;
  }

 private:
  /// Kernels apart that read what the item's makes, each once.
  std::string readers(const Item& made) const {
    const Group* own = group_with(made);
    std::string text;
    for (const Group& group : graph_.groups) {
      if (own == nullptr || &group == own) continue;
      const Member* reader = first_reader(group, made);
      if (reader == nullptr) continue;
      const Value* a = made.slots[0].value;
      const Value* b = reader->item->slots[0].value;
      if (a == nullptr || b == nullptr) continue;  // blocks of a split sum, and their sum
      text += fmt::format("%{} and %{}:\n{}", names_.at(a), names_.at(b), pair(a, b));
    }
    return text;
  }

  /// Of a group that reads one of its results; nothing of others.
  const Member* first_reader(const Group& group, const Item& made) const {
    if (!reads(group, made)) return nullptr;
    for (const Member& member : group.members)
      if (reads(*member.item, made)) return &member;
    return &group.members[0];
  }

  static bool reads(const Group& group, const Item& made) {
    return std::ranges::any_of(
        made.slots, [&](const Slot& slot) { return group.needs.reads.count(slot.value) != 0; });
  }

  bool reads(const Item& item, const Item& made) const {
    if (item.kind == Item::Kind::library) return false;
    return std::ranges::any_of(reads_.of(item).at, [&](const auto& read) {
      return std::ranges::find(made.slots, read.first, &Slot::value) != made.slots.end();
    });
  }

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
        text += fmt::format("{} does not join the kernel of {}: {}\n{}", item.node->op->name(),
                            other.node->op->name(), join.reason, costs(join.cost));
    return text;
  }

  /// The same of all that the two kernels compute, each reason once.
  std::string joins_of_members(const Group& one, const Group& other) const {
    std::string text;
    for (const Member& a : one.members)
      for (const Member& b : other.members)
        for (const std::string& said : {joins(*a.item, *b.item), joins(*b.item, *a.item)})
          if (text.find(said) == std::string::npos) text += said;
    return text;
  }

  /// Why no join was tried of a kernel that reads what another one makes; empty where it does not.
  std::string untried(const Group& reader, const Group& maker) const {
    for (const Member& made : maker.members) {
      if (!reads(reader, *made.item)) continue;
      const Item& item = *first_reader(reader, *made.item)->item;
      const std::string name = item.node->op->name();
      if (reader.is_library())
        return fmt::format("{} is a library call, which reads memory\n", name);
      for (const JoinDecision& join : graph_.decisions.joins)
        if (join.item == item.id && join.taken)
          return fmt::format("{} joined the kernel of {} before that was asked\n{}", name,
                             first_in(join.group), costs(join.cost));
      return fmt::format("{} began a kernel before {} had one\n", name,
                         made.item->node->op->name());
    }
    return "";
  }

  /// What begins a group of form_groups.
  std::string first_in(uint32_t group) const {
    for (const std::unique_ptr<Item>& item : graph_.items)
      if (graph_.decisions.group_of[item->id] == group) return item->node->op->name();
    return "another one";
  }

  std::string costs(const Comparison& cost) const {
    return fmt::format("  apart {}\n  together {}\n", to_string(cost.apart, graph_.target),
                       to_string(cost.together, graph_.target));
  }

  /// Whether both are one step of the program, as launches or as a call and what runs along it.
  std::string beside(const Item& first, const Item& second, bool only) const {
    const size_t a = static_cast<size_t>(group_with(first) - graph_.groups.data());
    const size_t b = static_cast<size_t>(group_with(second) - graph_.groups.data());
    for (const std::vector<size_t>& step : graph_.order)
      if (std::ranges::find(step, a) != step.end() && std::ranges::find(step, b) != step.end())
        return "they run together, as one step\n";
    if (!only) return "";
    std::vector<GroupUse> uses;
    for (const Group& group : graph_.groups) uses.push_back(use_of(group, graph_));
    return fmt::format(
        "neither reads what the other one's kernel reads or computes; not side by side: {}\n",
        why_apart(uses, std::min(a, b), std::max(a, b)));
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
      if (at.cost) text += costs(*at.cost);
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
  mutable ReadsByItem reads_;  // found when asked for
  DenseMap<Value, std::string> names_;
};

}  // namespace

std::string answers(const KernelGraph& kernels) { return Answers(kernels).all(); }

std::string why(const ir::Graph& graph, const Target& target, std::span<const std::string> values) {
  KernelGraph kernels(graph, target);
  run_steps(kernels);
  if (values.size() == 1 && values[0] == "all") return answers(kernels);
  const Answers told(kernels);
  std::string text;
  std::vector<const Value*> found;
  for (const std::string& name : values) {
    found.push_back(told.named(name));
    text += told.place(found.back());
  }
  for (size_t i = 1; i < found.size(); ++i) text += told.pair(found[i - 1], found[i]);
  return text;
}

}  // namespace tandem::schedule
