// Type rules shared by families: broadcasting and promotion as PyTorch does them.
#pragma once

#include <string_view>
#include <vector>

#include "ir/op.h"

namespace tandem::ops {

using Types = std::vector<ir::Type>;

/// Result sizes of broadcasting; UserError when two sizes differ and neither is 1, or are not known
/// equal.
ir::Sizes broadcast(const ir::Call& call, const ir::Sizes& a, const ir::Sizes& b);

/// Promotion over operands: tensors with dimensions before 0-d tensors before numbers, a later
/// group counting only when its category (bool < int < float) is higher.
class Promotion {
 public:
  void add(const ir::Type& type);
  void add(const ir::Arg& arg);  // a tensor, a number, a scalar value; none is ignored
  DType result() const;

 private:
  void merge(int group, DType dtype);
  DType dtypes_[3] = {};
  bool seen_[3] = {};
};

/// The dtype two or more operands of a pointwise op compute in (before widening of 16-bit floats).
DType common_dtype(const ir::Call& call, std::initializer_list<std::string_view> params);

// Rules. `self` is the first parameter whatever its name.
Types unary_same(const ir::Call& call);    // dtype and sizes of self
Types unary_float(const ir::Call& call);   // integers and bool become f32
Types unary_bool(const ir::Call& call);    // bool of self's sizes
Types binary(const ir::Call& call);        // self, other: broadcast and promoted
Types binary_float(const ir::Call& call);  // as binary; integers become f32
Types binary_bool(const ir::Call& call);   // as binary; result bool

/// f32 for integers and bool, else itself.
DType to_float(DType dtype);

}  // namespace tandem::ops
