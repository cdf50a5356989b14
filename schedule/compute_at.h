// compute_at: a group's stages run inside of another one's loops, and what only they read is
// scratch: of each point of those loops its footprint, that is what is read there. Two kinds of
// points are known: rows, of which a member reads exactly its own, and windows, whose footprint is
// what they see. Where the reader walks exactly the producer's points, one space is enough
// (fuse.cc); where it asks for one element, the element is written there (inline.cc).
#pragma once

#include <optional>
#include <set>
#include <vector>

#include "schedule/axes.h"
#include "schedule/kernel_graph.h"
#include "schedule/space.h"

namespace tandem::schedule {

/// A sum of products, for each point of its outer axes, and nothing else.
bool is_product(const Group& group);
ir::Sizes extents(const std::vector<loop::Axis>& axes);
/// Elements of a value that one row holds: its footprint there.
sym::Expr width_of(const ir::Value& value, const ir::Sizes& rows);
ops::Index fresh_axes(sym::Pool& symbols, const ir::Sizes& sizes);

/// The outer axes of a kernel, the first `count` of them, as functions of the rows' axes.
sym::Substitution at_rows(const loop::Kernel& kernel, size_t count, const ir::Sizes& rows,
                          const ops::Index& axes);
/// The axes of a product that sums along the rows: its batch axes, and the one that it sums over.
sym::Substitution at_sum(const loop::Kernel& kernel, const ir::Sizes& rows, const ops::Index& axes);

struct RowMember {
  Group group;
  bool gathers = false;  // sums along the rows
};
/// One kernel of the members' stages, in their order, under the rows' axes. `inside`: values that
/// only members read. Each member reads of what others make its own row (reads_own_row).
Group computed_at_rows(sym::Pool& symbols, const ir::Sizes& rows, std::set<const ir::Value*> inside,
                       std::vector<RowMember> members);

/// The group with a sum as a stage of its own in front of the one that reads it: of one point of
/// the group's outer axes, the sums which that point reads. The item's computation becomes that of
/// loops. Nothing where the group reads the sum at more than one place.
std::optional<Group> computed_at_windows(KernelGraph& graph, const Group& reader, Item& sum);

/// The same of sums by loops that the group adds.
std::optional<Group> computed_at_groups(KernelGraph& graph, const Group& reader, const Item& sum);

}  // namespace tandem::schedule
