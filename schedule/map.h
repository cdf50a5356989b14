// How the axes of a kernel meet the machine.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/target.h"
#include "loop/kernel.h"
#include "schedule/decision.h"

namespace tandem::schedule {

/// Why a strategy does not fit a kernel, whatever it has done to it; null where it has mapped it.
using Misfit = const char*;

struct Strategy {
  std::string_view name;  // what TANDEM_DISABLE and --why call it
  Misfit (*map)(loop::Kernel&, const Target&);
  bool in_order = true;  // wants axes in the order of memory, neighbours merged where they can be
  bool takes_footprints = false;  // may map a kernel that begins with one
};

/// Splits, merges and orders axes and writes how they meet the machine: the first strategy that
/// fits does. What each that was asked said. map_axes.cc
std::vector<MapDecision> map_axes(loop::Kernel& kernel, const Target& target);
/// Why no strategy of a processor takes the kernel's footprint; empty where one does. map_axes.cc
std::string misfit_of_footprint(const loop::Kernel& kernel, const Target& target);
/// Of a pointwise kernel that runs along a library call: a task for each line of its result.
/// map_lines.cc
Misfit map_lines(loop::Kernel& kernel, int64_t lines, const Target& target);
/// Decides how loops are spelled in machine code, and writes that as marks of axes. mark_loops.cc
void mark_loops(loop::Kernel& kernel, const Target& target);
/// In the order in which they are asked, of a processor.
std::vector<std::string_view> strategy_names();

/// A kernel mapped in one way.
struct Mapping {
  std::string name;
  loop::Kernel kernel;
};
/// All that differ: what map_axes makes, with the target's numbers and with some of them changed,
/// and what each other strategy makes that fits. The first is map_axes' own. candidates.cc
std::vector<Mapping> mappings_of(const loop::Kernel& kernel, const Target& target);
/// By one strategy of a processor alone, in the order of memory where it wants that; null where it
/// does not fit.
std::optional<loop::Kernel> mapped_by(std::string_view strategy, const loop::Kernel& kernel,
                                      const Target& target);

/// Of joined products: tasks are blocks of rows. Rows of scratch and locals of a row become those
/// of a block; each stage walks the block's rows. map_chain.cc
Misfit map_chain(loop::Kernel& kernel, const Target& target);
/// Rows of a block there, the last of `rows`: a matrix of the block, of rows of so many bytes,
/// fills a quarter of the second-level cache at most (share_scratch leaves one or two of them);
/// blocks are about equal, and there are tasks enough. `gathers`: a member sums along the rows.
int64_t rows_of_block(std::span<const sym::Expr> rows, int64_t row_bytes, bool gathers,
                      const Target& target);
/// Of a sum over a window that slides over channels-last images, each channel by itself: what the
/// windows see is computed once. Where a stage of its own comes first, that is a sum which what
/// they see is made from. map_window.cc
Misfit map_window(loop::Kernel& kernel, const Target& target);
/// Of sums of groups of integers, which are scaled and added where they are computed: lanes along
/// the results. map_groups.cc
Misfit map_groups(loop::Kernel& kernel, const Target& target);
/// Of a sum of products over two independent axes: register tiles over packed operands.
/// map_product.cc
Misfit map_product(loop::Kernel& kernel, const Target& target);
/// Of such a sum of few rows, whose factors lie along the terms: lanes along them. map_dots.cc
Misfit map_dots(loop::Kernel& kernel, const Target& target);
/// Without a reduction, of operands that wrap around along the lanes: a loop for each piece
/// between. map_pieces.cc
Misfit map_pieces(loop::Kernel& kernel, const Target& target);
/// Without a reduction, of values that an axis of a few points chooses between: all of them are
/// stored at each of the other points. map_cases.cc
Misfit map_cases(loop::Kernel& kernel, const Target& target);
// Without a reduction: square tiles where an operand is transposed, few values stored side by side,
// all others. map_points.cc
Misfit map_tiles(loop::Kernel& kernel, const Target& target);
Misfit map_interleaved(loop::Kernel& kernel, const Target& target);
Misfit map_points(loop::Kernel& kernel, const Target& target);
// A reduction across memory: sums of whole rows in scratch, and results in registers.
// map_columns.cc
Misfit map_column_sums(loop::Kernel& kernel, const Target& target);
Misfit map_columns(loop::Kernel& kernel, const Target& target);
/// Of a scan: lanes are columns, or lie along it. map_scans.cc
Misfit map_scans(loop::Kernel& kernel, const Target& target);
// Places from data; and a task for each row, which fits all else. map_rows.cc
Misfit map_scatter(loop::Kernel& kernel, const Target& target);
Misfit map_rows(loop::Kernel& kernel, const Target& target);

/// Whether data says where the second of two stages stores.
bool stores_where_data_says(const loop::Kernel& kernel);
/// Whether the kernel is one stage without a reduction.
bool has_points_only(const loop::Kernel& kernel);
/// Whether a point may read what another one has written, so that points keep their order and none
/// stores for another.
bool writes_what_it_reads(const loop::Kernel& kernel);
/// The outer axis that lanes should run along is made the last one.
void move_lanes_last(loop::Kernel& kernel);
/// The axis along which some load walks memory while the lanes' axis (the last) does not; -1 for
/// none.
int crossing_axis(const loop::Kernel& kernel);

/// Which outer axes are the rows and columns of a sum of products, and which input of the dot walks
/// which.
struct Product {
  size_t rows = 0;     // number of the outer axis
  size_t columns = 0;  // that all stores walk with stride 1
  size_t left = 0;     // number of the input that walks the rows
  size_t right = 1;
};
std::optional<Product> find_product(const loop::Kernel& kernel);
/// Whether memory runs along the axis: a load that also walks `across` (a row's own number would
/// say nothing) has stride 1 along it.
bool runs_along(loop::Val value, sym::Expr axis, sym::Expr across);
/// Terms of each sum of a stage.
sym::Expr length_of(const loop::Stage& stage);

/// Whether the kernel begins with such a sum.
bool has_footprint(const loop::Kernel& kernel);
/// One of the parts of a sum, by the number of its terms alone: bits are the same on all machines,
/// and whether that number is known or not.
struct PartOfSum {
  loop::Axis number;
  sym::Expr is_first;    // 1 or 0
  sym::Expr is_last;     // 1 or 0
  sym::Expr first_term;  // where it starts
  sym::Expr terms;
  sym::Expr most_terms;  // of any part
};
/// The rows and columns of one task, which a stage that sums products runs over.
struct ProductBlock {
  loop::Axis rows;
  loop::Axis columns;
  sym::Expr height;  // of rows and columns, at most
  sym::Expr width;
  std::optional<sym::Expr> length;  // of the sums, at most; nothing: what the stage says
  /// Where the columns end whose sums the epilogue reads, if it is a loop of its own.
  std::optional<sym::Expr> visible;
  size_t left = 0;  // which input of the dot walks the rows
  /// Of the stage's sums, which are taken in parts: this one.
  std::optional<PartOfSum> part;
  /// Whether the stage itself takes them in parts: the copy of the right factor holds all of them.
  bool walks_parts = false;
  /// Blocks of columns follow each other, and the right factor is read from beyond the cache.
  bool is_streamed = false;
  bool is_stored_far = false;  // the results fill more than that cache
};
/// What such a stage becomes inside a kernel of several: copies of its factors, register tiles.
std::vector<loop::Stage> map_product_stage(loop::Kernel& kernel, loop::Stage& stage,
                                           const ProductBlock& block, const Target& target);

}  // namespace tandem::schedule
