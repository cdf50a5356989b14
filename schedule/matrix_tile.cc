// Problem: a tile register takes 16 packs of a row at once, and sums are not multiples of 16.
// Approach: as many packs a step as leave no rest (12 of 36, 7 of 49), so that nothing is padded. A
// step of fewer packs is no cheaper: where they would be few, vector registers stay.
#include "schedule/matrix_tile.h"

#include <algorithm>

#include "loop/matrix.h"
#include "schedule/axes.h"
#include "schedule/map.h"
#include "schedule/product_axes.h"

namespace tandem::schedule {
namespace {

using loop::Axis;
using loop::AxisKind;
using loop::Stage;
using loop::Val;
using sym::Expr;

/// Packs of one step of a sum of `length`; 0 where they would be too few.
int64_t packs_of_step(int64_t length) {
  for (int64_t packs = loop::kMatrixTile; packs >= Tuning::Fixed::kFewestPacks; --packs)
    if (length % packs == 0) return packs;
  return 0;
}

void merge_terms(loop::Kernel& kernel, Stage& stage) {
  std::vector<Axis>& terms = stage.reduce_axes;
  for (size_t i = terms.size(); i-- > 1;) {
    std::vector<Expr> indices;
    for (const loop::Val part : loop::reachable(stage.reductions[0].inputs))
      indices.push_back(part->index);
    if (!walks_as_one(indices, terms[i - 1], terms[i])) return;
    merge_with_next(kernel, terms, i - 1);
  }
}

}  // namespace

bool fills_tiles(const std::vector<Axis>& terms) {
  if (terms.empty()) return false;
  for (const Axis& axis : terms)
    if (!sym::known_le(1, axis.extent)) return false;
  const int64_t length = terms.back().extent.constant().value_or(1);
  return length % 2 == 0 && packs_of_step(length / 2) > 0;
}

bool suits_bf16_matrix(const Stage& stage, int64_t height, const Target& target) {
  return target.multiplies_bf16_tiles() && loop::multiplies_bf16(stage) &&
         fills_tiles(stage.reduce_axes) && height >= target.tuning.products.fewest_matrix_rows;
}

bool comes_in_bf16_packs(const Stage& stage, const Target& target) {
  const std::vector<Axis>& terms = stage.reduce_axes;
  return target.multiplies_bf16() && loop::multiplies_bf16(stage) && !terms.empty() &&
         sym::known_divisible(terms.back().extent, 2);
}

bool comes_in_bf16_words(const Stage& stage, const Target& target) {
  if (stage.reduce_axes.size() != 1 || !comes_in_bf16_packs(stage, target)) return false;
  const Expr terms = stage.reduce_axes[0].index;
  return std::ranges::all_of(stage.reductions[0].inputs, [&](Val input) {
    const Val factor = is_widened_load(input) ? input->args[0] : input;
    if (!is_plain_load(factor)) return false;
    const std::optional<sym::Affine> along = sym::affine_in(factor->index, terms);
    return along && along->coefficient == Expr(1) && sym::known_divisible(along->rest, 2);
  });
}

bool suits_bf16_packs(const Stage& stage, const Target& target) {
  return !target.multiplies_bf16_tiles() && comes_in_bf16_packs(stage, target);
}

void sum_packs(loop::Kernel& kernel, Stage& stage) {
  loop::ScalarPool& pool = *kernel.scalars;
  Axis& terms = stage.reduce_axes.back();
  const Expr packs = sym::floor_div(terms.extent, 2);
  const Axis pack{pool.symbols().index("r", packs), packs};
  loop::substitute(kernel, stage, {{terms.index, pack.index * 2}});
  loop::Reduction& sum = stage.reductions[0];
  for (Val& input : sum.inputs) {
    const Val first = loop::before_cast(input);
    const Val word = pool.load(first->slot, DType::i32, sym::floor_div(first->index, 2));
    input = pool.bitcast(word, DType::f32);
  }
  sum.combiner = loop::Combiner::dot_bf16;
  terms = pack;
}

bool suits_matrix(const Stage& stage, int64_t height, const Target& target) {
  const std::optional<int64_t> length = length_of(stage).constant();
  return target.multiplies_tiles() && stage.reductions[0].combiner == loop::Combiner::dot4 &&
         length && *length > 0 && packs_of_step(*length) > 0 &&
         height >= target.tuning.products.fewest_matrix_rows;
}

namespace {

/// sum over k of a[k] b[k] = sum over i < 2 of sum over p of a[2 p + i] b[2 p + i].
void split_packs(loop::Kernel& kernel, Stage& stage) {
  sym::Pool& symbols = kernel.scalars->symbols();
  Axis& terms = stage.reduce_axes.back();
  const Expr packs = sym::floor_div(terms.extent, 2);
  const Axis number{symbols.index("r", 2), 2};
  const Axis pack{symbols.index("r", packs), packs};
  loop::substitute(kernel, stage, {{terms.index, pack.index * 2 + number.index}});
  terms = pack;
  stage.reduce_axes.insert(stage.reduce_axes.begin(), number);
}

}  // namespace

void mark_matrix(loop::Kernel& kernel, Stage& stage) {
  if (loop::multiplies_bf16(stage))
    split_packs(kernel, stage);
  else
    merge_terms(kernel, stage);
  Axis& terms = stage.reduce_axes.back();
  const int64_t packs = packs_of_step(terms.extent.constant().value_or(1));
  if (packs == 0 || !loop::matrix_product(kernel, stage).problem.empty()) return;
  stage.axes.back().kind = AxisKind::matrix;
  stage.axes.back().lanes = loop::kMostMatrix;
  terms.kind = AxisKind::matrix;
  terms.lanes = static_cast<int>(packs);
}

void mark_lines(loop::Kernel& kernel, Stage& stage) {
  if (stage.axes.size() < 3 || stage.axes.back().kind != AxisKind::matrix) return;
  Axis& lines = stage.axes[stage.axes.size() - 2];
  const int64_t width = stage.axes.back().extent.constant().value_or(0);
  const int64_t pitch = loop::matrix_product(kernel, stage).product.pitch;
  if (lines.kind != AxisKind::serial || lines.extent == Expr(1) || pitch == 0) return;
  // Rows that the tiles of a line take, if each line has tiles of its own: at a pitch of as many,
  // no more tiles are needed over the ends of lines, and pairs of them read the columns once for
  // both.
  const int64_t apart = ceil_div(width, loop::kMatrixTile) * loop::kMatrixTile;
  if (pitch > apart) return;
  lines.kind = AxisKind::matrix;
  lines.lanes = 1;
}

void add_spare_rows(loop::Kernel& kernel, const Stage& stage) {
  if (stage.axes.empty() || stage.axes.back().kind != AxisKind::matrix) return;
  const loop::MatrixProduct product = loop::matrix_product(kernel, stage).product;
  loop::Buffer& buffer = kernel.buffers[static_cast<size_t>(product.rows->slot)];
  const std::optional<int64_t> height = stage.axes.back().extent.constant();
  const bool has_rest = !height || *height % stage.axes.back().lanes != 0;
  if (buffer.access != loop::Access::scratch || !has_rest) return;
  buffer.elements = buffer.elements + product.row_stride * (loop::kMostMatrix - 1);
}

namespace {

constexpr int64_t kLineBytes = 64;  // of the cache

}  // namespace

void ask_for_next_panel(loop::Kernel& kernel, Stage& stage, Expr number, int64_t height,
                        const Tuning::Products& tuning) {
  const Axis& rows = stage.axes.back();
  const Axis& lanes = stage.axes[stage.axes.size() - 2];
  const Axis& terms = stage.reduce_axes.back();
  const int64_t tiles = height / loop::kMostMatrix;
  if (rows.kind != AxisKind::matrix || tiles == 0) return;
  const Val columns = loop::matrix_product(kernel, stage).product.columns;
  if (!sym::depends_on(columns->index, number)) return;
  // A step reads so many lines of a panel, which the tiles of rows ask for in turn.
  const int64_t lines = static_cast<int64_t>(terms.lanes) * lanes.lanes * 4 / kLineBytes;
  const int64_t share = ceil_div(lines, tiles);
  if (share > tuning.lines_asked) return;
  const Expr next = sym::substitute(columns->index, {{number, number + 1}, {lanes.index, 0}});
  const Expr first = sym::floor_div(rows.index, rows.lanes) * share;
  const int64_t line = kLineBytes / size_of(columns->dtype);
  for (int64_t i = 0; i < share; ++i)
    stage.prefetches.push_back({columns->slot, next + (first + i) * line});
}

void ask_for_next_block(Stage& stage, const BlockOfColumns& block, Expr number,
                        const Tuning::Products& tuning) {
  const Axis& rows = stage.axes.back();
  const Axis& terms = stage.reduce_axes.back();
  const int64_t down = block.height / loop::kMostMatrix;
  const int64_t length = terms.extent.constant().value_or(0) * 4 / size_of(block.right->dtype);
  if (rows.kind != AxisKind::matrix || down == 0 || length == 0) return;
  const int64_t tiles = ceil_div(block.width, stage.axes[stage.axes.size() - 2].lanes) * down;
  const int64_t steps = *terms.extent.constant() / terms.lanes;
  const int64_t line = kLineBytes / size_of(block.right->dtype);
  // Lines of the block lie behind one another, row by row of memory, for tile by tile and step by
  // step.
  const int64_t inner = ceil_div(block.crosses ? length : block.width, line);
  const int64_t outer = block.crosses ? block.width : length;
  const int64_t share = ceil_div(inner * outer, tiles * steps);
  if (share > tuning.lines_asked) return;
  const Expr tile = number * down + sym::floor_div(rows.index, rows.lanes);
  const Expr step = sym::floor_div(terms.index, terms.lanes);
  for (int64_t i = 0; i < share; ++i) {
    const Expr at = (tile * steps + step) * share + i;
    const Expr along = sym::mod(at, inner) * line;
    const Expr across = sym::floor_div(at, inner);
    const sym::Substitution map{{block.column, block.width + (block.crosses ? across : along)},
                                {block.term, block.crosses ? along : across}};
    stage.prefetches.push_back({block.right->slot, sym::substitute(block.right->index, map)});
  }
}

}  // namespace tandem::schedule
