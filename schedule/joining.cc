// Problem: kernels that become one leave their places in the order, and a value that nobody else
// reads need not be in memory. Both are questions about all groups, whatever joins them. Approach:
// needs are copied before anything moves, and listed from both sides, since chains ask for each
// group that they try; a place is found among the members' own, so the order of all other groups
// stays as it is.
#include "schedule/joining.h"

#include <algorithm>
#include <array>
#include <limits>

namespace tandem::schedule {

using ir::Value;
using sym::Expr;

Joining::Joining(KernelGraph& kernels) : graph(kernels), joined(kernels.groups.size()) {
  needed_by.resize(graph.groups.size());
  for (uint32_t i = 0; i < graph.groups.size(); ++i) {
    place.push_back(i);
    needs.push_back(graph.groups[i].needs);
    for (uint32_t needed : needs[i].groups) needed_by[needed].push_back(i);
    for (const Value* value : needs[i].reads) readers[value].push_back(i);
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

/// Places behind `after` and up to `last`.
struct Room {
  int64_t after = -1;
  int64_t last = std::numeric_limits<int64_t>::max();
};

/// To which places the members can move.
Room room_of(const Joining& joining, GroupNumbers members) {
  Room room;
  const auto before = [&](uint32_t other) {
    room.last = std::min<int64_t>(room.last, joining.place[other]);
  };
  for (uint32_t member : members) {
    for (uint32_t other : joining.needs[member].groups)
      if (!holds(members, other)) room.after = std::max<int64_t>(room.after, joining.place[other]);
    for (uint32_t other : joining.needed_by[member])
      if (!holds(members, other)) before(other);
    for (const auto& [other, value] : joining.writes)
      if (!holds(members, other) && joining.place[other] > member &&
          joining.needs[member].reads.count(value) != 0)
        before(other);
  }
  return room;
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
  const auto readers = joining.readers.find(value);
  return readers == joining.readers.end() ||
         std::ranges::all_of(readers->second, [&](uint32_t i) { return holds(members, i); });
}

std::optional<uint32_t> place_of(const Joining& joining, GroupNumbers members) {
  const Room room = room_of(joining, members);
  for (uint32_t place : members)
    if (place > room.after && place <= room.last) return place;
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
