// What vmap makes of a call: the same for each row of its operands, at once.
#pragma once

#include <functional>
#include <string_view>

#include "ir/op.h"
#include "ops/tensor.h"

namespace tandem::ops {

/// A call that is written for one row, where some of its operands have one for each.
class BatchedCall {
 public:
  struct Found {
    ir::Value* value = nullptr;
    bool has_rows = false;  // a dimension in front; else it is the same for all rows
  };
  using Find = std::function<Found(const ir::Value*)>;

  /// `of_row`: the call, whose operands and results are of one row; `find` gives what stands for
  /// them where the builder writes.
  BatchedCall(ir::Builder& at, const ir::Call& of_row, sym::Expr count, Find find)
      : builder(at), row(of_row), rows(count), find_(std::move(find)) {}

  bool has_rows(std::string_view param) const;
  bool has_rows(const ir::Value* value) const { return find_(value).has_rows; }
  /// With rows or without.
  Tensor given(const ir::Value* value) const { return {builder, find_(value).value}; }
  Tensor given(std::string_view param) const { return given(row.value(param)); }
  /// What has none is the same in each row.
  Tensor with_rows(const ir::Value* value) const;
  Tensor with_rows(std::string_view param) const { return with_rows(row.value(param)); }
  /// With rows: of `rank` dimensions a row, those that it lacks in front. Without: as it is.
  Tensor aligned(const ir::Value* value, int64_t rank) const;
  /// rows, then `sizes`.
  ir::Sizes sizes(const ir::Sizes& of_row) const;

  ir::Builder& builder;
  const ir::Call& row;
  const sym::Expr rows;

 private:
  Find find_;
};

/// Results with rows in front; none: the call is of a kind that the rule does not know.
using BatchRule = Tensors (*)(const BatchedCall&);

/// Element by element: operands are broadcast.
Tensors batch_pointwise(const BatchedCall& c);
/// By parameters named as ATen names them: dimension numbers (`dim`, `dims`, `dim0`, `dimension`)
/// count one more, sizes of operands and results (`size`, `input_sizes`) begin with the rows.
Tensors batch_along_dims(const BatchedCall& c);
/// The same elements in another shape.
Tensors batch_reshape(const BatchedCall& c);
/// Reductions with a list of dimensions `dim`, where none stands for all.
Tensors batch_reduction(const BatchedCall& c);
/// Reductions of all elements: the overload with a dimension.
Tensors batch_whole(const BatchedCall& c);

}  // namespace tandem::ops
