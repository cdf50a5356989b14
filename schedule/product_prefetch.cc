// The right factor of a large product comes from beyond the second-level cache, and in pieces that
// a processor does not see coming: each row of it is as far from the next one as the matrix is
// wide. What is needed soon is asked for, where addresses are cheap: by copies, some rows ahead, or
// by the steps of the sums, a line of the next columns each.
#include "schedule/product_prefetch.h"

#include <algorithm>
#include <bit>

#include "schedule/axes.h"
#include "schedule/map.h"
#include "schedule/product_axes.h"

namespace tandem::schedule {

using loop::Axis;
using loop::Val;
using sym::Expr;

Expr linear_position(const std::vector<Axis>& axes) {
  Expr at = 0;
  for (const Axis& axis : axes) at = at * axis.extent + axis.index;
  return at;
}

namespace {

constexpr int64_t kLineBytes = 64;  // of the cache

/// The inverse of `linear_position`.
sym::Substitution at_position(const std::vector<Axis>& axes, Expr position) {
  sym::Substitution map;
  for (size_t i = axes.size(); i-- > 0;) {
    map.emplace_back(axes[i].index, i == 0 ? position : sym::mod(position, axes[i].extent));
    position = sym::floor_div(position, axes[i].extent);
  }
  return map;
}

}  // namespace

void ask_for_columns(const ProductTiles& tiles, Val right) {
  const std::vector<Axis>& terms = tiles.stage.reduce_axes;
  const std::optional<int64_t> length = tiles.length;
  const int64_t row_tiles = tiles.height.value_or(0) / tiles.tile_rows;
  if (!is_plain_load(right) || !tiles.width || row_tiles == 0 || !length) return;
  const int64_t width = *tiles.width;
  const bool crosses = runs_along(right, terms.back().index, tiles.columns.index);
  if (!crosses && !runs_along(right, tiles.columns.index, tiles.columns.index)) return;
  const int64_t tile_count = ceil_div(width, tiles.lanes) * row_tiles;
  const Expr tile = tiles.tile * row_tiles + sym::floor_div(tiles.rows.index, tiles.tile_rows);
  const int64_t share = ceil_div(width * *length, tile_count);
  if (share == 0) return;
  const int64_t steps =
      std::bit_floor(static_cast<uint64_t>(std::max<int64_t>(1, *length / share)));
  const Expr step = linear_position(terms);
  const Expr element =
      tile * share + (steps > 1 ? sym::floor_div(step, steps) : step * ceil_div(share, *length));
  const Expr inner = crosses ? *length : width;
  const Expr along = sym::mod(element, inner);
  const Expr across = sym::floor_div(element, inner);
  sym::Substitution map = at_position(terms, crosses ? along : across);
  map.emplace_back(tiles.columns.index, width + (crosses ? across : along));
  tiles.stage.prefetches.push_back({right->slot, sym::substitute(right->index, map)});
}

void ask_for_next_part(const ProductTiles& tiles, Val right, const PartOfSum& part) {
  const Axis& term = tiles.stage.reduce_axes.back();
  const int64_t length = tiles.length.value_or(0);
  const int64_t width = tiles.width.value_or(0);
  const int64_t row_tiles = tiles.height.value_or(0) / tiles.tile_rows;
  const int64_t line = kLineBytes / size_of(right->dtype);
  if (!is_plain_load(right) || row_tiles == 0 || length < line || width < line) return;
  const bool crosses = runs_along(right, term.index, tiles.columns.index);
  if (!crosses && !runs_along(right, tiles.columns.index, tiles.columns.index)) return;
  // Of a row of memory. A power of two, so that no step divides; what is asked for beyond the part
  // is the one behind.
  const int64_t lines = static_cast<int64_t>(
      std::bit_ceil(static_cast<uint64_t>(ceil_div(crosses ? length : width, line))));
  const int64_t share =
      ceil_div((crosses ? width : length) * lines, ceil_div(width, tiles.lanes) * row_tiles);
  if (share > length) return;
  const int64_t steps = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(length / share)));
  const Expr tile = tiles.tile * row_tiles + sym::floor_div(tiles.rows.index, tiles.tile_rows);
  const Expr number = tile * share + sym::floor_div(term.index, steps);
  const Expr along = sym::mod(number, lines) * line;
  const Expr across = sym::floor_div(number, lines);
  // The last part asks for the first one of the next block of columns.
  const sym::Substitution next{
      {tiles.columns.index, (crosses ? across : along) + part.is_last * width},
      {term.index, crosses ? along : across},
      {part.number.index, sym::mod(part.number.index + 1, part.number.extent)}};
  tiles.stage.prefetches.push_back({right->slot, sym::substitute(right->index, next)});
}

void ask_for_panel(const ProductTiles& tiles, Val right) {
  const std::vector<Axis>& terms = tiles.stage.reduce_axes;
  const int64_t length = tiles.length.value_or(0);
  const int64_t row_tiles = tiles.height.value_or(0) / tiles.tile_rows;
  const int64_t line = kLineBytes / size_of(right->dtype);
  if (row_tiles == 0 || length == 0) return;
  const int64_t share = ceil_div(length * tiles.lanes, line * row_tiles);
  if (share > length) return;
  sym::Substitution start{{tiles.columns.index, (tiles.tile + 1) * tiles.lanes}};
  for (const Axis& axis : terms) start.emplace_back(axis.index, Expr(0));
  const Expr number = sym::floor_div(tiles.rows.index, tiles.tile_rows) * share +
                      sym::floor_div(linear_position(terms), length / share);
  const Expr next = sym::substitute(right->index, start);
  tiles.stage.prefetches.push_back({right->slot, next + number * line});
}

void ask_for_results(const ProductTiles& tiles, Expr position) {
  const loop::Store& store = tiles.stage.after[0];
  const std::optional<sym::Affine> along = sym::affine_in(store.index, position);
  const int64_t line = kLineBytes / size_of(store.value->dtype);
  const int64_t across = ceil_div(tiles.lanes, line);
  const int64_t most = tiles.length.value_or(0) / (across * tiles.tile_rows);
  const int64_t steps = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(most)));
  if (steps == 0 || !along || along->coefficient != Expr(1)) return;
  const Expr number = sym::floor_div(linear_position(tiles.stage.reduce_axes), steps);
  const Expr row = tiles.rows.index + sym::floor_div(number, across);
  const sym::Substitution at{{tiles.rows.index, row}, {position, sym::mod(number, across) * line}};
  tiles.stage.prefetches.push_back({store.buffer, sym::substitute(store.index, at)});
}

void ask_for_rows(loop::Kernel& kernel, const loop::Stage& sums, Val right, Axis& lanes,
                  const Tuning::Products& tuning) {
  if (!is_plain_load(right)) return;
  const std::optional<sym::Affine> terms = sym::affine_in(right->index, sums.reduce_axes[0].index);
  const int64_t stride = terms ? terms->coefficient.constant().value_or(0) : 0;
  const int64_t ahead = tuning.rows_ahead * stride * size_of(right->dtype);
  if (ahead <= 0 || ahead > tuning.farthest_ahead) return;
  lanes.ahead = ahead;
  lanes.streams = true;
  kernel.buffers[static_cast<size_t>(right->slot)].far = true;
}

}  // namespace tandem::schedule
