// The elements that an item's computation holds.
#include "schedule/reads.h"

#include "schedule/inline.h"
#include "schedule/space.h"

namespace tandem::schedule {

using loop::Val;

std::vector<Val> elements_of(const Computations& computations, std::span<const Val> roots) {
  std::vector<Val> found = loop::reachable(roots);
  std::erase_if(found, [&](Val part) {
    return part->opcode != loop::Opcode::element ||
           !computations.value(part->slot)->type.is_tensor();
  });
  return found;
}

const ItemReads& ReadsByItem::of(const Item& item) {
  if (known_.size() < graph_->items.size()) known_.resize(graph_->items.size());
  std::optional<ItemReads>& known = known_[item.id];
  if (known) return *known;
  known.emplace();
  if (item.kind == Item::Kind::library) return *known;
  const std::vector<Val> roots = roots_of(item.computation, item.result);
  for (Val part : loop::reachable(roots)) known->can_fail |= part->opcode == loop::Opcode::check;
  for (Val element : elements_of(graph_->computations, roots)) {
    const ir::Value* value = graph_->computations.value(element->slot);
    known->at.emplace_back(value, linear_index(element->at, value->type.sizes));
  }
  return *known;
}

}  // namespace tandem::schedule
