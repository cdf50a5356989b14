// Problem: items of different shapes can share loops. Approach: only counts of elements are
// compared (positions are row-major, so equal counts are equal positions): of points, of rows and
// what is in one, and of the trailing dimensions of points that a reduction may take for rows.
#include "schedule/fit.h"

#include <algorithm>

#include "schedule/space.h"

namespace tandem::schedule {
namespace {

using sym::Expr;

constexpr const char* kOtherPoints = "it has another number of points";
constexpr const char* kLongRows = "rows would be too long";
constexpr const char* kOtherOrder = "one of them walks memory in another order";

Expr numel(const ir::Sizes& sizes) { return sym::product(sizes); }

bool rows_may_grow(const Space& space, const Tuning::Fusion& limits) {
  if (!space.whole) return false;
  std::optional<int64_t> length = numel(space.inner).constant();
  return !length || *length <= limits.longest_row;
}

/// Whether the rows of a space run along the memory that a full member walks. Rows of a
/// channels-last value do where they hold its channels.
bool walks_rows(const Item& item, const Space& space) {
  if (!item.channels_last) return true;
  bool reduces = !item.computation.full_sizes.empty() && item.kind == Item::Kind::reduce;
  const ir::Sizes& sizes = reduces ? item.computation.full_sizes : item.slots[0].sizes;
  Expr rows = numel(space.outer);
  return rows == Expr(1) || rows == sizes[0];
}

bool all_walk_rows(const Group& group, const Space& space) {
  return std::all_of(group.members.begin(), group.members.end(), [&](const Member& member) {
    return member.extent == Extent::row || walks_rows(*member.item, space);
  });
}

/// Sums of columns over the rows that a group walks: each row of a block adds to them, so that
/// what a row's kernel has in cache is not read a second time (layer norm backward).
bool adds_rows(const Group& group, const Item& item, const Tuning::Fusion& limits) {
  const Space& have = group.space;
  const ir::Sizes& sizes = item.slots[0].sizes;
  bool computes_points =
      std::any_of(group.members.begin(), group.members.end(), [](const Member& member) {
        return member.extent == Extent::full && member.item->kind == Item::Kind::map;
      });
  return have.reduces && rows_may_grow(have, limits) && computes_points &&
         numel(have.outer) == item.partial_rows &&
         numel(have.inner) == numel(ir::Sizes(sizes.begin() + 1, sizes.end()));
}

OrReason<Room> fit_reduction(const Group& group, const Space& want, const Item& item) {
  const Space& have = group.space;
  bool same_rows = numel(have.outer) == numel(want.outer) && numel(have.inner) == numel(want.inner);
  if (!same_rows || have.whole != want.whole) return "it reduces other rows";
  if (loop::multiplies(item.computation.combiner))
    return "the register tile of a product has room for one sum";
  if (!have.whole) {
    const Computation& a = group.members[0].item->computation;
    const Computation& b = item.computation;
    bool same_shape = a.full_sizes == b.full_sizes && a.reduced_dims == b.reduced_dims &&
                      have.outer == want.outer && have.inner == want.inner;
    if (!same_shape) return "it reduces other dimensions";
  }
  return Room{have, Extent::full};
}

/// A reduction over the trailing part of what the group computes point by point.
OrReason<Room> fit_into_rows(const Group& group, const Space& want, const Tuning::Fusion& limits) {
  const Space& have = group.space;
  if (!want.whole) return "it does not reduce trailing dimensions";
  if (!group.takes_members()) return kFixed;
  if (!rows_may_grow(want, limits)) return kLongRows;
  for (size_t cut = 0; cut <= have.outer.size(); ++cut) {
    ir::Sizes outer(have.outer.begin(), have.outer.begin() + cut);
    ir::Sizes inner(have.outer.begin() + cut, have.outer.end());
    if (numel(outer) != numel(want.outer) || numel(inner) != numel(want.inner)) continue;
    return Room{Space{outer, inner, true, true}, Extent::full};
  }
  return "its rows are no rows of the group";
}

}  // namespace

Space space_of(const Item& item) {
  const Computation& def = item.computation;
  Space space;
  if (item.kind == Item::Kind::map || item.kind == Item::Kind::library) {
    space.outer = without_ones(item.slots[0].sizes);
    return space;
  }
  space.reduces = true;
  if (def.full_sizes.empty()) {
    space.outer = without_ones(item.slots[0].sizes);
    space.inner = def.reduce_sizes;
    space.whole = false;
    return space;
  }
  std::vector<bool> reduced(def.full_sizes.size(), false);
  for (int64_t dim : def.reduced_dims) reduced[dim] = true;
  bool seen_inner = false;
  for (size_t i = 0; i < reduced.size(); ++i) {
    if (def.full_sizes[i] == Expr(1)) continue;
    (reduced[i] ? space.inner : space.outer).push_back(def.full_sizes[i]);
    space.whole &= reduced[i] || !seen_inner;
    seen_inner |= reduced[i];
  }
  return space;
}

OrReason<Room> fit(const Group& group, const Item& item, const Tuning::Fusion& limits) {
  const Space& have = group.space;
  Space want = space_of(item);
  if (item.kind == Item::Kind::map) {
    Expr count = numel(want.outer);
    if (!have.reduces) {
      if (numel(have.outer) == count) return Room{have, Extent::full};
      return kOtherPoints;
    }
    if (count == numel(have.outer)) return Room{have, Extent::row};
    if (count != numel(have.outer) * numel(have.inner)) return kOtherPoints;
    if (!rows_may_grow(have, limits)) return kLongRows;
    if (!walks_rows(item, have) || !all_walk_rows(group, have)) return kOtherOrder;
    return Room{have, Extent::full};
  }
  if (item.kind != Item::Kind::reduce) return "a scan, a scatter or a library call is alone";
  if (item.partial_of != nullptr) return "it combines partial results of all tasks";
  if (item.partial_rows != Expr(0) && adds_rows(group, item, limits))
    return Room{have, Extent::columns};
  if (have.reduces) return fit_reduction(group, want, item);
  if (!walks_rows(item, want) || !all_walk_rows(group, want)) return kOtherOrder;
  return fit_into_rows(group, want, limits);
}

}  // namespace tandem::schedule
