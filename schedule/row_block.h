// Kernels of rows made kernels of blocks of rows.
#pragma once

#include "loop/kernel.h"

namespace tandem::schedule {

struct RowBlock {
  loop::Axis rows;   // for the stages, which do not have it yet: its symbol stands in their indices
  sym::Expr height;  // of a block, at most
};

/// Cuts the last outer axis into blocks, which are tasks. What was a number or a row of scratch for
/// each row becomes a column or a matrix of the block.
RowBlock widen_rows(loop::Kernel& kernel, int64_t block);

}  // namespace tandem::schedule
