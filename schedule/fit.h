// Whether an item fits into the iteration space of a group: the same points, the same rows, or rows
// that its points can be cut into. What it reads there is another question (fuse.cc).
#pragma once

#include "schedule/decision.h"
#include "schedule/kernel_graph.h"

namespace tandem::schedule {

/// The space of an item by itself.
Space space_of(const Item& item);

/// A group's space with room for an item, and which part of it the item walks.
struct Room {
  Space space;
  Extent extent = Extent::full;
};
/// Or why there is none.
OrReason<Room> fit(const Group& group, const Item& item, const Tuning::Fusion& limits);

/// Why not, whatever the spaces are.
inline constexpr const char* kFixed = "nothing joins a library call, a scan or a scatter";

}  // namespace tandem::schedule
