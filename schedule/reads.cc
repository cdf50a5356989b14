// The elements that an item's computation holds, and where they stand at a point of a group.
#include "schedule/reads.h"

#include <algorithm>
#include <array>

#include "ops/asserts.h"
#include "ops/opdef.h"
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

namespace {

/// A 16-bit float that is widened where it is read is the same one when it is stored.
Val unwidened(Val value) {
  const bool widens = value->opcode == loop::Opcode::cast && is_float(value->dtype) &&
                      size_of(value->args[0]->dtype) < size_of(value->dtype);
  return widens ? value->args[0] : value;
}

}  // namespace

bool starts_as(const Computations& computations, const Item& item, const ir::Value* value) {
  if (item.kind != Item::Kind::scatter) return false;
  const Computation& of = item.computation;
  const Computation::Points& start = of.results[0];
  const Val element = unwidened(start.value);
  if (element->opcode != loop::Opcode::element || computations.value(element->slot) != value ||
      element->masked || element->dtype != item.slots[0].dtype ||
      linear_index(element->at, value->type.sizes) != linear_index(start.axes, item.slots[0].sizes))
    return false;
  const std::array rest{of.destination, of.value};
  return std::ranges::none_of(elements_of(computations, rest),
                              [&](Val other) { return computations.value(other->slot) == value; });
}

DenseMap<ir::Value, char> wanted_values(const ir::Graph& graph) {
  DenseMap<ir::Value, char> wanted;
  for (const ir::Output& output : graph.outputs())
    if (output.value != nullptr) wanted[output.value] = 1;
  for (const ir::Node* node = graph.last(); node != nullptr; node = node->prev) {
    const bool is_kept = node->op->mutates() || ops::def_of(*node).opaque;
    if (ops::is_asserted(*node)) wanted[node->results[0]] = 1;
    if (is_kept ||
        std::ranges::any_of(node->results, [&](const ir::Value* v) { return wanted.at(v) != 0; }))
      ir::for_each_operand(node->args, [&](const ir::Value* operand) { wanted[operand] = 1; });
  }
  return wanted;
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

namespace {

ir::Sizes all_sizes(const Space& space) {
  ir::Sizes sizes = space.outer;
  sizes.insert(sizes.end(), space.inner.begin(), space.inner.end());
  return sizes;
}

/// The axes of the item's computation at a point of the space. Scans and scatters have a space of
/// their own.
sym::Substitution placed(const Item& item, const Space& space, Extent extent,
                         const ops::Index& axes, const ops::Index& outer) {
  const Computation& def = item.computation;
  sym::Substitution map;
  const ops::Index inner(axes.begin() + space.outer.size(), axes.end());
  if (item.kind == Item::Kind::map) {
    const bool rows = extent == Extent::row;
    bind_axes(
        map, def.results[item.result].axes,
        index_at(rows ? space.outer : all_sizes(space), rows ? outer : axes, item.slots[0].sizes));
  } else if (item.kind == Item::Kind::reduce && !def.inputs.empty()) {
    const bool adds = extent == Extent::columns;
    const ColumnPoint point = adds ? column_point(item, space, outer, inner)
                                   : ColumnPoint{index_at(space.outer, outer, item.slots[0].sizes),
                                                 index_at(space.inner, inner, def.reduce_sizes)};
    bind_axes(map, def.out, point.out);
    bind_axes(map, def.reduce, point.in);
  }
  return map;
}

}  // namespace

const PlacedReads& ReadsInSpace::of(const Item& item, const Space& space, Extent extent) {
  if (places_.size() < graph_.items.size()) places_.resize(graph_.items.size());
  std::deque<Place>& places = places_[item.id];
  for (const Place& place : places)
    if (place.extent == extent && place.space == space) return place.reads;
  return places.emplace_back(space, extent, placed_at(item, space, extent)).reads;
}

PlacedReads ReadsInSpace::placed_at(const Item& item, const Space& space, Extent extent) {
  const ir::Sizes sizes = all_sizes(space);
  const ops::Index& axes = axes_of(sizes);
  const ops::Index outer(axes.begin(), axes.begin() + space.outer.size());
  const ItemReads& own = reads_.of(item);
  PlacedReads reads{own.at, linear_index(axes, sizes), linear_index(outer, space.outer),
                    own.can_fail};
  const sym::Substitution map = placed(item, space, extent, axes, outer);
  for (auto& [value, position] : reads.at) position = sym::substitute(position, map);
  return reads;
}

PlacedReads ReadsInSpace::of_item(const Item& item) {
  const ItemReads& own = reads_.of(item);
  return {own.at, 0, 0, own.can_fail};
}

const ops::Index& ReadsInSpace::axes_of(const ir::Sizes& sizes) {
  for (const auto& [known, axes] : axes_)
    if (known == sizes) return axes;
  ops::Index axes;
  for (sym::Expr size : sizes) axes.push_back(graph_.graph->pool().index("a", size));
  return axes_.emplace_back(sizes, std::move(axes)).second;
}

}  // namespace tandem::schedule
