// Which elements of a mask hold, once their number is known.
#pragma once

#include "ops/tensor.h"

namespace tandem::ops {

/// Gives `size`, a symbol, the value of `count`, i64[]; a number, it is compared with.
void make_size(Tensor count, sym::Expr size);
/// i64[size]: row-major numbers of the elements of `mask` (bool) that hold, ascending. Gives
/// `size`, a symbol, its value.
Tensor places_where(Tensor mask, sym::Expr size);
/// The same, by dimension; of a 0-d mask none, and no size.
Tensors columns_where(Tensor mask, sym::Expr size);

}  // namespace tandem::ops
