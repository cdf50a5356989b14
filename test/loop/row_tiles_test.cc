// Rows in register tiles: every row is in one, and low tiles are not left where rows can be shared.
#include "loop/row_tiles.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tandem::loop {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

Axis rows(sym::Expr extent, int height) {
  Axis axis;
  axis.extent = extent;
  axis.kind = AxisKind::unroll;
  axis.lanes = height;
  return axis;
}

int64_t rows_in_tiles(const RowTiles& tiles, int64_t rows) {
  int64_t left = tiles.left(rows);
  int64_t counted = rows - left;
  for (const int height : tiles.behind) {
    counted += left / height * height;
    left %= height;
  }
  EXPECT_EQ((rows - tiles.left(rows)) % tiles.height, 0);
  return counted;
}

TEST(RowTiles, HaveEveryRow) {
  for (int height = 1; height <= 16; ++height)
    for (int64_t extent = 1; extent <= 70; ++extent) {
      const RowTiles tiles = row_tiles(rows(sym::Expr(extent), height));
      EXPECT_EQ(rows_in_tiles(tiles, extent), extent) << height;
    }
}

TEST(RowTiles, HaveEveryRowOfAnyExtent) {
  sym::Pool pool;
  const sym::Expr size = pool.symbol("s0", {1, sym::Range::kMax});
  for (int height = 1; height <= 16; ++height) {
    const RowTiles tiles = row_tiles(rows(size, height));
    for (int64_t extent = 1; extent <= 70; ++extent)
      EXPECT_EQ(rows_in_tiles(tiles, extent), extent) << height;
  }
}

TEST(RowTiles, ShareTheLastWholeOneWithFewRows) {
  const RowTiles tiles = row_tiles(rows(sym::Expr(128), 6));
  EXPECT_TRUE(tiles.shares_last);
  EXPECT_THAT(tiles.behind, ElementsAre(4));
  EXPECT_THAT(row_tiles(rows(sym::Expr(127), 6)).behind, ElementsAre(4, 3));
}

TEST(RowTiles, AreOneOfWhatIsLeft) {
  EXPECT_THAT(row_tiles(rows(sym::Expr(197), 6)).behind, ElementsAre(5));
  EXPECT_THAT(row_tiles(rows(sym::Expr(2), 6)).behind, ElementsAre(2));
  EXPECT_THAT(row_tiles(rows(sym::Expr(126), 6)).behind, IsEmpty());
}

TEST(RowTiles, AreOfPowersOfTwoWhereSeveralNumbersMayBeLeft) {
  sym::Pool pool;
  const sym::Expr block = pool.symbol("s0", {0, 1});  // of 64 and 60 rows
  EXPECT_THAT(row_tiles(rows(64 - 4 * block, 7)).behind, ElementsAre(4, 1));
  const sym::Expr any = pool.symbol("s1", {1, sym::Range::kMax});
  EXPECT_THAT(row_tiles(rows(any, 8)).behind, ElementsAre(4, 2, 1));
}

TEST(OnlyRemainder, IsNullWhereNothingOrSeveralNumbersAreLeft) {
  sym::Pool pool;
  const sym::Expr any = pool.symbol("s0", {1, sym::Range::kMax});
  EXPECT_EQ(only_remainder(rows(8 * any, 8)), std::nullopt);
  EXPECT_EQ(only_remainder(rows(any, 8)), std::nullopt);
  const sym::Expr block = pool.symbol("s1", {0, 4});
  EXPECT_EQ(only_remainder(rows(8 * block + 3, 8)), 3);
}

}  // namespace
}  // namespace tandem::loop
