// Problem: a value written over an input spoils what others read of it, and is lost where something
// fails behind it. Approach: all readers are known once groups are; who writes runs late, and
// writes in place only where every other reader has run and nothing that can fail comes later.
#include "schedule/group_storage.h"

#include <algorithm>
#include <optional>

#include "base/check.h"
#include "ir/writes.h"
#include "ops/asserts.h"
#include "schedule/reads.h"

namespace tandem::schedule {
namespace {

using ir::Value;

void store(const KernelGraph& graph, const Value* value) {
  Home home = graph.homes.at(value);
  if (home.item != nullptr) home.item->slots[home.slot].is_stored = true;
}

bool writes_back(const Group& group) {
  for (const Member& member : group.members)
    for (const Slot& slot : member.item->slots)
      if (slot.value != nullptr && ir::is_written_back(slot.value)) return true;
  return false;
}

bool is_output(const Value* value) {
  return std::any_of(value->uses.begin(), value->uses.end(),
                     [](const ir::Use& use) { return use.node == nullptr; });
}

/// It gives a backward what that reads.
bool saves_values(const ir::Graph& graph) {
  return std::ranges::any_of(graph.outputs(), [](const ir::Output& output) {
    return output.kind == ir::OutputKind::saved;
  });
}

bool is_small(const Value& value, const Target& target) {
  const std::optional<int64_t> elements = value.type.numel().constant();
  return elements && *elements * size_of(value.type.dtype) <= target.tuning.fusion.small_input;
}

struct InPlace {
  const KernelGraph& graph;
  const GroupReads& reads;
  const std::vector<uint32_t>& position;
  /// From the first write over an input on there must be memory for all that follows, so that the
  /// call cannot fail halfway: all that is saved would be taken at the first norm, for statistics
  /// of a few channels. These are copied at the end instead.
  bool saves;

  void try_slot(Item& item, uint32_t slot, uint32_t after_failing) const {
    const Value* value = item.slots[slot].value;
    const Value* input = value == nullptr ? nullptr : ir::write_back_target(value);
    if (input == nullptr || input->node != nullptr || is_output(value)) return;
    if (saves && is_small(*value, graph.target)) return;
    const Group& group = graph.groups[position[reads.group_of[item.id]]];
    bool one_stage = std::all_of(group.members.begin(), group.members.end(),
                                 [](const Member& member) { return member.stage == 0; });
    // What it starts as is there already: only what is scattered is stored.
    const bool scatters = starts_as(graph.computations, item, input);
    bool map_only = item.kind == Item::Kind::map && one_stage;
    bool same_layout = input->type.sizes == value->type.sizes && input->type.strides.empty() &&
                       input->type.dtype == value->type.dtype;
    uint32_t original = reads.group_of[item.id];
    uint32_t place = position[original];
    if ((!map_only && !scatters) || !same_layout || place < after_failing) return;
    if (!scatters && reads.moved.count({original, input})) return;
    // What is computed once a row reads after the row's elements are written.
    bool writes_rows = member_of(graph, group, value)->extent == Extent::full;
    if (writes_rows && reads.once_a_row.count({original, input})) return;
    for (uint32_t reader : reads.users_of(input))
      if (reader != original && position[reader] >= place) return;
    for (uint32_t reader : reads.users_of(value))  // later writes must not spoil them
      if (position[reader] < place) return;
    item.slots[slot].in_place_of = input;
  }
};

}  // namespace

const std::set<uint32_t>& GroupReads::users_of(const Value* value) const {
  static const std::set<uint32_t> kNone;
  const std::map<const Value*, std::set<uint32_t>>::const_iterator found = users.find(value);
  return found == users.end() ? kNone : found->second;
}

const Member* member_of(const KernelGraph& graph, const Group& group, const Value* value) {
  const Home home = graph.homes.at(value);
  for (const Member& member : group.members)
    if (member.item == home.item && home.item != nullptr) return &member;
  return nullptr;
}

void mark_stored(KernelGraph& graph, const std::vector<uint32_t>& group_of) {
  for (const ir::Output& output : graph.graph->outputs())
    if (output.value != nullptr) store(graph, output.value);
  for (const ir::Node* node = graph.graph->first(); node != nullptr; node = node->next) {
    if (node->op->mutates()) store(graph, std::get<Value*>(node->args[1]));
    if (ops::is_asserted(*node)) store(graph, node->results[0]);  // its check is part of the store
  }
  for (uint32_t i = 0; i < graph.groups.size(); ++i)
    for (const Value* value : graph.groups[i].needs.reads)
      if (const Home home = graph.homes.at(value);
          home.item != nullptr && group_of[home.item->id] != i)
        store(graph, value);
  for (const std::unique_ptr<Item>& item : graph.items)
    if (item->partial_of != nullptr) item->partial_of->slots[0].is_stored = true;
}

/// A few numbers made of inputs alone, for others to read: they may be made before all else, and
/// stand between no library call and the kernel that runs along it.
bool may_be_early(const Group& group, const KernelGraph& graph) {
  if (!group.needs.groups.empty() || group.needs.can_fail) return false;
  const int64_t small = graph.target.tuning.fusion.small_result;
  return std::ranges::all_of(group.members, [&](const Member& member) {
    if (member.item->kind != Item::Kind::map) return false;
    const Slot& slot = member.item->slots[0];
    const std::optional<int64_t> elements = sym::product(slot.sizes).constant();
    return slot.value != nullptr && elements && *elements <= small && !is_output(slot.value);
  });
}

std::vector<uint32_t> order_groups(KernelGraph& graph) {
  std::vector<Group>& groups = graph.groups;
  std::vector<size_t> waiting(groups.size());
  std::vector<std::vector<uint32_t>> users(groups.size());
  for (uint32_t i = 0; i < groups.size(); ++i) {
    waiting[i] = groups[i].needs.groups.size();
    for (uint32_t before : groups[i].needs.groups) users[before].push_back(i);
  }
  enum class Turn : uint8_t { early, own, late };
  std::vector<Turn> turns;
  for (const Group& group : groups)
    turns.push_back(writes_back(group)           ? Turn::late
                    : may_be_early(group, graph) ? Turn::early
                                                 : Turn::own);
  std::set<std::pair<Turn, uint32_t>> ready;
  for (uint32_t i = 0; i < groups.size(); ++i)
    if (waiting[i] == 0) ready.insert({turns[i], i});
  std::vector<Group> ordered;
  std::vector<uint32_t> position(groups.size(), 0);
  while (!ready.empty()) {
    uint32_t next = ready.begin()->second;
    ready.erase(ready.begin());
    position[next] = static_cast<uint32_t>(ordered.size());
    ordered.push_back(std::move(groups[next]));
    for (uint32_t user : users[next])
      if (--waiting[user] == 0) ready.insert({turns[user], user});
  }
  TD_CHECK(ordered.size() == groups.size()) << "fusion made a cycle";
  for (Group& group : ordered) {
    std::set<uint32_t> renamed;
    for (uint32_t before : group.needs.groups) renamed.insert(position[before]);
    group.needs.groups = std::move(renamed);
  }
  groups = std::move(ordered);
  return position;
}

void choose_in_place(KernelGraph& graph, const GroupReads& reads,
                     const std::vector<uint32_t>& position) {
  const InPlace chooser{graph, reads, position, saves_values(*graph.graph)};
  uint32_t after_failing = 0;
  for (uint32_t i = 0; i < graph.groups.size(); ++i)
    if (graph.groups[i].needs.can_fail) after_failing = i + 1;
  for (const std::unique_ptr<Item>& item : graph.items)
    for (uint32_t slot = 0; slot < item->slots.size(); ++slot)
      chooser.try_slot(*item, slot, after_failing);
}

}  // namespace tandem::schedule
