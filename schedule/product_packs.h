// Columns of a product as tiles of lanes, and panels of two terms at a time for tile registers.
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
  int lanes = 1;
};
/// The stage that copies them to it: `right` is the factor of `sums`, in bf16, of all columns.
loop::Stage copy_packs(loop::Kernel& kernel, const loop::Stage& sums, loop::Val right,
                       const loop::Axis& columns, const Panels& to, const Target& target);

}  // namespace tandem::schedule
