// Products: C[.., i, j] = sum_k A[.., i, k] B[.., k, j] with whatever stands around them: A and B
// may be expressions (a prologue), and what is stored may be computed from the sum (an epilogue).
// One task owns a block of rows times a block of columns. It copies the right factor's columns into
// scratch, in panels as wide as a register tile, so that the innermost loop reads them one after
// the other whatever their layout was; then each tile of rows x lanes keeps its sums in registers
// over the whole of k. A left factor that has to be computed is copied first as well. A light
// epilogue works on the sums in registers; a heavy one (exp, erf, random bits) has no registers
// left there, so the sums of a task go to scratch and it follows as a loop of its own.
// A long sum is taken in parts, so that a panel of the right factor stays in the first-level cache:
// the parts are added in scratch, and what is computed of them follows the last one. Parts depend
// on the number of terms only, so bits do not depend on blocks. So it is inside of a chain, where
// nothing else bounds what one register adds up, and with it the error.
#include <algorithm>
#include <bit>

#include "loop/matrix.h"
#include "schedule/axes.h"
#include "schedule/map.h"
#include "schedule/matrix_tile.h"
#include "schedule/product_axes.h"
#include "schedule/product_blocks.h"
#include "schedule/product_packs.h"
#include "schedule/product_prefetch.h"
#include "schedule/product_window.h"
#include "schedule/scratch_sums.h"
#include "schedule/visible_columns.h"

namespace tandem::schedule {

using loop::Axis;
using loop::AxisKind;
using loop::Kernel;
using loop::Stage;
using loop::Val;
using sym::Expr;

namespace {

bool stores_along(const Stage& stage, Expr axis) {
  return std::all_of(stage.after.begin(), stage.after.end(), [&](const loop::Store& store) {
    std::optional<sym::Affine> affine = sym::affine_in(store.index, axis);
    return affine && affine->coefficient == Expr(1);
  });
}

/// The only one-sided axis of each factor, or the longest.
std::optional<size_t> own_axis(const Kernel& kernel, Val mine, Val other, bool stored_along) {
  std::optional<size_t> best;
  for (size_t i = 0; i < kernel.outer.size(); ++i) {
    const Axis& axis = kernel.outer[i];
    if (!walks(mine, axis.index) || walks(other, axis.index)) continue;
    if (stored_along && !stores_along(kernel.stages[0], axis.index)) continue;
    int64_t length = axis.extent.constant().value_or(INT64_MAX);
    bool longer = !best || length > kernel.outer[*best].extent.constant().value_or(INT64_MAX);
    if (longer) best = i;
  }
  return best;
}

}  // namespace

bool runs_along(Val value, Expr axis, Expr across) {
  std::vector<Val> roots{value};
  for (Val part : loop::reachable(roots)) {
    if (part->opcode != loop::Opcode::load || !sym::depends_on(part->index, across)) continue;
    std::optional<sym::Affine> affine = sym::affine_in(part->index, axis);
    if (affine && affine->coefficient == Expr(1)) return true;
  }
  return false;
}

std::optional<Product> find_product(const Kernel& kernel) {
  if (kernel.stages.size() != 1) return std::nullopt;
  const Stage& stage = kernel.stages[0];
  bool one_sum = stage.reductions.size() == 1 && stage.axes.empty() && stage.body.empty() &&
                 loop::multiplies(stage.reductions[0].combiner);
  if (!one_sum) return std::nullopt;
  for (size_t left : {0, 1}) {
    size_t right = 1 - left;
    const std::vector<Val>& inputs = stage.reductions[0].inputs;
    std::optional<size_t> columns = own_axis(kernel, inputs[right], inputs[left], true);
    std::optional<size_t> rows = own_axis(kernel, inputs[left], inputs[right], false);
    if (columns && rows) return Product{*rows, *columns, left, right};
  }
  return std::nullopt;
}

Expr length_of(const Stage& stage) {
  Expr length = 1;
  for (const Axis& axis : stage.reduce_axes) length = length * axis.extent;
  return length;
}

namespace {

/// Where memory runs down the rows, a step of the sum is a line of memory further on: of so many
/// bytes or more that is copied. A tile of one panel of columns reads each of these lines once.
int64_t far_terms(bool in_parts, Expr columns, const Target& target) {
  if (in_parts) return 0;
  return sym::known_le(columns, 2 * target.lanes()) ? INT64_MAX : target.tuning.products.far_terms;
}

bool reads_in_place(Val left, Expr rows, const Stage& stage, int64_t far) {
  if (!is_read_in_place(left, rows)) return false;
  const Expr term = stage.reduce_axes.back().index;
  if (!runs_along(left, rows, term)) return true;
  const std::optional<sym::Affine> terms = sym::affine_in(left->index, term);
  const int64_t stride = terms ? terms->coefficient.constant().value_or(0) : 0;
  return stride * size_of(left->dtype) < far;
}

/// Memory runs down the rows, and their copy along the terms: square tiles are turned.
void turn_rows(std::vector<Axis>& terms, Axis rows, int side) {
  terms.back().kind = AxisKind::vector;
  terms.back().lanes = side;
  rows.kind = AxisKind::transpose;
  rows.lanes = side;
  terms.push_back(rows);
}

/// Before all others: an axis that has a point in one part only.
void only_in(Expr is_there, Stage& stage, sym::Pool& symbols) {
  stage.axes.insert(stage.axes.begin(), {symbols.index("y", 1), is_there});
}

/// The sums' axis becomes that of a part.
PartOfSum cut_sum(Kernel& kernel, Stage& stage, const Tuning::Products& tuning) {
  sym::Pool& symbols = kernel.scalars->symbols();
  const Expr term = stage.reduce_axes[0].index;
  PartOfSum part = part_of_sum(symbols, stage.reduce_axes[0].extent, tuning);
  const Axis inner{symbols.index("r", part.most_terms), part.terms};
  loop::substitute(kernel, stage, {{term, part.first_term + inner.index}});
  stage.reduce_axes = {inner};
  return part;
}

/// All parts, one after the other, over the whole block.
void walk_parts(Kernel& kernel, Stage& sums, const Tuning::Products& tuning) {
  const PartOfSum part = cut_sum(kernel, sums, tuning);
  sums.axes.insert(sums.axes.begin(), part.number);
}

/// Whether what it does with its sums is store them, once.
bool stores_sums_alone(const Stage& stage) {
  return stage.after.size() == 1 && !stage.after[0].accumulate &&
         stage.after[0].value->opcode == loop::Opcode::local;
}

bool asks_next_part(const ProductBlock& block, const Target& target) {
  return block.part && block.is_streamed && target.tuning.products.asks_next_part != 0;
}

bool in_panels(const Stage& stage, Val placed, const ColumnTiles& tiles, bool in_packs) {
  return in_packs ? lies_in_packed_panels(stage, placed, tiles.position)
                  : lies_in_panels(stage, placed, tiles.position);
}

/// Whether two terms of each row of a tile go side by side, as those of columns do, and nothing is
/// turned.
bool has_packs_along_rows(const Stage& sums, Val left, const Axis& rows, const Blocks& blocks) {
  return blocks.in_packs && !blocks.is_matrix && sums.reduce_axes.size() == 1 &&
         std::has_single_bit(static_cast<unsigned>(blocks.tile_rows)) && is_plain_load(left) &&
         runs_along(left, rows.index, sums.reduce_axes[0].index);
}

/// The product of one stage over a block of rows and a block of columns: the stages that it
/// becomes.
class ProductMapper {
 public:
  /// `tile`: its register tile; the extents of the axes are at most height and width.
  ProductMapper(Kernel& kernel, Stage& stage, const Blocks& tile, const ProductBlock& block,
                const Target& target)
      : kernel_(kernel),
        stage_(stage),
        pool_(*kernel.scalars),
        blocks_(tile),
        target_(target),
        block_(block),
        length_(block.part ? block.part->most_terms : block.length.value_or(length_of(stage))),
        width_(block.width),
        height_(block.height),
        far_(far_terms(block.part.has_value(), block.width, target)),
        rows_(block.rows),
        columns_(block.columns) {}

  std::vector<Stage> run() {
    std::optional<Stage> finish;
    const bool adds_up = block_.part || (block_.walks_parts && !stores_sums_alone(stage_));
    if (has_heavy_epilogue(stage_) || adds_up) finish = split_epilogue(stage_);
    if (finish && block_.visible)
      columns_.extent = columns_before(*block_.visible, columns_.extent);
    ColumnTiles tiles = cut();
    std::vector<Stage> stages;
    if (block_.part || block_.walks_parts)
      stages.push_back(add_up_sums(kernel_, stage_, rows_, columns_, target_));
    if (block_.part) only_in(block_.part->is_first, stages[0], symbols());
    if (block_.part) only_in(block_.part->is_last, *finish, symbols());
    std::vector<Val>& inputs = stage_.reductions[0].inputs;
    if (blocks_.in_packs)
      for (Val& input : inputs) input = loop::before_cast(input);
    const Val right_value = inputs[1 - block_.left];
    const Val placed = loop::substituted(pool_, right_value, {{columns_.index, tiles.column()}});
    const bool is_in_panels = in_panels(stage_, placed, tiles, blocks_.in_packs);
    inputs = {left(inputs[block_.left], stages), right(inputs[1 - block_.left], tiles, stages)};
    if (blocks_.in_packs)
      for (Val& input : inputs) input = pool_.cast(input, DType::f32);
    // Of bytes, one factor is unsigned and the other signed.
    const bool is_ordered = loop::multiplies_bytes(stage_.reductions[0].combiner);
    if (is_ordered && block_.left == 1) std::swap(inputs[0], inputs[1]);
    loop::substitute(kernel_, stage_, {{columns_.index, tiles.column()}});
    rows_.kind = AxisKind::unroll;
    rows_.lanes = blocks_.tile_rows;
    stage_.axes = {tiles.number, tiles.position, rows_};
    if (blocks_.is_matrix)
      mark_for_tiles(tiles, right_value, is_in_panels);
    else
      ask_for_memory(tiles, right_value, is_in_panels, !finish);
    if (blocks_.in_packs && !blocks_.is_matrix) sum_packs(kernel_, stage_);
    if (block_.walks_parts) walk_parts(kernel_, stage_, target_.tuning.products);
    stages.push_back(std::move(stage_));
    if (finish) stages.push_back(std::move(*finish));
    return stages;
  }

 private:
  sym::Pool& symbols() { return pool_.symbols(); }

  ColumnTiles cut() { return cut_columns(symbols(), columns_, blocks_.lanes); }

  int32_t scratch(DType dtype, Expr elements) {
    int32_t number = static_cast<int32_t>(kernel_.buffers.size());
    kernel_.buffers.push_back({dtype, loop::Access::scratch, elements, true, ""});
    return number;
  }

  /// `stores`: the sums go to where the results lie.
  void ask_for_memory(const ColumnTiles& tiles, Val right, bool is_in_panels, bool stores) {
    const ProductTiles at{
        .stage = stage_,
        .rows = rows_,
        .columns = columns_,
        .tile = tiles.number.index,
        .lanes = blocks_.lanes,
        .tile_rows = blocks_.tile_rows,
        .width = width_.constant(),
        .height = height_.constant().value_or(target_.tuning.products.assumed_rows),
        .length = length_.constant(),
        .terms_of_step = blocks_.in_packs ? 2 : 1};
    if (blocks_.reads_once != ReadOnce::no)
      ask_ahead(at, right, blocks_.reads_once, target_.tuning.loops.ahead);
    else if (block_.is_streamed && is_in_panels)
      ask_for_panel(at, right);
    else if (block_.part ? asks_next_part(block_, target_) : block_.is_streamed)
      ask_for_columns(at, right, block_.part);
    if (block_.is_stored_far && stores) ask_for_results(at, tiles.position.index);
  }

  // --- tile registers

  void mark_for_tiles(const ColumnTiles& tiles, Val right, bool is_in_panels) {
    const Expr term = stage_.reduce_axes.back().index;
    const Tuning::Products& tuning = target_.tuning.products;
    mark_matrix(kernel_, stage_);
    const int64_t height = height_.constant().value_or(0);
    const std::optional<int64_t> width = width_.constant();
    if (is_in_panels || !block_.is_streamed || !width || !is_plain_load(right))
      return ask_for_next_panel(kernel_, stage_, tiles.number.index, height, tuning);
    const bool crosses = runs_along(right, term, columns_.index);
    if (!crosses && !runs_along(right, columns_.index, columns_.index)) return;
    ask_for_next_block(stage_, {right, columns_.index, term, crosses, *width, height},
                       tiles.number.index, tuning);
  }

  // --- the right factor: panels [tile][k][lane]

  Val right(Val value, const ColumnTiles& tiles, std::vector<Stage>& stages) {
    const std::vector<Axis>& reduced = stage_.reduce_axes;
    std::optional<int64_t> height = height_.constant();
    const bool is_padded =
        !blocks_.is_matrix || sym::known_divisible(columns_.extent, blocks_.lanes);
    const bool few_rows = height && *height <= 2 * blocks_.tile_rows && is_padded;
    // Widened once a tile of rows, as a copy would.
    const bool is_widened = height && *height <= blocks_.tile_rows && is_widened_load(value);
    const Val placed = loop::substituted(pool_, value, {{columns_.index, tiles.column()}});
    if (is_padded && in_panels(stage_, placed, tiles, blocks_.in_packs)) return placed;
    if (!blocks_.in_packs && few_rows && (is_plain_load(value) || is_widened) &&
        runs_along(value, columns_.index, columns_.index))
      return placed;
    Expr panel = length_ * blocks_.lanes;
    int32_t number = scratch(value->dtype, sym::ceil_div(width_, blocks_.lanes) * panel);
    auto place = [&](const ColumnTiles& at, const std::vector<Axis>& axes) {
      return at.number.index * panel + linear_position(axes) * blocks_.lanes + at.position.index;
    };
    if (blocks_.in_packs) {
      stages.push_back(
          copy_packs(kernel_, stage_, value, columns_, {number, panel, blocks_.lanes}, target_));
      const Expr at = place_in_packs(tiles, panel, linear_position(reduced));
      return pool_.load(number, value->dtype, at);
    }
    stages.push_back(copy_right(value, number, place));
    return pool_.load(number, value->dtype, place(tiles, reduced));
  }

  /// Lanes along the columns; where memory runs along k instead, square tiles are transposed.
  template <class Place>
  Stage copy_right(Val value, int32_t number, const Place& place) {
    ColumnTiles tiles = cut();
    sym::Substitution map{{columns_.index, tiles.column()}};
    std::vector<Axis> reduced = fresh_axes(symbols(), stage_.reduce_axes, map);
    Stage stage;
    stage.body = {{number, place(tiles, reduced), loop::substituted(pool_, value, map), false}};
    bool crosses =
        !reduced.empty() && runs_along(value, stage_.reduce_axes.back().index, columns_.index);
    stage.axes = std::move(reduced);
    stage.axes.insert(crosses ? stage.axes.begin() : stage.axes.end(), tiles.number);
    stage.axes.push_back(tiles.position);
    if (!crosses && block_.part && !asks_next_part(block_, target_))
      ask_for_rows(kernel_, stage_, value, stage.axes.back(), target_.tuning.products);
    if (!crosses) return stage;
    std::swap(stage.axes.back(), stage.axes[stage.axes.size() - 2]);
    stage.axes[stage.axes.size() - 2].lanes = target_.lanes();
    stage.axes.back().kind = AxisKind::unroll;
    stage.axes.back().lanes = target_.lanes();
    return stage;
  }

  // --- the left factor: as it is, or computed once a task

  /// Tile registers read packs that follow one another, and words of two bf16 begin at even places.
  bool lies(Val value) const {
    if (!reads_in_place(value, rows_.index, stage_, far_)) return false;
    if (!blocks_.is_matrix && !blocks_.in_packs) return true;
    const Expr term = stage_.reduce_axes.back().index;
    const std::optional<sym::Affine> terms = sym::affine_in(value->index, term);
    return terms && terms->coefficient == Expr(1) &&
           (blocks_.is_matrix || sym::known_divisible(terms->rest, 2));
  }

  Val left(Val value, std::vector<Stage>& stages) {
    const std::vector<Axis>& reduced = stage_.reduce_axes;
    if (reduced.empty() || lies(value)) return value;
    if (has_packs_along_rows(stage_, value, rows_, blocks_)) return left_in_panels(value, stages);
    const bool in_order = blocks_.is_matrix || blocks_.in_packs;
    const bool along_rows = !in_order && runs_along(value, rows_.index, reduced.back().index);
    if (along_rows && far_ != INT64_MAX) return left_in_panels(value, stages);
    auto place = [&](Expr row, const std::vector<Axis>& axes) {
      return along_rows ? linear_position(axes) * height_ + row
                        : row * length_ + linear_position(axes);
    };
    int32_t number = scratch(value->dtype, length_ * height_);
    sym::Substitution map;
    std::vector<Axis> rows = fresh_axes(symbols(), {rows_}, map);
    std::vector<Axis> inner = fresh_axes(symbols(), reduced, map);
    Stage stage;
    stage.body = {
        {number, place(rows[0].index, inner), loop::substituted(pool_, value, map), false}};
    stage.axes = std::move(inner);
    if (in_order && is_plain_load(value) && runs_along(value, rows_.index, reduced.back().index)) {
      turn_rows(stage.axes, rows[0], target_.lanes());
    } else {
      stage.axes.insert(along_rows ? stage.axes.end() : stage.axes.begin(), rows[0]);
      lanes_last(stage.axes);
      stage.axes.back().kind = AxisKind::vector;
      stage.axes.back().lanes = target_.lanes();
    }
    stages.push_back(std::move(stage));
    return pool_.load(number, value->dtype, place(rows_.index, reduced));
  }

  /// Memory runs down the rows: all terms of a tile follow one another, as columns do.
  Val left_in_panels(Val value, std::vector<Stage>& stages) {
    const Expr panel = row_panel(length_, blocks_.tile_rows, value->dtype);
    const Expr count = sym::ceil_div(height_, blocks_.tile_rows);
    const Panels to{scratch(value->dtype, count * panel), panel, blocks_.tile_rows};
    stages.push_back(blocks_.in_packs ? copy_packs(kernel_, stage_, value, rows_, to, target_)
                                      : copy_row_panels(kernel_, stage_, value, rows_, to));
    const auto& place = blocks_.in_packs ? place_of_row_in_packs : place_in_row_panels;
    const Expr term = linear_position(stage_.reduce_axes);
    return pool_.load(to.buffer, value->dtype, place(to, rows_.index, term));
  }

  // --- the epilogue: a loop over the task's sums

  Stage split_epilogue(Stage& sums) {
    Stage finish =
        schedule::split_epilogue(kernel_, sums, {rows_, columns_, height_, width_}, target_);
    sym::Substitution map;
    rows_ = {fresh_axes(symbols(), {rows_}, map)[0].index, rows_.extent};
    loop::substitute(kernel_, sums, map);
    return finish;
  }

  Kernel& kernel_;
  Stage& stage_;
  loop::ScalarPool& pool_;
  Blocks blocks_;
  const Target& target_;
  const ProductBlock& block_;
  Expr length_;  // of the sums, at most
  Expr width_;   // columns of a task, at most
  Expr height_;  // rows of a task, at most
  int64_t far_;  // bytes between terms of the left factor, from which on it is copied
  Axis rows_;
  Axis columns_;
};

std::vector<Stage> map_stage(Kernel& kernel, Stage& stage, const Blocks& tile,
                             const ProductBlock& block, const Target& target) {
  std::vector<Stage> stages = ProductMapper(kernel, stage, tile, block, target).run();
  for (Stage& each : stages) ask_between_steps(kernel, each, target);
  return stages;
}

void all_are_tasks(Kernel& kernel) {
  for (Axis& axis : kernel.outer) axis.kind = AxisKind::task;
}

/// Whether a task takes all images, of `height` rows each: where they are small and the weights
/// come from beyond the second-level cache, these are then read once.
bool takes_images(const Kernel& kernel, const Product& product, const SlidingRows& sliding,
                  int64_t height, const Target& target) {
  if (!sliding.images || !sliding.lines || !is_streamed(kernel, product, target)) return false;
  const auto extent = [&](size_t axis) { return *kernel.outer[axis].extent.constant(); };
  return extent(sliding.lines->axis) * extent(sliding.places.axis) <= height &&
         extent(*sliding.images) * height <= target.tuning.products.most_rows;
}

/// Rows that slide over an image, of packs: a task takes some of its lines, and copies once what
/// their windows see. Whether it has. Vector registers read rows that do not overlap where they
/// lie.
bool map_sliding_rows(Kernel& kernel, Product product, const Target& target) {
  Stage& stage = kernel.stages[0];
  const bool of_packs = stage.reductions[0].combiner != loop::Combiner::dot;
  const bool in_tiles = suits_matrix(stage, INT64_MAX, target);
  if (!of_packs || has_heavy_epilogue(stage)) return false;
  const std::optional<SlidingRows> sliding =
      find_sliding_rows(kernel, product, target.tuning.products);
  if (!sliding) return false;
  if (!in_tiles && !sliding->places.term) return false;
  product.rows = sliding->places.axis;
  // Windows that skip places see several times as many as they are: copied for all columns at once.
  const bool overlap = sliding->places.term && sliding->places.stride == 1;
  RowAxes axes{{product.rows}, !overlap && !is_streamed(kernel, product, target)};
  if (sliding->lines) axes.axes.push_back(sliding->lines->axis);
  Blocks blocks = choose_blocks(kernel, product, axes, target);
  if (in_tiles && !blocks.is_matrix) return false;
  const int64_t places = std::min(*kernel.outer[product.rows].extent.constant(), blocks.rows);
  // Lines of 14 are two tiles of 7.
  if (!in_tiles)
    blocks.tile_rows = static_cast<int>(ceil_div(places, ceil_div(places, blocks.tile_rows)));
  const int64_t lines = blocks.rows / places;
  ProductBlock block;
  block.left = product.left;
  block.width = sym::min(kernel.outer[product.columns].extent, blocks.columns);
  block.height = sliding->lines ? places * lines : places;
  std::vector<Walk> walks;
  if (in_tiles && takes_images(kernel, product, *sliding, *block.height.constant(), target)) {
    const Slide each{*sliding->images, std::nullopt, 1, 1};
    const int64_t count = *kernel.outer[each.axis].extent.constant();
    walks.push_back({take_block(kernel, each.axis, count, {&stage}), each});
    block.height = block.height * count;
  }
  if (sliding->lines)
    walks.push_back({take_block(kernel, sliding->lines->axis, lines, {&stage}), *sliding->lines});
  block.rows = take_block(kernel, product.rows, places, {&stage});
  walks.push_back({block.rows, sliding->places});
  block.columns = take_block(kernel, product.columns, blocks.columns, {&stage});
  all_are_tasks(kernel);
  Stage copy = copy_footprint(kernel, stage, product.left, walks, in_tiles, target);
  kernel.stages = map_stage(kernel, stage, blocks, block, target);
  std::vector<Axis>& last = kernel.stages.back().axes;
  const ptrdiff_t inside = in_tiles ? 1 : 2;  // a tile's axes: its rows, or its lanes and rows
  for (size_t i = 0; i + 1 < walks.size(); ++i) last.insert(last.end() - inside, walks[i].axis);
  mark_lines(kernel, kernel.stages.back());
  add_spare_rows(kernel, kernel.stages.back());
  kernel.stages.insert(kernel.stages.begin(), std::move(copy));
  return true;
}

}  // namespace

namespace {

/// Columns that are read as they lie need no packing.
int64_t fewest_rows(const Kernel& kernel, const Product& product, const Target& target) {
  const Val right = kernel.stages[0].reductions[0].inputs[product.right];
  const Expr column = kernel.outer[product.columns].index;
  const bool is_loaded = is_plain_load(right) || is_widened_load(right);
  return is_loaded && runs_along(right, column, column) ? 2 : target.tuning.products.fewest_rows;
}

}  // namespace

Misfit map_product(Kernel& kernel, const Target& target) {
  std::optional<Product> product = find_product(kernel);
  if (!product) return "it is no sum of products over two axes of their own";
  std::optional<int64_t> rows = kernel.outer[product->rows].extent.constant();
  std::optional<int64_t> length = length_of(kernel.stages[0]).constant();
  if (rows && *rows < fewest_rows(kernel, *product, target)) return "it has few rows";
  if (length && *length == 0) return "its sums have no terms";
  if (target.multiplies_bf16_tiles() || target.multiplies_bf16()) {
    merge_packs(kernel, *product);
    merge_short_terms(kernel);
  }
  merge_panels(kernel, *product);
  Stage& stage = kernel.stages[0];
  if (map_sliding_rows(kernel, *product, target)) return nullptr;
  merge_rows(kernel, *product, target);
  const bool in_parts = sums_in_parts(stage, target);
  const int64_t far = far_terms(in_parts, kernel.outer[product->columns].extent, target);
  const bool copies = !reads_in_place(stage.reductions[0].inputs[product->left],
                                      kernel.outer[product->rows].index, stage, far);
  Blocks blocks = choose_blocks(kernel, *product, {{product->rows}, copies}, target);
  ProductBlock block;
  block.left = product->left;
  block.width = sym::min(kernel.outer[product->columns].extent, blocks.columns);
  block.height = sym::min(kernel.outer[product->rows].extent, blocks.rows);
  block.is_streamed = is_streamed(kernel, *product, target);
  // Without AVX-512 a step of a sum is too short to ask for anything: that takes what it gives.
  block.is_stored_far = target.isa == Isa::avx512 && is_stored_far(kernel, target);
  block.rows = take_block(kernel, product->rows, blocks.rows, {&stage});
  block.columns = take_block(kernel, product->columns, blocks.columns, {&stage});
  all_are_tasks(kernel);
  if (in_parts) {  // one after the other, inside of a task
    block.part = cut_sum(kernel, stage, target.tuning.products);
    kernel.outer.push_back(block.part->number);
  }
  kernel.stages = map_stage(kernel, stage, blocks, block, target);
  return nullptr;
}

std::vector<Stage> map_product_stage(Kernel& kernel, Stage& stage, const ProductBlock& block,
                                     const Target& target) {
  const int64_t bytes = size_of(stage.reductions[0].inputs[0]->dtype);
  Blocks tile = choose_tile(target, block.width.constant().value_or(INT64_MAX), bytes);
  const int64_t height = block.height.constant().value_or(INT64_MAX);
  const Val right = stage.reductions[0].inputs[1 - block.left];
  tile.is_matrix = suits_bf16_matrix(stage, height, target);
  tile.in_packs = tile.is_matrix || (suits_bf16_packs(stage, target) &&
                                     !widens_in_place(right, block.columns.index, height, tile));
  return map_stage(kernel, stage, tile, block, target);
}

}  // namespace tandem::schedule
