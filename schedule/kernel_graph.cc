// The text of a kernel graph at any step: what is not there yet is not printed.
#include "schedule/kernel_graph.h"

#include <fmt/format.h>

#include "ir/text.h"

namespace tandem::schedule {
namespace {

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

std::string text_of(const Draft& draft) {
  std::string members;
  for (const Member& member : draft.members)
    members += fmt::format("{}{}@{}", members.empty() ? "" : ", ", member.item->id, member.stage);
  std::string space = ir::to_string(draft.space.outer);
  if (draft.space.reduces) space += " x " + ir::to_string(draft.space.inner);
  return fmt::format("  group {} over {}{}\n", members, space, draft.can_fail ? ", can fail" : "");
}

std::string text_of(const Group& group) {
  std::string items;
  for (const Item* item : group.items)
    items += (items.empty() ? "" : ", ") + std::to_string(item->id);
  if (group.is_library) return fmt::format("  library call of item {}\n", items);
  return fmt::format("  kernel of items {}\n{}", items, loop::to_string(group.kernel));
}

}  // namespace

KernelGraph::KernelGraph(const ir::Graph& graph, const Target& target)
    : plan{&graph, target, {}, {}, {}, {}, {}}, lowering(plan) {}

std::string to_string(const KernelGraph& graph) {
  const Names names = ir::value_names(*graph.plan.graph);
  std::string text = fmt::format("kernel graph of @{}\n", graph.plan.graph->name());
  for (const std::unique_ptr<Item>& item : graph.plan.items) text += text_of(*item, names);
  if (graph.groups.empty())
    for (const Draft& draft : graph.drafts.drafts) text += text_of(draft);
  for (const Group& group : graph.groups) text += text_of(group);
  return text;
}

}  // namespace tandem::schedule
