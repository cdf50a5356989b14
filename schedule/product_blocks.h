// How large the blocks of a product are: its register tiles, what a task computes, and the parts
// that its sums are taken in.
#pragma once

#include <vector>

#include "base/target.h"
#include "schedule/map.h"

namespace tandem::schedule {

/// Whether columns pass by once only, as they lie in memory or copied.
enum class ReadOnce { no, in_place, copied };

/// Sizes of tiles and blocks, in elements.
struct Blocks {
  int lanes = 0;           // columns of a register tile
  int tile_rows = 0;       // rows of a register tile
  int64_t rows = 0;        // of a task
  int64_t columns = 0;     // of a task: a multiple of lanes
  bool is_matrix = false;  // the register tile is one of tile registers, where the factors lie so
  bool in_packs = false;   // its factors lie in packs of two bf16
  ReadOnce reads_once = ReadOnce::no;  // where the register tile has all rows
};

/// What blocks are chosen by: the axes of rows, and whether a task copies its part of them.
struct RowAxes {
  std::vector<size_t> axes;
  bool copies = false;
};

/// Lanes and rows of the register tile of a product of so many columns.
Blocks choose_tile(const Target& target, int64_t width, int64_t bytes);
Blocks choose_blocks(const loop::Kernel& kernel, const Product& product, const RowAxes& rows,
                     const Target& target);

/// Whether a tile has all rows, and reads columns of fewer bits where they lie, widening them:
/// packs of them would be copied first.
bool widens_in_place(loop::Val right, sym::Expr column, int64_t height, const Blocks& tile);

/// Whether what is computed of the sums needs registers, which a tile of sums has taken.
bool has_heavy_epilogue(const loop::Stage& stage);
/// Whether the right factor comes from beyond the second-level cache.
bool is_streamed(const loop::Kernel& kernel, const Product& product, const Target& target);
/// Whether the results do not fit into the second-level cache.
bool is_stored_far(const loop::Kernel& kernel, const Target& target);

/// Terms of the longest part of a sum.
int64_t longest_part(const Tuning::Products& tuning);
/// Whether the sums of the stage are taken in parts, one after the other: a panel of the right
/// factor of a part's terms stays in the first-level cache while all rows of a task pass over it.
bool sums_in_parts(const loop::Stage& stage, const Target& target);

PartOfSum part_of_sum(sym::Pool& symbols, sym::Expr terms, const Tuning::Products& tuning);

}  // namespace tandem::schedule
