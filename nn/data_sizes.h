// Values of a model whose sizes only data tell. Each size is a symbol, which the program gives its
// value when it gets there; what is computed from such values has sizes made of it.
#pragma once

#include "nn/module.h"
#include "sym/sym.h"

namespace tandem::nn {

/// Coordinates of the elements that are not 0: i64[n, rank of x], in row-major order.
Tensor nonzero(Tensor x);
/// The elements of x where `mask` (bool) holds; both broadcast.
Tensor masked_select(Tensor x, Tensor mask);
/// x[mask]: the rows of x that a mask of its first dimensions chooses.
Tensor index(Tensor x, Tensor mask);

struct Unique {
  Tensor values;   // ascending
  Tensor inverse;  // i64, of x's sizes: which of them an element is
  Tensor counts;   // i64: how often each is there
};
Unique unique(Tensor x);

/// The value of an integer of one element, as a size: a call fails where it is not in `range`.
sym::Expr item(Tensor x, sym::Range range = {0, sym::Range::kMax});

}  // namespace tandem::nn
