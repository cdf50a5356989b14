// Problem: a mask of dropout takes a byte an element, as much as an activation that is saved in 8
// bits, and says one bit. Approach: bit k of a byte belongs to the k-th eighth of a dimension, not
// to the k-th of eight neighbours, so that lanes along a row read bytes side by side and all shift
// by the same number. That is pointwise work over slices, forward and backward:
//   bits = m[0] | m[1] << 1 | ... | m[7] << 7      m'[k] = (bits >> k & 1) != 0
#include "passes/partition/mask_bits.h"

namespace tandem::passes {
namespace {

using ops::Tensor;

constexpr int64_t kBits = 8;
/// Of a row in eighths: whole registers of bytes, whatever their width.
constexpr int64_t kRowLanes = 64;

/// [.., n, ..] as [.., 8, n / 8, ..], or with 1 in place of 8.
ir::Sizes in_eighths(const ir::Sizes& sizes, int64_t dim, int64_t count) {
  ir::Sizes split = sizes;
  split[dim] = sym::Expr(*sizes[dim].constant() / kBits);
  split.insert(split.begin() + dim, sym::Expr(count));
  return split;
}

/// 0 .. 7 along the eighths.
Tensor places(ir::Builder& b, int64_t behind) {
  ir::Sizes sizes(static_cast<size_t>(behind) + 1, sym::Expr(1));
  sizes.front() = sym::Expr(kBits);
  return reshape(ops::arange(b, sym::Expr(kBits), DType::u8), sizes);
}

}  // namespace

std::optional<int64_t> packed_dim(const ir::Type& type) {
  if (!type.is_tensor() || type.dtype != DType::boolean) return std::nullopt;
  for (int64_t dim = 0; dim < type.rank(); ++dim) {
    const std::optional<int64_t> size = type.sizes[dim].constant();
    const int64_t unit = dim + 1 == type.rank() ? kBits * kRowLanes : kBits;
    if (size && *size > 0 && *size % unit == 0) return dim;
  }
  return std::nullopt;
}

Tensor pack_bits(Tensor mask) {
  const int64_t dim = *packed_dim(mask.type());
  const int64_t eighth = *mask.size(dim).constant() / kBits;
  Tensor bits;
  for (int64_t k = 0; k < kBits; ++k) {
    Tensor part =
        to(slice(mask, dim, sym::Expr(k * eighth), sym::Expr((k + 1) * eighth)), DType::u8);
    if (k > 0) part = ops::call(mask.builder(), "aten.bitwise_left_shift.Tensor_Scalar", {part, k});
    bits = k == 0 ? part : ops::call(mask.builder(), "aten.bitwise_or.Tensor", {bits, part});
  }
  return bits;
}

Tensor unpack_bits(Tensor bits, const ir::Type& mask) {
  ir::Builder& b = bits.builder();
  const int64_t dim = *packed_dim(mask);
  Tensor shared = reshape(bits, in_eighths(mask.sizes, dim, 1));
  Tensor shifted =
      ops::call(b, "aten.bitwise_right_shift.Tensor", {shared, places(b, mask.rank() - dim)});
  Tensor bit = ops::call(b, "aten.bitwise_and.Scalar", {shifted, 1});
  return reshape(compare("ne", bit, 0), mask.sizes);
}

}  // namespace tandem::passes
