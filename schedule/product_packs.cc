// Problem: tile registers read the columns of a product in packs of two terms, and matrices hold
// them term by term or column by column. Approach: a copy in panels, two terms side by side. Rows
// of memory are interleaved; where memory runs along the terms, packs are turned as one element.
#include "schedule/product_packs.h"

#include <bit>

#include "schedule/map.h"
#include "schedule/product_axes.h"
#include "schedule/product_prefetch.h"

namespace tandem::schedule {

using loop::Axis;
using loop::AxisKind;
using loop::Stage;
using sym::Expr;

ColumnTiles cut_columns(sym::Pool& symbols, const Axis& columns, int lanes) {
  const Expr count = sym::ceil_div(columns.extent, Expr(lanes));
  ColumnTiles tiles;
  tiles.lanes = lanes;
  tiles.number = {symbols.index("y", count), count};
  Expr rest = columns.extent;
  if (count != Expr(1)) rest = sym::min(Expr(lanes), rest - tiles.number.index * lanes);
  const Expr extent = sym::known_divisible(columns.extent, lanes) ? Expr(lanes) : rest;
  tiles.position = {symbols.index("y", lanes), extent, AxisKind::vector, lanes};
  return tiles;
}

std::vector<Axis> fresh_axes(sym::Pool& symbols, const std::vector<Axis>& axes,
                             sym::Substitution& map) {
  std::vector<Axis> copies;
  for (const Axis& axis : axes) {
    copies.push_back({symbols.index("y", axis.extent), axis.extent});
    map.emplace_back(axis.index, copies.back().index);
  }
  return copies;
}

namespace {

Expr place_of_pack(const ColumnTiles& tiles, Expr panel, Expr pack, Expr number) {
  return tiles.number.index * panel + pack * (2 * tiles.lanes) + tiles.position.index * 2 + number;
}

}  // namespace

Expr place_in_packs(const ColumnTiles& tiles, Expr panel, Expr term) {
  return place_of_pack(tiles, panel, sym::floor_div(term, 2), sym::mod(term, 2));
}

Expr place_of_row_in_packs(const Panels& panels, Expr row, Expr term) {
  const Expr side = panels.lanes;
  return row * 2 + sym::floor_div(row, side) * (panels.panel - side * 2) +
         sym::floor_div(term, 2) * (side * 2) + sym::mod(term, 2);
}

Stage copy_packs(loop::Kernel& kernel, const Stage& sums, loop::Val right, const Axis& columns,
                 const Panels& to, const Target& target) {
  sym::Pool& symbols = kernel.scalars->symbols();
  const Axis& terms = sums.reduce_axes.back();
  const Expr packs = sym::floor_div(terms.extent, 2);
  ColumnTiles tiles = cut_columns(symbols, columns, to.lanes);
  sym::Substitution map{{columns.index, tiles.column()}};
  Stage stage;
  stage.axes = fresh_axes(symbols, {sums.reduce_axes.begin(), sums.reduce_axes.end() - 1}, map);
  Axis pack{symbols.index("y", packs), packs};
  const Axis number{symbols.index("y", 2), 2, AxisKind::interleave, 2};
  map.emplace_back(terms.index, pack.index * 2 + number.index);
  const Expr at = linear_position(stage.axes) * packs + pack.index;
  stage.body = {{to.buffer, place_of_pack(tiles, to.panel, at, number.index),
                 loop::substituted(*kernel.scalars, right, map), false}};
  const bool crosses = is_plain_load(right) && runs_along(right, terms.index, columns.index);
  if (!crosses) {
    stage.axes.insert(stage.axes.end(), {pack, tiles.number, tiles.position, number});
    return stage;
  }
  pack.kind = AxisKind::transpose;
  pack.lanes = target.lanes();
  tiles.position.lanes = target.lanes();
  stage.axes.insert(stage.axes.begin(), {tiles.number, tiles.position});
  stage.axes.insert(stage.axes.end(), {pack, number});
  return stage;
}

namespace {

/// Whole registers are copied, of a tile of 6 rows with two of the next one.
int64_t stored_rows(int rows) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<unsigned>(rows)));
}

}  // namespace

Expr row_panel(Expr terms, int rows, DType dtype) {
  constexpr int64_t kLineBytes = 64;
  return terms * stored_rows(rows) + kLineBytes / size_of(dtype);
}

/// row / side * panel + term * stored + row % side
Expr place_in_row_panels(const Panels& panels, Expr row, Expr term) {
  const Expr side = panels.lanes;
  return row + sym::floor_div(row, side) * (panels.panel - side) + term * stored_rows(panels.lanes);
}

Stage copy_row_panels(loop::Kernel& kernel, const Stage& sums, loop::Val left, const Axis& rows,
                      const Panels& to) {
  sym::Pool& symbols = kernel.scalars->symbols();
  const int64_t stored = stored_rows(to.lanes);
  const Expr count = sym::ceil_div(rows.extent, Expr(to.lanes));
  const Axis number{symbols.index("y", count), count};
  const bool is_whole = stored == to.lanes && sym::known_divisible(rows.extent, stored);
  const Expr rest = rows.extent - number.index * to.lanes;
  const Axis position{symbols.index("y", stored), is_whole ? Expr(stored) : sym::min(stored, rest),
                      AxisKind::vector, static_cast<int>(stored)};
  sym::Substitution map{{rows.index, number.index * to.lanes + position.index}};
  Stage stage;
  stage.axes = fresh_axes(symbols, sums.reduce_axes, map);
  const Expr at = number.index * to.panel + linear_position(stage.axes) * stored;
  stage.body = {
      {to.buffer, at + position.index, loop::substituted(*kernel.scalars, left, map), false}};
  stage.axes.insert(stage.axes.end(), {number, position});
  return stage;
}

}  // namespace tandem::schedule
