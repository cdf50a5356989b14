// Register tiles of a matrix unit (AMX): sums of products of packed bytes, a square of rows and
// columns at once.
#pragma once

#include <string>

#include "loop/kernel.h"

namespace tandem::loop {

/// Rows of a tile register, and the packs of a row of it.
inline constexpr int kMatrixTile = 16;
/// Rows and columns of a stage's tile, at most: two tile registers each.
inline constexpr int kMostMatrix = 2 * kMatrixTile;

/// A stage of one `dot4`, of which a block of rows and columns is summed by tile registers. Its
/// last axis has the rows, another one the lanes, its last reduce axis the packs.
struct MatrixProduct {
  Val rows = nullptr;     // the factor that walks the rows, along memory by the packs
  Val columns = nullptr;  // the factor that walks the lanes, along memory by them
  bool signed_rows = false;
  sym::Expr row_stride;   // of `rows` from row to row, in elements
  sym::Expr pack_stride;  // of `columns` from pack to pack
  /// Where the axis before the rows' counts lines of them: rows from line to line, at least as many
  /// as a line has. A tile may then run over the ends of lines, over rows that nobody wants. 0: one
  /// line.
  int64_t pitch = 0;
  /// `rows` are scratch, which goes on behind the last one for as many as a tile has: it may be
  /// read whole.
  bool has_spare_rows = false;
};

/// Whether the axis before the rows' is marked as lines.
bool has_lines(const Stage& stage);

/// What a stage whose last axis has the rows would be, whether or not its axes are marked; without
/// one, `problem` says why.
struct MatrixFit {
  MatrixProduct product;
  std::string problem;
};
MatrixFit matrix_product(const Kernel& kernel, const Stage& stage);

/// The same of its marks: `rows matrix(32)`, `reduce matrix(16)`, and of an axis of lines, if the
/// tiles run over them, `matrix(1)`. Empty where they hold.
std::string matrix_problem(const Kernel& kernel, const Stage& stage);

}  // namespace tandem::loop
