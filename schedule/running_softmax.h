// Softmax and the product with it over pieces of a row, one after the other.
#pragma once

#include "loop/kernel.h"
#include "schedule/column_pieces.h"
#include "schedule/row_block.h"

namespace tandem::schedule {

/// Whether all that a chain's rows of so many columns reduce are one maximum, sums of exponentials
/// under it, and products with these: what can be taken piece by piece.
bool is_softmax_of_rows(const loop::Kernel& kernel, sym::Expr width);

/// Of blocks of rows, whose pieces of columns the innermost axis numbers: what the pieces before
/// have left is scaled to the maximum that the row has by now, and added to.
void carry_rows(loop::Kernel& kernel, const ColumnPieces& pieces, const RowBlock& block);

}  // namespace tandem::schedule
