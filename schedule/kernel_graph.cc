// The text of a kernel graph at any step: what is not there yet is not printed.
#include "schedule/kernel_graph.h"

#include <fmt/format.h>

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

namespace {

using Names = DenseMap<ir::Value, std::string>;

std::string text_of(const Slot& slot, const Names& names) {
  const std::string value = slot.value == nullptr ? "partial" : "%" + names.at(slot.value);
  std::string text =
      fmt::format("{}: {}{}", value, tandem::name_of(slot.dtype), ir::to_string(slot.sizes));
  if (slot.strides != ir::contiguous_strides(slot.sizes))
    text += fmt::format(" strides {}", ir::to_string(slot.strides));
  return text;
}

std::string text_of(const Item& item, const Names& names) {
  std::string slots;
  for (const Slot& slot : item.slots) slots += (slots.empty() ? "" : ", ") + text_of(slot, names);
  return fmt::format("  item {} {} {} -> {}  ; {}\n", item.id, name_of(item.kind),
                     item.node->op->name(), slots, item.reason);
}

std::string text_of(const Group& group) {
  std::string members;
  for (const Member& member : group.members)
    members += fmt::format("{}{}@{}", members.empty() ? "" : ", ", member.item->id, member.stage);
  if (group.is_library()) return fmt::format("  library call of item {}\n", members);
  std::string space = ir::to_string(group.space.outer);
  if (group.space.reduces) space += " x " + ir::to_string(group.space.inner);
  return fmt::format("  group {} over {}{}\n", members, space,
                     group.needs.can_fail ? ", can fail" : "") +
         (group.kernel.stages.empty() ? "" : loop::to_string(group.kernel));
}

}  // namespace

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

void KernelGraph::note(const ir::Node& node, std::string text) {
  notes.push_back({ir::to_string(node), std::move(text)});
}

std::string to_string(const KernelGraph& graph) {
  const Names names = ir::value_names(*graph.graph);
  std::string text = fmt::format("kernel graph of @{}\n", graph.graph->name());
  for (const std::unique_ptr<Item>& item : graph.items) text += text_of(*item, names);
  for (const Group& group : graph.groups) text += text_of(group);
  return text;
}

}  // namespace tandem::schedule
