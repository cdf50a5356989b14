// What formed groups leave to be decided: which values are stored, the order in which groups run,
// and which new values of inputs are written straight into them.
#pragma once

#include <map>
#include <set>
#include <utility>
#include <vector>

#include "schedule/kernel_graph.h"

namespace tandem::schedule {

/// What groups read, found while they are formed; by the numbers that they have then.
struct GroupReads {
  std::vector<uint32_t> group_of;                        // by item id
  std::map<const ir::Value*, std::set<uint32_t>> users;  // only looked up
  std::set<std::pair<uint32_t, const ir::Value*>>
      moved;  // read elsewhere than at the point in hand
  std::set<std::pair<uint32_t, const ir::Value*>> once_a_row;

  const std::set<uint32_t>& users_of(const ir::Value* value) const;
};

/// The member that computes the value; null where none does.
const Member* member_of(const KernelGraph& graph, const Group& group, const ir::Value* value);

/// Slots that others than their own group read, or that leave the graph.
void mark_stored(KernelGraph& graph, const std::vector<uint32_t>& group_of);

/// Topological, by first member; small ones that need no other come first, and groups that
/// overwrite inputs as late as they can. Gives the
/// new place of each group.
std::vector<uint32_t> order_groups(KernelGraph& graph);

/// A new value of an input may be written straight into the input when every other reader has
/// run, its own group reads it at the place it writes, and nothing that can fail comes later. Its
/// own group must not fail either: tasks before the failing one, or beside it, have written.
void choose_in_place(KernelGraph& graph, const GroupReads& reads,
                     const std::vector<uint32_t>& position);

}  // namespace tandem::schedule
