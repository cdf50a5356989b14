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
using loop::Kernel;
using loop::Stage;
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

int64_t pow2_at_least(int64_t count) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(count)));
}

/// 0 of 0.
int64_t pow2_at_most(int64_t count) {
  return static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(count)));
}

bool has_row_tiles(const ProductTiles& tiles) {
  return tiles.height >= tiles.tile_rows && tiles.length.value_or(0) > 0;
}

/// Of so many lines for the tiles of rows of a panel: those that a step of a tile's sums asks for.
/// Shares are rounded up, and steps go over them by a shift.
std::vector<Expr> lines_of_step(const ProductTiles& tiles, int64_t lines, int64_t length) {
  const int64_t row_tiles = tiles.height / tiles.tile_rows;
  const int64_t share = ceil_div(lines, row_tiles);
  const int64_t steps = std::max<int64_t>(1, length / tiles.terms_of_step);
  const Expr step = sym::floor_div(linear_position(tiles.stage.reduce_axes), tiles.terms_of_step);
  const Expr first = sym::floor_div(tiles.rows.index, tiles.tile_rows) * share;
  if (share <= steps) return {first + sym::floor_div(step, pow2_at_most(steps / share))};
  const int64_t each = ceil_div(share, steps);
  std::vector<Expr> numbers;
  for (int64_t i = 0; i < each; ++i) numbers.push_back(first + step * each + i);
  return numbers;
}

/// Asks for a panel that is one piece of memory, from its first term of that column on.
void ask_for_piece(const ProductTiles& tiles, Val right, Expr column, int64_t length) {
  const int64_t line = kLineBytes / size_of(right->dtype);
  sym::Substitution start{{tiles.columns.index, column}};
  for (const Axis& axis : tiles.stage.reduce_axes) start.emplace_back(axis.index, Expr(0));
  const Expr piece = sym::substitute(right->index, start);
  for (const Expr number : lines_of_step(tiles, ceil_div(length * tiles.lanes, line), length))
    tiles.stage.prefetches.push_back({right->slot, piece + number * line});
}

/// Whether columns lie behind one another.
bool is_one_piece(Val right, Expr column, int64_t length) {
  const std::optional<sym::Affine> columns = sym::affine_in(right->index, column);
  return columns && columns->coefficient == Expr(length);
}

bool asks_at_each(const Stage& sums, const sym::Substitution& map, Expr step) {
  return std::ranges::any_of(sums.prefetches, [&](const loop::Prefetch& hint) {
    return sym::depends_on(sym::substitute(hint.index, map), step);
  });
}

}  // namespace

void ask_for_columns(const ProductTiles& tiles, Val right, const std::optional<PartOfSum>& part,
                     int64_t tasks) {
  const std::vector<Axis>& terms = tiles.stage.reduce_axes;
  const int64_t length = tiles.length.value_or(0);
  const int64_t line = kLineBytes / size_of(right->dtype);
  if (!is_plain_load(right) || !tiles.width || !has_row_tiles(tiles)) return;
  const bool crosses = runs_along(right, terms.back().index, tiles.columns.index);
  if (!crosses && !runs_along(right, tiles.columns.index, tiles.columns.index)) return;
  const Expr column =
      tiles.tile * tiles.lanes + (part ? part->is_last : Expr(1)) * *tiles.width * tasks;
  if (crosses && !part && is_one_piece(right, tiles.columns.index, length))
    return ask_for_piece(tiles, right, column, length);
  // A panel's rows of memory are its columns or its terms: so many lines of each, by a power of
  // two, so that no step divides.
  const int64_t outer = crosses ? tiles.lanes : length;
  const int64_t inner = pow2_at_least(ceil_div(crosses ? length : tiles.lanes, line));
  for (const Expr number : lines_of_step(tiles, inner * outer, length)) {
    const Expr along = sym::mod(number, inner) * line;
    const Expr across = sym::floor_div(number, inner);
    sym::Substitution next = at_position(terms, crosses ? along : across);
    // The last part asks for the first one of the next block of columns.
    next.emplace_back(tiles.columns.index, column + (crosses ? across : along));
    if (part)
      next.emplace_back(part->number.index, sym::mod(part->number.index + 1, part->number.extent));
    tiles.stage.prefetches.push_back({right->slot, sym::substitute(right->index, next)});
  }
}

void ask_ahead(const ProductTiles& tiles, Val right, ReadOnce how, int64_t ahead) {
  const Val load = is_widened_load(right) ? right->args[0] : right;
  const int64_t bytes = size_of(load->dtype);
  const int64_t length = tiles.length.value_or(0);
  if (length == 0) return;
  if (how == ReadOnce::copied) {
    const int64_t tasks = 1 + ceil_div(ahead, tiles.lanes * length * bytes);
    return ask_for_columns(tiles, load, std::nullopt, tasks);
  }
  const int64_t steps = ceil_div(ahead, tiles.lanes * bytes);
  if (steps >= length) return;
  const Expr term = tiles.stage.reduce_axes.back().index;
  for (int64_t lane = 0; lane < tiles.lanes; lane += kLineBytes / bytes) {
    const Expr column = tiles.tile * tiles.lanes + lane;
    const sym::Substitution at{{term, term + steps}, {tiles.columns.index, column}};
    tiles.stage.prefetches.push_back({load->slot, sym::substitute(load->index, at)});
  }
}

void ask_for_panel(const ProductTiles& tiles, Val right) {
  if (!has_row_tiles(tiles)) return;
  // More than a line a step: so few rows wait for memory anyway.
  const int64_t line = kLineBytes / size_of(right->dtype);
  if (tiles.lanes > line * (tiles.height / tiles.tile_rows)) return;
  ask_for_piece(tiles, right, (tiles.tile + 1) * tiles.lanes, *tiles.length);
}

void ask_for_results(const ProductTiles& tiles, Expr position) {
  const loop::Store& store = tiles.stage.after[0];
  const std::optional<sym::Affine> along = sym::affine_in(store.index, position);
  const int64_t line = kLineBytes / size_of(store.value->dtype);
  const int64_t across = ceil_div(tiles.lanes, line);
  const int64_t most = tiles.length.value_or(0) / (across * tiles.tile_rows);
  const int64_t steps = pow2_at_most(most);
  if (steps == 0 || !along || along->coefficient != Expr(1)) return;
  const Expr number = sym::floor_div(linear_position(tiles.stage.reduce_axes), steps);
  const Expr row = tiles.rows.index + sym::floor_div(number, across);
  const sym::Substitution at{{tiles.rows.index, row}, {position, sym::mod(number, across) * line}};
  tiles.stage.prefetches.push_back({store.buffer, sym::substitute(store.index, at)});
}

void ask_between_steps(Kernel& kernel, Stage& sums, const Target& target) {
  // Registers twice as long are multiplied in the time of an address.
  if (target.isa == Isa::avx512 || sums.prefetches.empty() || sums.reduce_axes.empty()) return;
  sym::Pool& symbols = kernel.scalars->symbols();
  const Axis terms = sums.reduce_axes.back();
  for (int64_t steps = target.tuning.products.steps_asking_once; steps > 1; steps /= 2) {
    if (!sym::known_divisible(terms.extent, steps)) continue;
    const Expr rounds = sym::floor_div(terms.extent, steps);
    const Axis outer{symbols.index("r", rounds), rounds};
    const Axis inner{symbols.index("r", steps), steps};
    const sym::Substitution map{{terms.index, outer.index * steps + inner.index}};
    if (asks_at_each(sums, map, inner.index)) continue;
    loop::substitute(kernel, sums, map);
    sums.reduce_axes.back() = outer;
    sums.reduce_axes.push_back(inner);
    sums.reduce_axes.back().steps = loop::Steps::kept;
    return;
  }
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
