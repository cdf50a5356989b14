// Mapping of joined products (compute_at_rows.cc): a task owns a block of rows, the last outer
// axis, and runs stage after stage over it. What was a number or a row of scratch for each row
// becomes a column or a matrix of the block. Products copy their right factor to panels and keep
// sums in registers (map_product.cc); all other stages have lanes along the row. Where a product
// sums along the rows, a task owns all blocks of its batch: each adds its part to what the ones
// before have stored.
#include <algorithm>
#include <array>

#include "loop/row_tiles.h"
#include "schedule/axes.h"
#include "schedule/column_pieces.h"
#include "schedule/hidden_terms.h"
#include "schedule/map.h"
#include "schedule/product_axes.h"
#include "schedule/product_blocks.h"
#include "schedule/product_terms.h"
#include "schedule/row_block.h"
#include "schedule/running_softmax.h"
#include "schedule/visible_columns.h"

namespace tandem::schedule {
namespace {

using loop::Axis;
using loop::AxisKind;
using loop::Kernel;
using loop::Stage;
using loop::Val;
using sym::Expr;

bool is_product(const Stage& stage) {
  return stage.reductions.size() == 1 && stage.axes.size() == 1 && stage.body.empty() &&
         stage.reductions[0].combiner == loop::Combiner::dot;
}

std::vector<Expr> extents_of(const std::vector<Axis>& axes) {
  std::vector<Expr> extents;
  for (const Axis& axis : axes) extents.push_back(axis.extent);
  return extents;
}

/// Of outer axes, the last of which are the rows.
int64_t block_of_rows(const Kernel& kernel, const std::vector<Expr>& rows, const Target& target) {
  int64_t row = 1;
  for (const loop::Buffer& buffer : kernel.buffers)
    if (buffer.access == loop::Access::scratch)
      row = std::max(row, buffer.elements.constant().value_or(target.tuning.assumed_length) *
                              size_of(buffer.dtype));
  return rows_of_block(rows, row, gathers(kernel), target);
}

/// Whether a row ends in many operations, each of which would wait for the one before.
bool has_dear_end(const Stage& stage) {
  if (stage.axes.size() != 1 || stage.reductions.size() != 1) return false;
  const loop::Combiner combiner = stage.reductions[0].combiner;
  if (combiner != loop::Combiner::max && combiner != loop::Combiner::sum) return false;
  std::vector<Val> values;
  for (const loop::Store& store : stage.after) values.push_back(store.value);
  return std::ranges::any_of(loop::reachable(values),
                             [](Val part) { return loop::is_transcendental(part->opcode); });
}

struct EarlyEnd {
  ColumnAxis axis;
  Expr end;
};

class ChainMapper {
 public:
  ChainMapper(Kernel& kernel, const Target& target)
      : kernel_(kernel), pool_(*kernel.scalars), target_(target) {}

  void run() {
    const std::vector<Expr> extents = extents_of(kernel_.outer);
    pieces_ = take_pieces(kernel_, target_);
    const RowBlock taken = widen_rows(kernel_, block_of_rows(kernel_, extents, target_));
    rows_ = taken.rows;
    height_ = taken.height;
    for (Axis& axis : kernel_.outer) axis.kind = AxisKind::task;
    if (gathers(kernel_)) kernel_.outer.back().kind = AxisKind::serial;
    if (pieces_) walk_pieces(*pieces_);
    std::vector<std::optional<Expr>> ends;
    for (size_t i = 0; i < kernel_.stages.size(); ++i) ends.push_back(end_of(i));
    const std::vector<std::optional<EarlyEnd>> early = ends_of_rows(ends);
    if (pieces_ && pieces_->carries) carry_rows(kernel_, *pieces_, {rows_, height_});
    std::vector<Stage> stages;
    for (size_t i = 0; i < ends.size(); ++i) {
      if (early[i] && !ends[i])
        end_early(kernel_.stages[i], *early[i], stages);
      else
        map(kernel_.stages[i], ends[i], stages);
    }
    kernel_.stages = std::move(stages);
  }

 private:
  /// The axis before the rows has their number, or, where rows carry something on, that behind.
  void walk_pieces(const ColumnPieces& pieces) {
    Axis& axis = *(kernel_.outer.end() - 2);
    axis.kind = AxisKind::serial;
    if (pieces.carries) std::swap(axis, kernel_.outer.back());
  }

  /// Of a product of which later stages do not read all columns: where those end that they read.
  std::optional<Expr> end_of(size_t number) const {
    const Stage& stage = kernel_.stages[number];
    if (!is_product(stage)) return std::nullopt;
    return visible_columns(kernel_, number, rows_, height_);
  }

  /// Of the first product whose results are hidden, from later stages or in its own epilogue.
  std::optional<HiddenColumns> hidden_columns(const std::vector<std::optional<Expr>>& ends) const {
    for (size_t i = 0; i < ends.size(); ++i) {
      const Stage& stage = kernel_.stages[i];
      if (!is_product(stage)) continue;
      const Expr width = stage.axes[0].extent;
      const std::optional<Expr> end = ends[i] ? ends[i] : visible_sums(stage, rows_, height_);
      if (end) return HiddenColumns{rows_, height_, width, pitch_of(stage, rows_), *end};
    }
    return std::nullopt;
  }

  /// Of each stage that does nothing behind the columns that a block sees, where these end: after
  /// whole registers, so that lanes meet the same terms as along the whole row.
  std::vector<std::optional<EarlyEnd>> ends_of_rows(
      const std::vector<std::optional<Expr>>& ends) const {
    std::vector<std::optional<EarlyEnd>> found(ends.size());
    const std::optional<HiddenColumns> hidden = hidden_columns(ends);
    if (!hidden) return found;
    const Expr width = hidden->width;
    const bool has_packs = sums_packs(kernel_, target_);
    const Expr end = sym::ceil_div(hidden->end, kPieceOfTerms) * kPieceOfTerms;
    const Expr last = columns_before(end, width, has_packs ? 1 : 0);  // sums of packs are not empty
    if (last == width || !can_end_early(width)) return found;
    const std::vector<std::optional<ColumnAxis>> axes = axes_that_end_early(kernel_, *hidden);
    for (size_t i = 0; i < axes.size(); ++i)
      if (axes[i]) found[i] = {*axes[i], last};
    return found;
  }

  /// Whether sums of packs along the columns can: in whole pieces, or with zeros behind their end.
  bool can_end_early(Expr width) const {
    return sym::known_divisible(width, kPieceOfTerms) ||
           std::ranges::all_of(kernel_.stages, [&](const Stage& stage) {
             return !is_product(stage) || !sums_packs(stage, target_) ||
                    stage.reduce_axes[0].extent != width || can_fill_packs(stage);
           });
  }

  void end_early(Stage& stage, EarlyEnd early, std::vector<Stage>& stages) {
    if (stage.kind == loop::StageKind::gather) return gather_early(stage, early, stages);
    if (!is_product(stage)) {
      const size_t number = stages.size();
      map(stage, std::nullopt, stages);
      Stage& made = stages[number];
      (early.axis.is_summed ? made.reduce_axes : made.axes).back().extent = early.end;
    } else if (early.axis.is_summed) {
      sum_early(stage, early.end, stages);
    } else {
      map(stage, early.end, stages);
    }
  }

  /// The sums get what is left of them at their end.
  void sum_early(Stage& stage, Expr end, std::vector<Stage>& stages) {
    ProductBlock block = block_of(stage);
    Axis& terms = stage.reduce_axes[0];
    const bool has_packs = sums_packs(stage, target_);
    const bool is_filled = has_packs && !sym::known_divisible(end, kPieceOfTerms);
    block.length = at_most(terms.extent);
    if (is_filled) block.length = sym::ceil_div(*block.length, kPieceOfTerms) * kPieceOfTerms;
    const Axis rest{pool_.symbols().index("r", terms.extent), terms.extent - end};
    const Val right = loop::substituted(pool_, stage.reductions[0].inputs[1 - block.left],
                                        {{terms.index, end + rest.index}});
    const Val zero = zeros_times(kernel_, right, rest, block.columns, target_, stages);
    const Val own = pool_.local(stage.reductions[0].first_local, zero->dtype);
    const Val whole = pool_.binary(loop::Opcode::add, own, zero);
    replace_locals(pool_, stage.after, {{own->slot, whole}});
    terms.extent = end;
    if (has_packs) is_filled ? fill_packs(kernel_, stage) : in_pieces(kernel_, stage);
    add_product(stage, block, stages);
  }

  /// Results behind the end are sums of products with zero, of all rows of the block the same.
  void gather_early(const Stage& gather, EarlyEnd early, std::vector<Stage>& stages) {
    const size_t n = early.axis.number;
    Stage sums = sums_of_rows(gather);
    ProductBlock block = gathered(sums);
    const Axis terms{pool_.symbols().index("r", height_), rows_.extent};
    const size_t factor = n == 0 ? 1 - block.left : block.left;
    const Val other = loop::substituted(pool_, sums.reductions[0].inputs[factor],
                                        {{sums.reduce_axes[0].index, terms.index}});
    const Val zero = zeros_times(kernel_, other, terms, sums.axes[1 - n], target_, stages);
    Stage rest;
    rest.body = sums.after;
    replace_locals(pool_, rest.body, {{sums.reductions[0].first_local, zero}});
    sym::Substitution map;
    for (const Axis& axis : sums.axes) {
      rest.axes.push_back({pool_.symbols().index("y", axis.extent), axis.extent});
      map.emplace_back(axis.index, rest.axes.back().index);
    }
    map[n].second = early.end + rest.axes[n].index;
    rest.axes[n].extent = rest.axes[n].extent - early.end;
    loop::substitute(kernel_, rest, map);
    make_vector(rest.axes.back(), rest, target_, false);
    stages.push_back(std::move(rest));
    (n == 0 ? block.rows : block.columns).extent = early.end;
    add_product(sums, block, stages);
  }

  void add_product(Stage& stage, ProductBlock block, std::vector<Stage>& stages) {
    block.walks_parts = sums_in_parts(stage, target_);
    std::vector<Stage> made = map_product_stage(kernel_, stage, block, target_);
    std::move(made.begin(), made.end(), std::back_inserter(stages));
  }

  void map(Stage& stage, std::optional<Expr> end, std::vector<Stage>& stages) {
    if (is_product(stage)) {
      if (lacks_packs(stage, target_)) fill_packs(kernel_, stage);
      ProductBlock block = block_of(stage);
      if (end) block.columns.extent = columns_before(*end, block.columns.extent);
      return add_product(stage, block, stages);
    }
    if (stage.kind == loop::StageKind::gather) {
      Stage sums = sums_of_rows(stage);
      return add_product(sums, gathered(sums), stages);
    }
    map_row_stage(stage, target_);
    stage.axes.insert(stage.axes.begin(), rows_);
    std::optional<Stage> ends;
    if (rows_.extent != Expr(1) && has_dear_end(stage)) ends = ends_of_all_rows(stage);
    stages.push_back(std::move(stage));
    if (ends) stages.push_back(*std::move(ends));
  }

  /// A row's end, done behind the last row with rows in lanes: what each comes to waits in scratch.
  Stage ends_of_all_rows(Stage& stage) {
    const int32_t local = stage.reductions[0].first_local;
    const DType dtype = stage.reductions[0].inputs[0]->dtype;
    const auto slot = static_cast<int32_t>(kernel_.buffers.size());
    kernel_.buffers.push_back({dtype, loop::Access::scratch, height_, true, ""});
    Stage ends;
    ends.axes = {rows_};
    ends.body = std::move(stage.after);
    replace_locals(pool_, ends.body, {{local, pool_.load(slot, dtype, rows_.index)}});
    stage.after = {{slot, rows_.index, pool_.local(local, dtype), false}};
    make_vector(ends.axes.back(), ends, target_, false);
    return ends;
  }

  /// The block's rows are summed instead of one, and added to the sums of earlier blocks.
  Stage sums_of_rows(const Stage& gather) {
    const Val step = gather.body[0].value;  // an fma
    const int32_t local = kernel_.locals++;
    const Axis sum{pool_.symbols().index("r", height_), rows_.extent};
    Stage sums;
    sums.axes = gather.axes;
    sums.reduce_axes = {sum};
    sums.reductions = {{loop::Combiner::dot, {step->args[0], step->args[1]}, local}};
    loop::Store store = gather.body[0];
    store.value = pool_.local(local, step->dtype);
    const Axis& blocks = kernel_.outer.back();
    if (blocks.extent != Expr(1)) {
      const Val is_first =
          pool_.binary(loop::Opcode::eq, pool_.index(blocks.index), pool_.index(0));
      const Val before = pool_.load(store.buffer, step->dtype, store.index);
      store.value =
          pool_.select(is_first, store.value, pool_.binary(loop::Opcode::add, before, store.value));
    }
    sums.after = {store};
    loop::substitute(kernel_, sums, {{rows_.index, sum.index}});
    return sums;
  }

  /// What no piece is longer than.
  Expr at_most(Expr extent) const {
    return pieces_ && extent == pieces_->length ? pieces_->longest : extent;
  }

  ProductBlock gathered(const Stage& sums) const {
    ProductBlock block;
    block.rows = sums.axes[0];
    block.columns = sums.axes[1];
    block.height = at_most(block.rows.extent);
    block.width = at_most(block.columns.extent);
    block.length = height_;
    block.left = walks(sums.reductions[0].inputs[0], block.columns.index) ? 1 : 0;
    return block;
  }

  ProductBlock block_of(const Stage& stage) const {
    ProductBlock block;
    block.rows = rows_;
    block.columns = stage.axes[0];
    block.height = height_;
    block.width = at_most(stage.axes[0].extent);
    if (pieces_) block.length = at_most(length_of(stage));
    block.visible = visible_sums(stage, rows_, height_);
    std::vector<Val> first{stage.reductions[0].inputs[0]};
    for (Val part : loop::reachable(first))
      if (sym::depends_on(part->index, block.columns.index)) block.left = 1;
    return block;
  }

  Kernel& kernel_;
  loop::ScalarPool& pool_;
  const Target& target_;
  Axis rows_;
  Expr height_;
  std::optional<ColumnPieces> pieces_;
};

/// Rows of blocks, with register tiles that are so high.
class BlockHeight {
 public:
  BlockHeight(int64_t tile, int64_t busy_rows) : tile_(tile), busy_rows_(busy_rows) {}

  /// At least `fewest` and less than a tile more: what takes least; of equals equal blocks, then
  /// whole tiles, then the least, so that blocks are even.
  int64_t best(int64_t count, int64_t fewest) const {
    int64_t best = fewest;
    for (int64_t height = fewest + 1; height < fewest + tile_; ++height) {
      const int64_t gained = rows_taken(count, best) - rows_taken(count, height);
      const bool is_whole = height % tile_ == 0 && count % best != 0;
      if (gained > 0 || (gained == 0 && is_whole)) best = height;
    }
    return best;
  }

 private:
  /// The time of all blocks in rows of whole tiles. Where blocks leave different numbers of rows,
  /// all have code for both.
  int64_t rows_taken(int64_t count, int64_t height) const {
    const int64_t last = count % height;
    const uint64_t left = uint64_t{1} << height % tile_ | uint64_t{1} << last % tile_;
    const std::optional<int64_t> extent = last == 0 ? std::optional(height) : std::nullopt;
    const loop::RowTiles tiles = loop::row_tiles(static_cast<int>(tile_), left, extent);
    const int64_t behind = last > 0 ? rows_taken(tiles, last) : 0;
    return count / height * rows_taken(tiles, height) + behind;
  }

  int64_t rows_taken(const loop::RowTiles& tiles, int64_t rows) const {
    int64_t left = tiles.left(rows);
    int64_t taken = rows - left;
    for (const int height : tiles.behind) {
      taken += left / height * std::max<int64_t>(height, busy_rows_);
      left %= height;
    }
    return taken;
  }

  int64_t tile_;
  int64_t busy_rows_;
};

}  // namespace

int64_t rows_of_block(std::span<const Expr> rows, int64_t row_bytes, bool gathers,
                      const Target& target) {
  const Tuning::Chains& tuning = target.tuning.chains;
  const int64_t tile = choose_tile(target, INT64_MAX, size_of(DType::f32)).tile_rows;
  const int64_t fewest = gathers ? tuning.fewest_gathering_rows : tuning.fewest_rows;
  const int64_t most = std::clamp(target.l2_bytes / 4 / row_bytes, fewest, tuning.most_rows);
  int64_t others = gathers ? tuning.enough_tasks : 1;  // blocks are no tasks there
  for (size_t i = 0; i + 1 < rows.size(); ++i)
    others *= std::max<int64_t>(1, rows[i].constant().value_or(tuning.enough_tasks));
  const std::optional<int64_t> count = rows.back().constant();
  if (!count) return most / tile * tile;
  int64_t blocks = ceil_div(*count, most);
  while (others * blocks < tuning.enough_tasks && ceil_div(*count, blocks) > tuning.fewest_rows)
    ++blocks;
  if (blocks == 1) return *count;
  return BlockHeight(tile, target.tuning.products.busy_rows).best(*count, ceil_div(*count, blocks));
}

Misfit map_chain(Kernel& kernel, const Target& target) {
  if (kernel.stages.size() > 1)
    for (Stage& stage : kernel.stages) merge_panels(kernel, stage);
  const bool has_product = std::any_of(kernel.stages.begin(), kernel.stages.end(), is_product);
  if (kernel.stages.size() < 2 || !has_product) return "it is no chain of products";
  if (has_footprint(kernel)) return "its first stage is a footprint";
  ChainMapper(kernel, target).run();
  return nullptr;
}

}  // namespace tandem::schedule
