// Rows of the blocks that joined products go by: as few rows as possible in low register tiles.
#include <gtest/gtest.h>

#include <array>

#include "schedule/map.h"

namespace tandem::schedule {
namespace {

constexpr int64_t kRowBytes = 768;  // 128 rows fill less than a quarter of the cache

int64_t height(const Target& target, int64_t batches, int64_t rows) {
  const std::array<sym::Expr, 2> extents{sym::Expr(batches), sym::Expr(rows)};
  return rows_of_block(extents, kRowBytes, false, target);
}

Target with_wide_registers() {
  Target target;
  target.isa = Isa::avx512;
  target.vector_bytes = 64;
  return target;
}

TEST(BlockHeight, IsOfWholeTiles) {
  EXPECT_EQ(height(with_wide_registers(), 12, 197), 104);  // 13 tiles of 8; 11 and one of 5
  EXPECT_EQ(height(Target(), 12, 197), 102);               // 17 tiles of 6; 15 and one of 5
  EXPECT_EQ(height(with_wide_registers(), 1, 100), 25);    // four equal ones: 8, 8, 5, 4
}

TEST(BlockHeight, LeavesATileThatIsHighEnough) {
  EXPECT_EQ(height(with_wide_registers(), 12, 128), 64);
  EXPECT_EQ(height(Target(), 12, 128), 64);  // 10 tiles of 6 and one of 4, twice; not 66 and 62
  EXPECT_EQ(height(Target(), 12, 64), 32);   // 4 tiles of 6 and two of 4, twice; not 36 and 28
}

TEST(BlockHeight, OneBlockHasAllRows) {
  EXPECT_EQ(height(with_wide_registers(), 48, 100), 100);
  EXPECT_EQ(height(Target(), 48, 100), 100);
}

TEST(BlockHeight, OfUnknownRowsIsOfWholeTiles) {
  sym::Pool pool;
  const std::array<sym::Expr, 1> extents{pool.symbol("s0", {1, sym::Range::kMax})};
  EXPECT_EQ(rows_of_block(extents, kRowBytes, false, with_wide_registers()), 128);
  EXPECT_EQ(rows_of_block(extents, kRowBytes, false, Target()), 126);
}

}  // namespace
}  // namespace tandem::schedule
