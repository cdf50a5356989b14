// Types of values: tensors with symbolic sizes, and scalars passed by value.
#pragma once

#include <string>
#include <vector>

#include "base/dtype.h"
#include "sym/sym.h"

namespace tandem::ir {

using Sizes = std::vector<sym::Expr>;

struct Type {
  enum class Kind : uint8_t { tensor, scalar };
  Kind kind = Kind::tensor;
  DType dtype = DType::f32;  // of a scalar: f64, i64 or bool
  Device device = Device::cpu;
  Sizes sizes;  // empty for a 0-d tensor
  /// In elements; empty means contiguous, or not known. Inputs have them always; results up to
  /// functionalize, where a front end knows eager's.
  Sizes strides;

  static Type tensor(DType dtype, Sizes sizes) {
    return {Kind::tensor, dtype, Device::cpu, std::move(sizes), {}};
  }
  static Type scalar(DType dtype) { return {Kind::scalar, dtype, Device::cpu, {}, {}}; }

  bool is_tensor() const { return kind == Kind::tensor; }
  int64_t rank() const { return static_cast<int64_t>(sizes.size()); }
  sym::Expr numel() const { return sym::product(sizes); }
  bool operator==(const Type&) const = default;
  /// Equal but for strides.
  bool same_elements(const Type& other) const {
    return kind == other.kind && dtype == other.dtype && device == other.device &&
           sizes == other.sizes;
  }
};

/// Row-major strides; a size of 0 counts as 1, as in PyTorch.
Sizes contiguous_strides(const Sizes& sizes);

/// `f32[s0, 784]`, with strides `f32[2, 3]{1, 2}`; scalars `i64`, `f64`, `bool`.
std::string to_string(const Type& type);
std::string to_string(const Sizes& sizes);

}  // namespace tandem::ir
