// Masks that are saved as bits.
#pragma once

#include <cstdint>
#include <optional>

#include "ir/type.h"
#include "ops/tensor.h"

namespace tandem::passes {

/// The dimension whose eighths share bytes; none where no size is known to divide, or the type is
/// no mask.
std::optional<int64_t> packed_dim(const ir::Type& type);

/// Of a mask with such a dimension: an eighth of its bytes.
ops::Tensor pack_bits(ops::Tensor mask);
/// The mask again.
ops::Tensor unpack_bits(ops::Tensor bits, const ir::Type& mask);

}  // namespace tandem::passes
