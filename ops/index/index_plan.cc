// x[i, :, j]: the index tensors broadcast together; their dimensions stand where the first index
// stood when all indices are neighbours, else in front. Reading, writing and rows at once of both
// go by this.
#include "ops/index/index_plan.h"

#include <fmt/format.h>

#include "base/diagnostic.h"
#include "ir/graph.h"
#include "ops/types.h"

namespace tandem::ops {

void check_index_tensor(const ir::Call& c, const ir::Value& index, int64_t dim) {
  const DType dtype = index.type.dtype;
  if (dtype == DType::boolean || dtype == DType::u8)
    throw Unsupported(fmt::format(
        "[{}] a mask as index {} has a result of unknown size: not implemented here (ops); indices "
        "of i64 or i32 are accepted",
        c.op().schema.full_name(), dim));
  if (dtype != DType::i64 && dtype != DType::i32)
    c.fail(fmt::format("index {} is {}, not i64 or i32", dim, to_string(index.type)));
}

IndexPlan index_plan(const ir::Call& c, const IndexSizes& indices) {
  const int64_t rank = c.type("self").rank();
  if (static_cast<int64_t>(indices.size()) > rank)
    c.fail(fmt::format("{} indices are too many for {}", indices.size(), c.describe("self")));
  IndexPlan plan;
  for (int64_t dim = 0; dim < rank; ++dim) {
    const bool is_indexed = dim < static_cast<int64_t>(indices.size()) && indices[dim].has_value();
    (is_indexed ? plan.indexed : plan.kept).push_back(dim);
    if (is_indexed) plan.broadcast = broadcast(c, plan.broadcast, *indices[dim]);
  }
  if (plan.indexed.empty()) c.fail("needs at least one index");
  plan.is_together =
      plan.indexed.back() - plan.indexed.front() + 1 == static_cast<int64_t>(plan.indexed.size());
  plan.place = plan.is_together ? plan.indexed.front() : 0;
  return plan;
}

IndexPlan index_plan(const ir::Call& c) {
  IndexSizes sizes;
  for (const ir::Value* index : c.values("indices")) {
    if (index != nullptr) check_index_tensor(c, *index, static_cast<int64_t>(sizes.size()));
    sizes.push_back(index == nullptr ? std::nullopt : std::optional<ir::Sizes>(index->type.sizes));
  }
  return index_plan(c, sizes);
}

ir::Sizes indexed_sizes(const ir::Call& c, const IndexPlan& plan) {
  ir::Sizes sizes;
  for (const int64_t dim : plan.kept) sizes.push_back(c.type("self").sizes[dim]);
  sizes.insert(sizes.begin() + plan.place, plan.broadcast.begin(), plan.broadcast.end());
  return sizes;
}

}  // namespace tandem::ops
