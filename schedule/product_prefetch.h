// What a product asks memory for before it needs it.
#pragma once

#include <optional>

#include "base/target.h"
#include "loop/kernel.h"
#include "schedule/map.h"
#include "schedule/product_blocks.h"

namespace tandem::schedule {

/// A stage of register tiles, over the rows and columns of a task.
struct ProductTiles {
  loop::Stage& stage;
  const loop::Axis& rows;
  const loop::Axis& columns;
  sym::Expr tile;  // number of a tile of columns
  int64_t lanes = 1;
  int64_t tile_rows = 1;
  std::optional<int64_t> width;   // of a task
  int64_t height = 0;             // of a task; assumed where nobody knows it
  std::optional<int64_t> length;  // of the sums, at most
  int64_t terms_of_step = 1;
};

/// Position in a sum, row-major over the reduced axes.
sym::Expr linear_position(const std::vector<loop::Axis>& axes);

/// While a task computes, it asks for the columns of the next one, or of that many tasks on, so
/// that copying them does not wait for memory; where sums are taken in parts, a part asks for the
/// next one. While a panel is summed, each tile of rows asks for its share of the lines of the
/// panel in the same place, and each step for one, or as many as it takes. Shares are rounded up,
/// and steps go over them by a shift: they may ask for a little of the next share, but no step
/// divides. With one that did (by a width of 160 columns), a product with sums of 197 terms
/// took 7.7 ms, with none 5.8 (Zen 3).
void ask_for_columns(const ProductTiles& tiles, loop::Val right,
                     const std::optional<PartOfSum>& part, int64_t tasks = 1);
/// Sums read columns once: they ask for what memory takes the time of `ahead` bytes for, and
/// longer. Of copied ones, of which a task has a panel, for the panel of a later task; as they lie,
/// for the terms of later steps.
void ask_ahead(const ProductTiles& tiles, loop::Val right, ReadOnce how, int64_t ahead);
/// The same of columns that lie in panels: each step asks for a line of the next one.
void ask_for_panel(const ProductTiles& tiles, loop::Val right);
/// While a tile sums, it asks for the lines that its results go to: stores would wait for them, one
/// after the other. `position`: the symbol of a column in its tile.
void ask_for_results(const ProductTiles& tiles, sym::Expr position);
/// Where several steps ask for one and the same line, so many of them become a loop of their own,
/// before which it is asked for; not with AVX-512, where it gained nothing. A step of 6 rows of 16
/// lanes is 20 instructions, and an address takes 12: products of 128 rows with weights as they lie
/// 50.2 to 42.3 ms, 48.9 to 44.7, 12.5 to 11.7 (Zen 4 held to AVX2). Written out, these steps are
/// no faster.
void ask_between_steps(loop::Kernel& kernel, loop::Stage& sums, const Target& target);
/// Pieces of rows are copied, which processors do not see coming: the copy, whose lanes these are,
/// asks for those of the rows some steps further on. `sums`: the stage that they are copied for.
void ask_for_rows(loop::Kernel& kernel, const loop::Stage& sums, loop::Val right, loop::Axis& lanes,
                  const Tuning::Products& tuning);

}  // namespace tandem::schedule
