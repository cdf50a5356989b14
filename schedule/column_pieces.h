// Columns of a chain's rows, taken in pieces that stay in cache.
#pragma once

#include <optional>

#include "base/target.h"
#include "loop/kernel.h"

namespace tandem::schedule {

/// How the columns of a chain's rows are walked.
struct ColumnPieces {
  sym::Expr number;      // of the piece in hand: an outer axis, the one before the rows
  sym::Expr length;      // columns of it …
  sym::Expr longest;     // … and of any
  bool carries = false;  // rows have a maximum: a block passes all pieces before the next one comes
};

/// Columns of a piece, at most.
int64_t longest_piece(const Target& target);
/// Whether rows of so many columns are long enough to be cut.
bool are_cut(sym::Expr columns, const Target& target);

/// Where rows are long, columns are cut into pieces, and scratch holds what a row has of a piece.
/// Sums along a row are taken piece by piece; those of a softmax are left to `carry_rows`. Nothing,
/// and the kernel as it was, where a row is short, or needed whole.
std::optional<ColumnPieces> take_pieces(loop::Kernel& kernel, const Target& target);

}  // namespace tandem::schedule
