// How the rows of a register tile's axis are cut: what its mark means, for the code that spells it
// and for the schedule that prices it.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "loop/kernel.h"

namespace tandem::loop {

/// How many points of an axis are left behind whole steps of its lanes, where that is one number
/// above 0. Null where nothing is left, where it may be several numbers, and for steps of 64 or
/// more.
std::optional<int> only_remainder(const Axis& axis);

/// An axis of rows under register tiles: as many whole tiles as fit, and what is left behind them.
struct RowTiles {
  int height = 1;            // of a whole tile
  bool shares_last = false;  // the last whole one gives its rows to those behind
  std::vector<int> behind;   // their heights, the highest first: of each as many as fit

  /// Rows that whole tiles leave, of so many.
  int64_t left(int64_t rows) const { return rows % height + (shares_last ? height : 0); }
};

/// `remainders`: those that its extent may have, bit by bit (sym::possible_remainders).
RowTiles row_tiles(int height, uint64_t remainders, std::optional<int64_t> extent);
RowTiles row_tiles(const Axis& axis);

}  // namespace tandem::loop
