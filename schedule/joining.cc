// Problem: kernels that become one leave their places in the order, and a value that nobody else
// reads need not be in memory. Both are questions about all groups, whatever joins them. Approach:
// needs are copied before anything moves; a place is found among the members' own, so the order of
// all other groups stays as it is.
#include "schedule/joining.h"

#include <algorithm>
#include <array>

namespace tandem::schedule {

using ir::Value;
using sym::Expr;

Joining::Joining(KernelGraph& kernels) : graph(kernels), joined(kernels.groups.size()) {
  for (uint32_t i = 0; i < graph.groups.size(); ++i) {
    place.push_back(i);
    needs.push_back(graph.groups[i].needs);
    for (const Member& member : graph.groups[i].members) {
      number_of[member.item] = i;
      for (const Slot& slot : member.item->slots)
        if (slot.in_place_of != nullptr) writes.emplace(i, slot.in_place_of);
    }
  }
}

namespace {

bool has_empty(const std::vector<loop::Axis>& axes) {
  return std::ranges::any_of(axes, [](const loop::Axis& axis) { return axis.extent == Expr(0); });
}

bool is_empty(const loop::Kernel& kernel) {
  return has_empty(kernel.outer) ||
         std::ranges::any_of(kernel.stages, [](const loop::Stage& stage) {
           return has_empty(stage.axes) || has_empty(stage.reduce_axes);
         });
}

bool holds_partials(const Group& group) {
  for (size_t i = 0; i < group.kernel.buffers.size(); ++i)
    if (group.buffer_values[i] == nullptr &&
        group.kernel.buffers[i].access != loop::Access::scratch)
      return true;
  return false;
}

bool holds(GroupNumbers members, uint32_t group) {
  return std::ranges::find(members, group) != members.end();
}

/// Whether a group writes over an input that the member reads.
bool overwrites_read(const Joining& joining, uint32_t writer, uint32_t member) {
  const auto [first, last] = joining.writes.equal_range(writer);
  return std::any_of(first, last, [&](const std::pair<const uint32_t, const Value*>& entry) {
    return joining.needs[member].reads.count(entry.second) != 0;
  });
}

bool may_move(const Joining& joining, GroupNumbers members, uint32_t member, uint32_t to) {
  for (uint32_t other = 0; other < joining.needs.size(); ++other) {
    if (holds(members, other)) continue;
    const bool before = joining.place[other] < to;
    const bool needs_it = joining.needs[other].groups.count(member) != 0;
    const bool is_needed = joining.needs[member].groups.count(other) != 0;
    if ((needs_it && before) || (is_needed && !before)) return false;
    if (before && joining.place[other] > member && overwrites_read(joining, other, member))
      return false;
  }
  return true;
}

}  // namespace

bool may_join(const Joining& joining, uint32_t number) {
  const Group& group = joining.graph.groups[number];
  return !joining.joined[number] && group.takes_members() && !joining.needs[number].can_fail &&
         joining.writes.count(number) == 0 && !holds_partials(group) && !is_empty(group.kernel);
}

bool is_made_by(const Joining& joining, GroupNumbers members, const Value* value) {
  const Home home = value == nullptr ? Home{} : joining.graph.homes.at(value);
  return home.item != nullptr && holds(members, joining.number_of.at(home.item));
}

bool is_inside(const Joining& joining, GroupNumbers members, const Value* value) {
  if (!is_made_by(joining, members, value)) return false;
  for (const ir::Use& use : value->uses)
    if (use.node == nullptr || use.node->op->mutates()) return false;
  for (uint32_t i = 0; i < joining.needs.size(); ++i)
    if (joining.needs[i].reads.count(value) != 0 && !holds(members, i)) return false;
  return true;
}

std::optional<uint32_t> place_of(const Joining& joining, GroupNumbers members) {
  for (uint32_t place : members)
    if (std::ranges::all_of(
            members, [&](uint32_t member) { return may_move(joining, members, member, place); }))
      return place;
  return std::nullopt;
}

void put(Joining& joining, GroupNumbers members, uint32_t place, Group group) {
  for (uint32_t member : members) {
    joining.joined[member] = true;
    joining.place[member] = place;
    joining.graph.groups[member] = {};
  }
  joining.graph.groups[place] = std::move(group);
}

void put_sum_into(Joining& joining, uint32_t reader, uint32_t sum, uint32_t place, Group joined) {
  const Group& from = joining.graph.groups[sum];
  joined.members.insert(joined.members.begin(), from.members[0]);
  joined.needs.reads.insert(from.needs.reads.begin(), from.needs.reads.end());
  joined.needs.groups.insert(from.needs.groups.begin(), from.needs.groups.end());
  put(joining, std::array{reader, sum}, place, std::move(joined));
}

}  // namespace tandem::schedule
