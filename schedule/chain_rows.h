// Kernels seen from the rows of a chain (chain.cc).
#pragma once

#include <set>
#include <vector>

#include "schedule/axes.h"
#include "schedule/chain.h"
#include "schedule/space.h"

namespace tandem::schedule {

/// A sum of products, for each point of its outer axes, and nothing else.
bool is_product(const Group& group);
ir::Sizes extents(const std::vector<loop::Axis>& axes);
/// Elements of a value that one row holds.
sym::Expr width_of(const ir::Value& value, const ir::Sizes& rows);
ops::Index fresh_axes(sym::Pool& symbols, const ir::Sizes& sizes);

/// The outer axes of a kernel, the first `count` of them, as functions of the rows' axes.
sym::Substitution at_rows(const loop::Kernel& kernel, size_t count, const ir::Sizes& rows,
                          const ops::Index& axes);
/// The axes of a product that sums along the rows: its batch axes, and the one that it sums over.
sym::Substitution at_sum(const loop::Kernel& kernel, const ir::Sizes& rows, const ops::Index& axes);

struct ChainMember {
  Group group;
  bool gathers = false;  // sums along the rows
};
/// One kernel of the members' stages, in their order. `inside`: values that only members read.
Group joined_members(sym::Pool& symbols, const ir::Sizes& rows, std::set<const ir::Value*> inside,
                     std::vector<ChainMember> members);

}  // namespace tandem::schedule
