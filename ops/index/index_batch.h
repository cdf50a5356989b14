// Reads and writes at computed places, of all rows at once.
#pragma once

#include "ops/batch.h"

namespace tandem::ops {

Tensors batch_index(const BatchedCall& c);
Tensors batch_index_put(const BatchedCall& c);
Tensors batch_index_select(const BatchedCall& c);
/// gather, and scatters of one index an element.
Tensors batch_by_elements(const BatchedCall& c);
Tensors batch_embedding(const BatchedCall& c);
/// tandem::scatter
Tensors batch_scatter(const BatchedCall& c);

}  // namespace tandem::ops
