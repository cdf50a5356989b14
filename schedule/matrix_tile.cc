// Problem: a tile register takes 16 packs of a row at once, and sums are not multiples of 16.
// Approach: as many packs a step as leave no rest (12 of 36, 7 of 49), so that nothing is padded. A
// step of fewer packs is no cheaper: where they would be few, vector registers stay.
#include "schedule/matrix_tile.h"

#include "loop/matrix.h"
#include "schedule/axes.h"
#include "schedule/map.h"

namespace tandem::schedule {
namespace {

using loop::Axis;
using loop::AxisKind;
using loop::Stage;
using loop::Val;
using sym::Expr;

/// Packs of one step of a sum of `length`; 0 where they would be too few.
int64_t packs_of_step(int64_t length) {
  constexpr int64_t kFewest = 4;
  for (int64_t packs = loop::kMatrixTile; packs >= kFewest; --packs)
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

bool suits_matrix(const Stage& stage, int64_t height, const Target& target) {
  const std::optional<int64_t> length = length_of(stage).constant();
  return target.multiplies_tiles() && stage.reductions[0].combiner == loop::Combiner::dot4 &&
         length && *length > 0 && packs_of_step(*length) > 0 &&
         height >= target.tuning.products.fewest_matrix_rows;
}

void mark_matrix(loop::Kernel& kernel, Stage& stage) {
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

void ask_for_next_panel(loop::Kernel& kernel, Stage& stage, Expr number, int64_t height) {
  constexpr int64_t kLine = 16;         // packs of a line of the cache
  constexpr int64_t kMostOfAStep = 32;  // more would wait for one another
  const Axis& rows = stage.axes.back();
  const Axis& lanes = stage.axes[stage.axes.size() - 2];
  const Axis& terms = stage.reduce_axes.back();
  const int64_t tiles = height / loop::kMostMatrix;
  if (rows.kind != AxisKind::matrix || tiles == 0) return;
  const Val columns = loop::matrix_product(kernel, stage).product.columns;
  if (!sym::depends_on(columns->index, number)) return;
  // A step reads so many lines of a panel, which the tiles of rows ask for in turn.
  const int64_t lines = static_cast<int64_t>(terms.lanes) * lanes.lanes / kLine;
  const int64_t share = ceil_div(lines, tiles);
  if (share > kMostOfAStep) return;
  const Expr next = sym::substitute(columns->index, {{number, number + 1}, {lanes.index, 0}});
  const Expr first = sym::floor_div(rows.index, rows.lanes) * share;
  for (int64_t i = 0; i < share; ++i)
    stage.prefetches.push_back({columns->slot, next + (first + i) * kLine});
}

}  // namespace tandem::schedule
