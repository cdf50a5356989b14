// Row-major positions of one shape as indices of another.
#include "schedule/space.h"

#include "ops/elements.h"

namespace tandem::schedule {

using sym::Expr;

ir::Sizes without_ones(const ir::Sizes& sizes) {
  ir::Sizes kept;
  for (Expr size : sizes)
    if (size != Expr(1)) kept.push_back(size);
  return kept;
}

ops::Index index_at(const ir::Sizes& space, const ops::Index& axes, const ir::Sizes& sizes) {
  return ops::reshape_index(sizes, space, axes);
}

ColumnPoint column_point(const Item& item, const Space& space, const ops::Index& outer,
                         const ops::Index& inner) {
  const ir::Sizes& sizes = item.slots[0].sizes;
  Expr row = linear_index(outer, space.outer);
  Expr block = item.computation.reduce_sizes[0];
  ColumnPoint point;
  point.out = index_at(space.inner, inner, ir::Sizes(sizes.begin() + 1, sizes.end()));
  point.out.insert(point.out.begin(), sym::floor_div(row, block));
  point.in = {sym::mod(row, block)};
  return point;
}

Expr linear_index(const ops::Index& index, const ir::Sizes& sizes) {
  Expr linear = 0;
  for (size_t i = 0; i < index.size(); ++i) linear = linear * sizes[i] + index[i];
  return linear;
}

}  // namespace tandem::schedule
