// Weights of 4 or 8 bits that are known before the first call, as products of floats read them.
#pragma once

#include <optional>

#include "ir/graph.h"
#include "ops/opdef.h"
#include "passes/known.h"

namespace tandem::quant {

/// w[n, k] = (q[n, k] - zero) * scale + offset, with numbers of its own for each group of terms.
struct NarrowWeight {
  /// none: q is u8 or i8 [n, k], from `least` on, and `scale` [n, groups], as `zero` is. bytes: i8
  /// [n, k], and `scale` [n]. nibbles: as PyTorch packs them, and `scale` [groups, n, 2]: scale and
  /// offset.
  ops::NarrowFactor kind = ops::NarrowFactor::none;
  int64_t bits = 4;
  ir::Value* q = nullptr;
  int64_t least = 0;
  ir::Value* scale = nullptr;
  ir::Value* zero = nullptr;  // null: none
  int64_t group = 0;          // terms
  int64_t rows = 0, terms = 0;
};

/// The right factor of a product, if it is one.
std::optional<NarrowWeight> narrow_weight_of(const ir::Node& product,
                                             const passes::KnownValues& known);

}  // namespace tandem::quant
