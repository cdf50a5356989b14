// Register tiles of a matrix unit (AMX): sums of products of packs of 32 bits, a square of rows and
// columns at once. A pack is four bytes, or two bf16.
#pragma once

#include <string>

#include "loop/kernel.h"

namespace tandem::loop {

/// Rows of a tile register, and the packs of a row of it.
inline constexpr int kMatrixTile = 16;
/// Rows and columns of a stage's tile, at most: two tile registers each.
inline constexpr int kMostMatrix = 2 * kMatrixTile;

/// A stage of one `dot4`, or of one `dot` of bf16 in f32, of which a block of rows and columns is
/// summed by tile registers. Its last axis has the rows, another one the lanes, its last reduce
/// axis the packs, whose number is known; others before it have one step at least. Of bf16 the
/// first reduce axis counts the two numbers of a pack, which lie side by side. Sums of those are
/// taken as the unit does: of the packs of a step first terms, then second ones, then both are
/// added to the sum; what is too small for a normal number is zero.
struct MatrixProduct {
  Val rows = nullptr;     // the factor that walks the rows, along memory by the packs
  Val columns = nullptr;  // the factor that walks the lanes, along memory by them
  bool signed_rows = false;
  int64_t pack_elements = 1;  // of memory: an i32 of bytes, two bf16
  sym::Expr row_stride;       // of `rows` from row to row, in elements
  sym::Expr pack_stride;      // of `columns` from pack to pack
  /// Where the axis before the rows' counts lines of them: rows from line to line, at least as many
  /// as a line has. A tile may then run over the ends of lines, over rows that nobody wants. 0: one
  /// line.
  int64_t pitch = 0;
  /// `rows` are scratch, which goes on behind the last one for as many as a tile has: it may be
  /// read whole.
  bool has_spare_rows = false;
};

/// Whether the stage is one `dot` of factors in bf16, in f32.
bool multiplies_bf16(const Stage& stage);
/// What such a factor is before it becomes an f32.
Val before_cast(Val factor);

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
