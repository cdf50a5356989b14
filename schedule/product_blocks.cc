// How products are cut. A panel of the right factor, as wide as a register tile, passes through the
// first-level cache once for each tile of rows, so its terms are bounded: sums are taken in parts.
// Columns of a task are as many as fill a quarter of the second-level cache. Rows pay for copying
// them, columns for copying rows where those are copied too. Then blocks are made smaller until
// there are tasks enough.
#include "schedule/product_blocks.h"

#include <algorithm>
#include <bit>

#include "loop/matrix.h"
#include "schedule/axes.h"
#include "schedule/matrix_tile.h"
#include "schedule/product_axes.h"

namespace tandem::schedule {

using loop::Kernel;
using loop::Stage;
using loop::Val;
using sym::Expr;

namespace {

bool is_heavy(Val value) {
  return value->opcode == loop::Opcode::philox || loop::is_transcendental(value->opcode);
}

template <class Predicate>
bool any_in_epilogue(const Stage& stage, Predicate predicate) {
  std::vector<Val> roots;
  for (const loop::Store& store : stage.after) roots.push_back(store.value);
  std::vector<Val> scalars = loop::reachable(roots);
  return std::any_of(scalars.begin(), scalars.end(), predicate);
}

bool draws_random(const Stage& stage) {
  return any_in_epilogue(stage, [](Val v) { return v->opcode == loop::Opcode::philox; });
}

}  // namespace

bool widens_in_place(Val right, Expr column, int64_t height, const Blocks& tile) {
  return height <= tile.tile_rows && is_widened_load(right) && runs_along(right, column, column);
}

int64_t longest_part(const Tuning::Products& tuning) {
  return tuning.shortest_part + tuning.part_terms;
}

bool has_heavy_epilogue(const Stage& stage) { return any_in_epilogue(stage, is_heavy); }

bool is_streamed(const Kernel& kernel, const Product& product, const Target& target) {
  const Stage& stage = kernel.stages[0];
  std::optional<int64_t> width = kernel.outer[product.columns].extent.constant();
  std::optional<int64_t> length = length_of(stage).constant();
  int64_t bytes = size_of(stage.reductions[0].inputs[0]->dtype);
  return width && length && *width * *length * bytes > target.l2_bytes;
}

bool is_stored_far(const Kernel& kernel, const Target& target) {
  if (kernel.stages[0].after.empty()) return false;  // nobody reads the product
  int64_t bytes = size_of(kernel.stages[0].after[0].value->dtype);
  for (const loop::Axis& axis : kernel.outer) bytes *= axis.extent.constant().value_or(0);
  return bytes > target.l2_bytes;
}

namespace {

/// That sums may take: the others are for the factors.
int registers_of_sums(const Target& target) { return target.isa == Isa::avx512 ? 16 : 12; }

}  // namespace

Blocks choose_tile(const Target& target, int64_t width, int64_t bytes) {
  // Two registers of lanes and as many rows as leave registers for the factors.
  const int registers = registers_of_sums(target);
  const int one = static_cast<int>(target.vector_bytes / bytes);
  Blocks tile;
  tile.lanes = width <= one ? one : 2 * one;
  tile.tile_rows = std::max(1, registers / std::max(1, tile.lanes / one));
  return tile;
}

namespace {

/// The same number of blocks, of about equal size: a task with a few rows would copy all of its
/// columns for them.
int64_t even_blocks(int64_t extent, int64_t block, int64_t granule) {
  if (extent == INT64_MAX) return block;
  const int64_t even = ceil_div(extent, ceil_div(extent, block));
  return ceil_div(even, granule) * granule;
}

/// A few granules less, where that leaves no smaller block at the end: there are so few blocks that
/// one core would wait for the other. 3072 columns in 24 blocks of 128 take 0.60 ms, in 20 of 160,
/// the last of 32, 0.69.
int64_t equal_blocks(int64_t extent, int64_t block, int64_t granule) {
  const int64_t granules = ceil_div(extent, granule);
  const int64_t most = block / granule;
  for (int64_t each = most; 4 * each >= 3 * most; --each)
    if (extent != INT64_MAX && granules % each == 0) return each * granule;
  return block;
}

/// INT64_MAX where nobody knows.
int64_t height_of(const Kernel& kernel, const std::vector<size_t>& axes) {
  int64_t height = 1;
  for (size_t axis : axes) {
    const std::optional<int64_t> extent = kernel.outer[axis].extent.constant();
    if (!extent) return INT64_MAX;
    height *= *extent;
  }
  return height;
}

/// What there is to cut: all rows and columns, INT64_MAX where nobody knows, and how often.
struct Whole {
  int64_t height = 0;
  int64_t width = 0;
  int64_t others = 1;  // products
};

Whole whole_of(const Kernel& kernel, const Product& product, const RowAxes& rows, int64_t enough) {
  Whole whole;
  whole.height = height_of(kernel, rows.axes);
  whole.width = kernel.outer[product.columns].extent.constant().value_or(INT64_MAX);
  for (size_t i = 0; i < kernel.outer.size(); ++i)
    if (std::ranges::find(rows.axes, i) == rows.axes.end() && i != product.columns)
      whole.others *= std::max<int64_t>(1, kernel.outer[i].extent.constant().value_or(enough));
  return whole;
}

/// Columns are cut first, down to one panel, because each is copied once for all rows of a task.
/// Where rows are copied too, each of them for all columns of a task, the longer side is.
void cut_until_enough(Blocks& blocks, const Whole& whole, int64_t fewest_columns, bool copies_rows,
                      int64_t enough, int64_t smallest_block) {
  const auto is_enough = [&] {
    const int64_t down = whole.height == INT64_MAX ? enough : ceil_div(whole.height, blocks.rows);
    const int64_t across = whole.width == INT64_MAX ? 1 : ceil_div(whole.width, blocks.columns);
    return whole.others * down * across >= enough;
  };
  while (!is_enough()) {
    const bool has_columns = blocks.columns > fewest_columns;
    const bool has_rows = blocks.rows > smallest_block;
    if (!has_columns && !has_rows) break;
    const bool takes_rows = !has_columns || (copies_rows && blocks.rows >= blocks.columns);
    if (has_rows && takes_rows)
      blocks.rows -= smallest_block;
    else
      blocks.columns -= fewest_columns;
  }
}

/// Terms of a panel: where sums are taken in parts, of the longest part.
int64_t panel_terms(const Stage& stage, const Target& target) {
  const std::optional<int64_t> length = length_of(stage).constant();
  const int64_t most =
      sums_in_parts(stage, target) ? longest_part(target.tuning.products) : INT64_MAX;
  return std::clamp<int64_t>(length.value_or(target.tuning.assumed_length), 1, most);
}

/// Whether other rows than those of the register tile meet these columns.
bool is_read_by_others(const Kernel& kernel, const Product& product, Val right) {
  for (size_t i = 0; i < kernel.outer.size(); ++i)
    if (i != product.rows && i != product.columns && kernel.outer[i].extent != Expr(1) &&
        !walks(right, kernel.outer[i].index))
      return true;
  return false;
}

/// Columns that are read as they lie: as many registers of them as the sums of these rows leave
/// room for, where no tile is then narrower. Rows of memory are read whole if they are that short.
void widen_tile(Blocks& blocks, int64_t rows, int64_t width, int one, const Target& target) {
  blocks.tile_rows = static_cast<int>(rows);
  // A register of columns, widened or not, goes to all rows before the next one comes.
  const int room = target.isa == Isa::avx512 ? 24 : registers_of_sums(target);
  const unsigned most = static_cast<unsigned>(room / blocks.tile_rows);
  const int registers = static_cast<int>(std::bit_floor(most));
  if (registers > 2 && ceil_div(width, one) % registers == 0) blocks.lanes = registers * one;
  blocks.columns = ceil_div(blocks.columns, blocks.lanes) * blocks.lanes;
}

/// One register tile has all rows, so the columns pass by once, at the speed of memory. Where they
/// are copied, a task has one panel of them, so that the next ones come from memory while it is
/// multiplied. Attention of a token with 8 x 1024 keys and values of 64 bf16, 4 rows for each: the
/// scores 0.063 to 0.031 ms, the results 0.065 to 0.031, of 0.032 that memory takes; 8 rows 0.095
/// to 0.052 and 0.098 to 0.050 (Zen 4, two cores).
void read_once(Blocks& blocks, const Kernel& kernel, const Product& product, const Target& target) {
  const Stage& stage = kernel.stages[0];
  const Val right = stage.reductions[0].inputs[product.right];
  const loop::Axis& columns = kernel.outer[product.columns];
  const int64_t rows = kernel.outer[product.rows].extent.constant().value_or(INT64_MAX);
  const std::optional<int64_t> width = columns.extent.constant();
  if (rows > blocks.tile_rows || blocks.is_matrix || !width || draws_random(stage)) return;
  if (!is_plain_load(right) && !is_widened_load(right)) return;
  if (is_read_by_others(kernel, product, right)) return;
  const int64_t bytes = size_of(stage.reductions[0].inputs[0]->dtype);
  const int one = static_cast<int>(target.vector_bytes / bytes);
  const bool is_in_place = !blocks.in_packs && runs_along(right, columns.index, columns.index);
  if (is_in_place) {
    blocks.reads_once = ReadOnce::in_place;
    return widen_tile(blocks, rows, *width, one, target);
  }
  const Expr term = stage.reduce_axes.back().index;
  if (sums_in_parts(stage, target) || !runs_along(right, term, columns.index)) return;
  blocks.reads_once = ReadOnce::copied;
  blocks.tile_rows = static_cast<int>(rows);
  blocks.columns = blocks.lanes;
}

}  // namespace

Blocks choose_blocks(const Kernel& kernel, const Product& product, const RowAxes& rows,
                     const Target& target) {
  const Tuning::Products& tuning = target.tuning.products;
  const Stage& stage = kernel.stages[0];
  int64_t bytes = size_of(stage.reductions[0].inputs[0]->dtype);
  const int64_t enough = std::max<int64_t>(tuning.enough_tasks, 4 * target.cores);
  const Whole whole = whole_of(kernel, product, rows, enough);
  Blocks blocks = choose_tile(target, whole.width, bytes);
  const bool of_bf16 = suits_bf16_matrix(stage, whole.height, target);
  const loop::Axis& columns = kernel.outer[product.columns];
  blocks.in_packs = of_bf16 || (suits_bf16_packs(stage, target) &&
                                !widens_in_place(stage.reductions[0].inputs[product.right],
                                                 columns.index, whole.height, blocks));
  if (blocks.in_packs) bytes = size_of(DType::bf16);
  const int64_t panel = panel_terms(stage, target) * blocks.lanes * bytes;
  const int64_t fewest =
      std::max<int64_t>(blocks.lanes, draws_random(stage) ? tuning.random_columns : 1);
  blocks.columns = std::max(fewest, target.l2_bytes / 4 / panel * blocks.lanes / fewest * fewest);
  blocks.columns = std::min(
      blocks.columns, sums_in_parts(stage, target) ? tuning.part_columns : tuning.most_columns);
  blocks.rows = tuning.most_rows;
  blocks.is_matrix = of_bf16 || suits_matrix(stage, whole.height, target);
  cut_until_enough(blocks, whole, fewest, rows.copies, enough, tuning.smallest_block);
  blocks.rows =
      even_blocks(whole.height, blocks.rows, of_bf16 ? loop::kMostMatrix : blocks.tile_rows);
  blocks.columns = even_blocks(whole.width, blocks.columns, fewest);
  if (blocks.in_packs && !of_bf16)
    blocks.columns = equal_blocks(whole.width, blocks.columns, fewest);
  // Whole tiles are read where they lie, if they are panels.
  if (stage.reductions[0].combiner != loop::Combiner::dot && whole.width % blocks.lanes == 0)
    while (whole.width % blocks.columns != 0) blocks.columns -= blocks.lanes;
  read_once(blocks, kernel, product, target);
  return blocks;
}

bool sums_in_parts(const Stage& stage, const Target& target) {
  const loop::Reduction& sum = stage.reductions[0];
  const bool of_floats = sum.combiner == loop::Combiner::dot && is_float(sum.inputs[0]->dtype);
  return of_floats && stage.reduce_axes.size() == 1 &&
         !suits_bf16_matrix(stage, INT64_MAX, target) && !suits_bf16_packs(stage, target) &&
         !sym::known_le(stage.reduce_axes[0].extent, longest_part(target.tuning.products));
}

PartOfSum part_of_sum(sym::Pool& symbols, Expr terms, const Tuning::Products& tuning) {
  const Expr most = tuning.part_terms;
  const Expr count = sym::max(1, sym::ceil_div(terms - tuning.shortest_part, most));
  PartOfSum part;
  part.number = {symbols.index("x", count), count};
  const Expr rest = terms - count * most;
  part.is_first = sym::floor_div(count - part.number.index, count);
  part.is_last = sym::floor_div(part.number.index + 1, count);
  part.first_term = part.number.index * most;
  part.terms = most + part.is_last * rest;
  part.most_terms = most + sym::max(0, rest);
  return part;
}

}  // namespace tandem::schedule
