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

/// The same over those of `params` that are tensors.
ir::Sizes broadcast_of(const ir::Call& call, std::initializer_list<std::string_view> params);
/// False for numbers and scalar values.
bool is_tensor(const ir::Call& call, std::string_view param);

/// True when both have as many sizes and each pair is known to be equal.
bool same_sizes(const ir::Sizes& a, const ir::Sizes& b);

// Refusals, each of which names op, operand and rule. Parameters that are absent are passed over.
void need_float(const ir::Call& call, std::string_view param);
/// Anything but bool.
void need_number(const ir::Call& call, std::string_view param);
void need_rank(const ir::Call& call, std::string_view param, int64_t least, int64_t most);
void need_same_dtype(const ir::Call& call, std::initializer_list<std::string_view> params);
/// `params` are parameters of a layer over `input`: of its dtype, or all f32 beside 16-bit floats.
void need_layer_dtype(const ir::Call& call, std::initializer_list<std::string_view> params);
/// `alpha` of an addition: a float for floats only, a bool for bools only.
void need_alpha(const ir::Call& call, DType result);

/// Element `i` of output_mask, which has three.
bool wants_output(const ir::Call& call, size_t i);

/// Promotion over operands: tensors with dimensions before 0-d tensors before numbers, a later
/// group counting only when its category (bool < int < float < complex) is higher.
class Promotion {
 public:
  void add(const ir::Type& type);
  void add(const ir::Arg& arg);  // a tensor, a number, a scalar value; none is ignored
  /// Fails where PyTorch promotes nothing: 8-bit floats beside another type.
  DType result(const ir::Call& call) const;

 private:
  void merge(int group, DType dtype);
  DType dtypes_[3] = {};
  bool seen_[3] = {};
  bool mixes_float8_ = false;
};

/// The dtype two or more operands of a pointwise op compute in (before widening of 16-bit floats).
DType common_dtype(const ir::Call& call, std::initializer_list<std::string_view> params);

// Rules. `self` is the first parameter whatever its name.
Types unary_same(const ir::Call& call);    // dtype and sizes of self
Types unary_number(const ir::Call& call);  // the same; bool is refused
Types unary_float(const ir::Call& call);   // integers and bool become f32
Types unary_bool(const ir::Call& call);    // bool of self's sizes
Types binary(const ir::Call& call);        // self, other: broadcast and promoted
Types binary_float(const ir::Call& call);  // as binary; integers become f32
Types binary_bool(const ir::Call& call);   // as binary; result bool

/// f32 for integers and bool, else itself.
DType to_float(DType dtype);

/// Eager refuses most writes through an expanded view, and takes those whose own elements do not
/// overlap (one row of it). Throws Unsupported.
[[noreturn]] void refuse_expanded_write(const ir::Call& call);

}  // namespace tandem::ops
