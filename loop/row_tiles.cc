// Rows are seldom a multiple of a register tile's height, and a low tile takes as long as one of
// four rows, since it waits for its own sums. Where one number of rows may be left, one tile has
// that many; where these are fewer than half a tile and the extent is known, the last whole tile
// shares its rows with them. Where several numbers may be left there is a tile for each bit of
// them: code for others would never run.
#include "loop/row_tiles.h"

#include <algorithm>
#include <bit>

namespace tandem::loop {
namespace {

constexpr int64_t kMostRemainders = 63;  // a divisor of sym::possible_remainders, at most

/// Of a step of so many; all where nothing is known.
uint64_t remainders_of(const Axis& axis) {
  if (sym::known_divisible(axis.extent, axis.lanes)) return 1;
  if (axis.lanes > kMostRemainders) return ~uint64_t{0};
  return sym::possible_remainders(axis.extent, axis.lanes);
}

/// A height for each bit that one of these numbers of rows has.
std::vector<int> powers_in(uint64_t remainders, int height) {
  unsigned bits = 0;
  for (int rows = 1; rows < height; ++rows)
    if (rows > kMostRemainders || (remainders >> rows & 1) != 0)
      bits |= static_cast<unsigned>(rows);
  std::vector<int> heights;
  for (; bits != 0; bits &= ~std::bit_floor(bits))
    heights.push_back(static_cast<int>(std::bit_floor(bits)));
  return heights;
}

}  // namespace

std::optional<int> only_remainder(const Axis& axis) {
  const uint64_t left = remainders_of(axis) & ~uint64_t{1};
  return std::has_single_bit(left) ? std::optional(std::countr_zero(left)) : std::nullopt;
}

RowTiles row_tiles(int height, uint64_t remainders, std::optional<int64_t> extent) {
  RowTiles tiles;
  tiles.height = height;
  const uint64_t left = remainders & ~uint64_t{1};
  if (!std::has_single_bit(left)) {
    tiles.behind = powers_in(left, height);
    return tiles;
  }
  const int rows = std::countr_zero(left);
  tiles.shares_last = extent.value_or(0) > height && 2 * rows < height;
  tiles.behind = {rows};
  if (tiles.shares_last) tiles.behind = {(height + rows + 1) / 2, (height + rows) / 2};
  tiles.behind.erase(std::ranges::unique(tiles.behind).begin(), tiles.behind.end());
  return tiles;
}

RowTiles row_tiles(const Axis& axis) {
  return row_tiles(axis.lanes, remainders_of(axis), axis.extent.constant());
}

}  // namespace tandem::loop
