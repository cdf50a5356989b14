// Columns of a product as tiles of lanes, panels of two terms at a time for tile registers, and
// panels of rows.
#pragma once

#include <vector>

#include "base/target.h"
#include "loop/kernel.h"

namespace tandem::schedule {

/// An axis of columns as tiles of lanes.
struct ColumnTiles {
  loop::Axis number;
  loop::Axis position;
  int lanes = 1;

  sym::Expr column() const { return number.index * lanes + position.index; }
};
ColumnTiles cut_columns(sym::Pool& symbols, const loop::Axis& columns, int lanes);

/// Copies of axes, of a stage that walks the same; `map` gets their symbols.
std::vector<loop::Axis> fresh_axes(sym::Pool& symbols, const std::vector<loop::Axis>& axes,
                                   sym::Substitution& map);

/// Where a term of a column is in scratch of panels, each of so many elements: of all lanes of a
/// tile two terms, which lie side by side, and the next two behind them.
sym::Expr place_in_packs(const ColumnTiles& tiles, sym::Expr panel, sym::Expr term);
/// Scratch of panels.
struct Panels {
  int32_t buffer = 0;
  sym::Expr panel;  // elements
  int lanes = 1;    // or rows
};
/// The stage that copies them to it: `right` is the factor of `sums`, in bf16, of all columns.
loop::Stage copy_packs(loop::Kernel& kernel, const loop::Stage& sums, loop::Val right,
                       const loop::Axis& columns, const Panels& to, const Target& target);

/// The same of rows, in panels as high as a register tile.
sym::Expr place_of_row_in_packs(const Panels& panels, sym::Expr row, sym::Expr term);

/// Elements of a panel of rows, as many as a register tile has: a line more than its terms are, so
/// that panels are no power of two apart, which would share few sets of a cache.
sym::Expr row_panel(sym::Expr terms, int rows, DType dtype);
sym::Expr place_in_row_panels(const Panels& panels, sym::Expr row, sym::Expr term);
/// The stage that copies them: `left` is the factor of `sums`, of all rows.
loop::Stage copy_row_panels(loop::Kernel& kernel, const loop::Stage& sums, loop::Val left,
                            const loop::Axis& rows, const Panels& to);

}  // namespace tandem::schedule
