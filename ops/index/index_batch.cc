// Problem: each row has places of its own, and an index says nothing of rows. Approach: the row is
// one more index: of indices with rows, an arange of the rows that broadcasts with them; of an
// operator that takes one index, an index for each element. Where all rows share what is read, or
// all share the places, no such index is needed. What remains is where the rows are in the result.
#include "ops/index/index_batch.h"

#include <algorithm>

#include "ops/index/index_plan.h"

namespace tandem::ops {
namespace {

using ir::Value;
using sym::Expr;

/// Dimensions [from, from + count) begin at `to`.
Tensor moved(Tensor x, int64_t from, int64_t count, int64_t to) {
  if (from == to || count == 0) return x;
  std::vector<int64_t> order;
  for (int64_t dim = 0; dim < x.rank(); ++dim)
    if (dim < from || dim >= from + count) order.push_back(dim);
  for (int64_t i = 0; i < count; ++i) order.insert(order.begin() + to + i, from + i);
  return permute(x, order);
}

/// A list along dimension `dim` of `sizes`, which begin with the rows: an index for each element.
Tensor spread(const BatchedCall& c, Tensor list, int64_t dim, const ir::Sizes& sizes) {
  ir::Sizes alone(sizes.size(), Expr(1));
  alone[0] = c.rows;
  alone[static_cast<size_t>(dim)] = sizes[static_cast<size_t>(dim)];
  return expand(reshape(list, alone), sizes);
}

Tensor number_of_row(const BatchedCall& c, int64_t width) {
  ir::Sizes sizes(static_cast<size_t>(width) + 1, Expr(1));
  sizes[0] = c.rows;
  return reshape(arange(c.builder, c.rows, DType::i64), sizes);
}

bool has_mask(const BatchedCall& c) {
  return std::ranges::any_of(c.row.values("indices"), [](const Value* index) {
    return index != nullptr && index->type.dtype == DType::boolean;
  });
}

bool indices_have_rows(const BatchedCall& c) {
  return std::ranges::any_of(c.row.values("indices"), [&](const Value* index) {
    return index != nullptr && c.has_rows(index);
  });
}

/// As the row gives them; with rows all are of one more dimension.
ir::Values aligned_indices(const BatchedCall& c, int64_t width) {
  ir::Values indices;
  for (const Value* index : c.row.values("indices"))
    indices.push_back(index == nullptr ? nullptr : c.aligned(index, width).value());
  return indices;
}

/// Of a tensor with rows.
ir::Values indices_behind_rows(const BatchedCall& c, int64_t width) {
  ir::Values indices = aligned_indices(c, width);
  Value* rows = indices_have_rows(c) ? number_of_row(c, width).value() : nullptr;
  indices.insert(indices.begin(), rows);
  return indices;
}

/// Rows of the table that an index with rows names; each has the same table.
Tensor select_of_shared(const BatchedCall& c, Tensor self, int64_t dim, const Value* index) {
  const Tensor places = c.given(index);
  const Tensor read =
      call(c.builder, "aten.index_select", {self, dim, reshape(places, {places.type().numel()})});
  ir::Sizes sizes = read.sizes();
  sizes[static_cast<size_t>(dim)] = index->type.numel();
  sizes.insert(sizes.begin() + dim, c.rows);
  return moved(reshape(read, sizes), dim, 1, 0);
}

/// Along `dim` of a row of self.
Tensor select_rows(const BatchedCall& c, std::string_view name, int64_t dim, const Value* index) {
  const Tensor self = c.given(name);
  if (!c.has_rows(name)) return select_of_shared(c, self, dim, index);
  const Expr count = index->type.numel();
  if (!c.has_rows(index))
    return call(c.builder, "aten.index_select", {self, dim + 1, reshape(c.given(index), {count})});
  ir::Sizes sizes = self.sizes();
  sizes[static_cast<size_t>(dim) + 1] = count;
  return call(c.builder, "aten.gather",
              {self, dim + 1, spread(c, c.given(index), dim + 1, sizes), false});
}

/// One index for each element of src, or a list that all rows share.
Tensor scatter_places(const BatchedCall& c, int64_t dim, const ir::Sizes& src) {
  const Value* index = c.row.value("index");
  const bool is_list = index->type.rank() == 1 && src.size() > 2;
  if (!is_list) return c.with_rows(index);
  if (!c.has_rows(index)) return c.given(index);
  const Expr count = src[static_cast<size_t>(dim)];
  Tensor list = c.given(index);
  if (list.size(1) != count) list = slice(list, 1, 0, count);  // it may go on behind the source
  return spread(c, list, dim, src);
}

}  // namespace

Tensors batch_index(const BatchedCall& c) {
  if (has_mask(c)) return {};
  const IndexPlan plan = index_plan(c.row);
  const int64_t width = plan.width();
  const bool self_has_rows = c.has_rows("self");
  const ir::Values indices =
      self_has_rows ? indices_behind_rows(c, width) : aligned_indices(c, width);
  const Tensor read = call(c.builder, "aten.index.Tensor", {c.given("self"), ir::Arg(indices)});
  if (!self_has_rows) return {moved(read, plan.place, 1, 0)};
  if (indices_have_rows(c)) return {moved(read, 1, width, plan.place + 1)};
  return {moved(read, plan.is_together ? 0 : width, 1, 0)};
}

Tensors batch_index_put(const BatchedCall& c) {
  if (has_mask(c)) return {};
  const IndexPlan plan = index_plan(c.row);
  const int64_t width = plan.width();
  const ir::Sizes of_row = indexed_sizes(c.row, plan);
  const Value* given = c.row.value("values");
  Tensor values = expand(c.aligned(given, static_cast<int64_t>(of_row.size())), c.sizes(of_row));
  if (indices_have_rows(c))
    values = moved(values, plan.place + 1, width, 1);
  else if (!plan.is_together)
    values = moved(values, 0, 1, width);
  return {call(c.builder, "aten.index_put",
               {c.with_rows("self"), ir::Arg(indices_behind_rows(c, width)), values,
                c.row.boolean("accumulate")})};
}

Tensors batch_index_select(const BatchedCall& c) {
  const int64_t rank = c.row.type("self").rank();
  if (rank == 0) return {};
  return {select_rows(c, "self", c.row.dim("dim", rank), c.row.value("index"))};
}

/// A number may go with a list of one, which with rows are of another rank.
Tensors batch_by_elements(const BatchedCall& c) {
  const int64_t rank = c.row.type("self").rank();
  const bool has_src = c.row.op().schema.find("src") >= 0;
  const bool is_even =
      c.row.type("index").rank() == rank && (!has_src || c.row.type("src").rank() == rank);
  return is_even ? batch_along_dims(c) : Tensors();
}

/// The gradient of a table for each row counts its padding and frequencies by row.
Tensors batch_embedding(const BatchedCall& c) {
  const Value* indices = c.row.value("indices");
  if (!c.has_rows("weight"))
    return {call(c.builder, "aten.embedding",
                 {c.given("weight"), c.given(indices), c.row.arg("padding_idx"),
                  c.row.arg("scale_grad_by_freq"), c.row.arg("sparse")})};
  if (c.row.integer("padding_idx") != Expr(-1) || c.row.boolean("scale_grad_by_freq")) return {};
  return {reshape(select_rows(c, "weight", 0, indices), c.sizes(c.row.result()->type.sizes))};
}

Tensors batch_scatter(const BatchedCall& c) {
  const int64_t dim = c.row.dim("dim", c.row.type("self").rank()) + 1;
  const Tensor src = c.with_rows("src");
  return {call(c.builder, "tandem.scatter",
               {c.with_rows("self"), dim, scatter_places(c, dim, src.sizes()), src,
                c.row.arg("accumulate"), c.row.arg("op"), c.row.arg("combine")})};
}

}  // namespace tandem::ops
