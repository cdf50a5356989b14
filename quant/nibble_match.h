// Weights of 4 bits with a scale for each group of terms, as products read them.
#pragma once

#include <optional>

#include "ir/graph.h"
#include "passes/known.h"

namespace tandem::quant {

/// w[n, k] = (q[n, k] - zero) * scale + offset, each of the group that k is in.
struct NibbleWeight {
  ir::Value* q = nullptr;        // u8 or i8 [n, k]; `packed`: as PyTorch packs it
  bool packed = false;           // then `scale` is [groups, n, 2]: scale and offset
  int64_t least = 0;             // of q
  ir::Value* scale = nullptr;    // [n, groups], whatever its dimensions are
  ir::Value* zero = nullptr;     // the same; null: none
  int64_t group = 0;             // terms
  int64_t rows = 0, terms = 0;   // n, k
};

/// The right factor of a product, if it is one that is known before the first call.
std::optional<NibbleWeight> nibble_weight_of(const ir::Node& product,
                                             const passes::KnownValues& known);

}  // namespace tandem::quant
