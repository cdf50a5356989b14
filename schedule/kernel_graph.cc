// Names, and questions that every step asks.
#include "schedule/kernel_graph.h"

#include "ir/text.h"

namespace tandem::schedule {

std::string_view name_of(Item::Kind kind) {
  switch (kind) {
    case Item::Kind::map: return "map";
    case Item::Kind::reduce: return "reduce";
    case Item::Kind::scan: return "scan";
    case Item::Kind::scatter: return "scatter";
    case Item::Kind::library: return "library";
  }
  return "";
}

std::string_view name_of(Extent extent) {
  switch (extent) {
    case Extent::full: return "full";
    case Extent::row: return "row";
    case Extent::columns: return "columns";
  }
  return "";
}

std::string_view name_of(Group::Kind kind) {
  switch (kind) {
    case Group::Kind::loops: return "loops";
    case Group::Kind::alone: return "alone";
    case Group::Kind::library: return "library";
    case Group::Kind::chain: return "chain";
  }
  return "";
}

KernelGraph::KernelGraph(const ir::Graph& tensors, const Target& machine)
    : graph(&tensors), target(machine), computations(tensors.pool()), scalars(tensors.pool()) {}

ir::Sizes KernelGraph::strides_of(const ir::Value* value) const {
  const Home home = homes.at(value);
  if (home.item != nullptr) return home.item->slots[home.slot].strides;
  return value->type.strides.empty() ? ir::contiguous_strides(value->type.sizes)
                                     : value->type.strides;
}

const ir::Value* KernelGraph::memory_of(const ir::Value* value) const {
  const Home home = homes.at(value);
  if (home.item == nullptr) return value;
  const ir::Value* input = home.item->slots[home.slot].in_place_of;
  return input == nullptr ? value : input;
}

bool KernelGraph::has_own_memory(const ir::Value* value) const {
  return value->node != nullptr && memory_of(value) == value;
}

void KernelGraph::drop_empty_groups(const std::vector<uint32_t>& joined_to) {
  std::vector<uint32_t> number(groups.size(), 0);
  uint32_t next = 0;
  for (size_t i = 0; i < groups.size(); ++i)
    if (!groups[i].members.empty()) number[i] = next++;
  std::erase_if(groups, [](const Group& group) { return group.members.empty(); });
  for (uint32_t i = 0; i < groups.size(); ++i) {
    std::set<uint32_t> renamed;
    for (uint32_t before : groups[i].needs.groups) renamed.insert(number[joined_to[before]]);
    renamed.erase(i);
    groups[i].needs.groups = std::move(renamed);
  }
}

void KernelGraph::note(const ir::Node& node, std::string text) {
  notes.push_back({ir::to_string(node), std::move(text)});
}

}  // namespace tandem::schedule
