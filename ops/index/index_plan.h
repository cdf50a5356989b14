// Where the dimensions of a tensor, and of the index tensors it is indexed by, are in the result.
#pragma once

#include <optional>
#include <vector>

#include "ir/op.h"

namespace tandem::ops {

struct IndexPlan {
  std::vector<int64_t> indexed;  // dimensions of self with an index
  std::vector<int64_t> kept;     // the others
  ir::Sizes broadcast;           // of all index tensors
  bool is_together = true;       // all indices are neighbours
  int64_t place = 0;             // of the broadcast dimensions in the result

  int64_t width() const { return static_cast<int64_t>(broadcast.size()); }
};

/// Of each dimension of self, from the first one on: the sizes of its index, where it has one.
using IndexSizes = std::vector<std::optional<ir::Sizes>>;

/// i64 or i32; of masks, which have coordinates instead, Unsupported.
void check_index_tensor(const ir::Call& c, const ir::Value& index, int64_t dim);

IndexPlan index_plan(const ir::Call& c, const IndexSizes& indices);
/// Of a call whose `indices` are tensors of integers.
IndexPlan index_plan(const ir::Call& c);
/// Of what is read.
ir::Sizes indexed_sizes(const ir::Call& c, const IndexPlan& plan);

}  // namespace tandem::ops
