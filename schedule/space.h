// Positions in the iteration space of a group. Everything counts row-major, so that shapes with the
// same number of elements have the same positions.
#pragma once

#include "schedule/kernel_graph.h"

namespace tandem::schedule {

/// Where partial sums of columns stand at the point (outer, inner) of a space of rows.
struct ColumnPoint {
  ops::Index out;  // (block, column…)
  ops::Index in;   // (row of the block)
};
ColumnPoint column_point(const Item& item, const Space& space, const ops::Index& outer,
                         const ops::Index& inner);

/// Index of a tensor of `sizes` at the point (axes) of a space with axis sizes `space`, same
/// element count.
ops::Index index_at(const ir::Sizes& space, const ops::Index& axes, const ir::Sizes& sizes);
sym::Expr linear_index(const ops::Index& index, const ir::Sizes& sizes);
/// Sizes without the dimensions of extent 1, which carry no position.
ir::Sizes without_ones(const ir::Sizes& sizes);

}  // namespace tandem::schedule
