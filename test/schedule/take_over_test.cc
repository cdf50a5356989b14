// Which results may take over the memory of operands, read off kernels.
#include "schedule/take_over.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace tandem::schedule {
namespace {

using Pairs = std::vector<std::pair<uint32_t, uint32_t>>;

Pairs pairs_of(std::string_view text) {
  Pairs pairs;
  for (const abi::TakeOver& each : takeovers(loop::parse_kernel(text)))
    pairs.emplace_back(each.written, each.read);
  return pairs;
}

// b2 = b0 * b1, point by point, in blocks with a tail.
TEST(TakeOverTest, PointwiseResultsMayLieInEitherOperand) {
  const Pairs both{{2, 0}, {2, 1}};
  EXPECT_EQ(pairs_of(R"(kernel "k" {
  size n0 in [2, 4096]
  buffer b0: f32 read
  buffer b1: f32 read
  buffer b2: f32 write
  outer x0 < (n0 + 255)//256 task
  stage {
    axis y0 < min(n0 - x0*256, 256) vector(16)
    %0: f32 = load b0[x0*256 + y0]
    %1: f32 = load b1[x0*256 + y0]
    %2: f32 = mul %0, %1
    b2[x0*256 + y0] = %2
  }
}
)"),
            both);
}

// b1 is read one element ahead, b2 has elements of twice the size, b3 is read after the store.
TEST(TakeOverTest, NotWhereAnotherPlaceIsReadOrElementsDiffer) {
  EXPECT_EQ(pairs_of(R"(kernel "k" {
  buffer b0: f32 read
  buffer b1: f32 read
  buffer b2: f64 read
  buffer b3: f32 read
  buffer b4: f32 write
  buffer b5: f32 write
  outer x0 < 8 task
  stage {
    axis y0 < 16
    %0: f32 = load b0[x0*16 + y0]
    %1: f32 = load b1[x0*16 + y0 + 1]
    %2: f64 = load b2[x0*16 + y0]
    %3: f32 = cast %2
    %4: f32 = add %0, %1
    %5: f32 = add %4, %3
    b4[x0*16 + y0] = %5
  }
  stage {
    axis y1 < 16
    %0: f32 = load b3[x0*16 + y1]
    b5[x0*16 + y1] = %0
  }
}
)"),
            (Pairs{{4, 0}, {5, 0}, {5, 3}}));
}

// b3 begins as b0, and rows of b2 are added to it: each element is there before. Where the first
// stage adds, or a later one stores, something else would be lost.
TEST(TakeOverTest, WhatIsAddedToMayLieInWhatItBeginsAs) {
  const auto text = [](std::string_view first, std::string_view second) {
    return R"k(kernel "k" {
  buffer b0: f32 read
  buffer b1: i64 read
  buffer b2: f32 read
  buffer b3: f32 write
  error 0 "an index is out of range"
  outer x0 < 4 task
  stage {
    axis y0 < 64
    axis y1 < 16 vector(16)
    %0: f32 = load b0[x0*16 + y0*64 + y1]
    b3[x0*16 + y0*64 + y1] )k" +
           std::string(first) + R"k( %0
  }
  stage {
    axis y2 < 8
    axis y3 < 16 vector(16)
    %0: f32 = load b2[x0*16 + y2*64 + y3]
    %1: i64 = load b1[y2]
    %2: bool = ge %1, i64(0)
    %3: bool = lt %1, i64(64)
    %4: bool = bit_and %2, %3
    %5: i64 = check %4, %1, error 0
    t0 < 64 = %5
    b3[x0*16 + y3 + t0*64] )k" +
           std::string(second) + R"k( %0
  }
}
)k";
  };
  EXPECT_EQ(pairs_of(text("=", "+=")), (Pairs{{3, 0}}));
  EXPECT_EQ(pairs_of(text("=", "=")), Pairs{});
  EXPECT_EQ(pairs_of(text("+=", "+=")), Pairs{});
}

// What a row is made of is read by the stages before, each over the same row.
TEST(TakeOverTest, RowsAreReadBeforeTheyAreWritten) {
  const auto text = [](std::string_view read) {
    return R"(kernel "k" {
  buffer b0: f32 read
  buffer b1: f32[128] scratch
  buffer b2: f32 write
  locals 1
  outer x0 < 64 task
  stage {
    reduce r0 < 128 vector(32)
    %0: f32 = load b0[)" +
           std::string(read) + R"(]
    l0 = max %0
    b1[r0] = %0
  }
  stage {
    axis y0 < 128 vector(16)
    %0: f32 = load b0[x0*128 + y0]
    %1: f32 = l0
    %2: f32 = sub %0, %1
    b2[x0*128 + y0] = %2
  }
}
)";
  };
  EXPECT_EQ(pairs_of(text("x0*128 + r0")), (Pairs{{1, 0}}));
  EXPECT_EQ(pairs_of(text("r0")), Pairs());  // another row, which its task may have written
  EXPECT_EQ(pairs_of(text("x0*64 + r0")), Pairs());
}

// Stores that add, that are two, or that two points share.
TEST(TakeOverTest, NotWhereAnElementIsStoredTwice) {
  const auto text = [](std::string_view store) {
    return R"(kernel "k" {
  buffer b0: f32 read
  buffer b1: f32 write
  outer x0 < 8
  stage {
    axis y0 < 16
    %0: f32 = load b0[x0*8 + y0]
    )" + std::string(store) +
           R"(
  }
}
)";
  };
  EXPECT_EQ(pairs_of(text("b1[x0*8 + y0] = %0")), Pairs());
  EXPECT_EQ(pairs_of(text("b1[x0*8 + y0] += %0")), Pairs());
  EXPECT_EQ(pairs_of(text("b1[x0*8 + y0] = %0\n    b1[x0*8 + y0 + 1] = %0")), Pairs());
}

// The residual of a product is read where its sums are stored; its factors are not.
TEST(TakeOverTest, ASumMayLieInWhatIsAddedToIt) {
  EXPECT_EQ(pairs_of(R"(kernel "k" {
  buffer b0: f32 read
  buffer b1: f32 read
  buffer b2: f32 read
  buffer b3: f32 write
  locals 1
  outer x0 < 4 task
  stage {
    axis y0 < 32
    axis y1 < 32 vector(16)
    reduce r0 < 32
    %0: f32 = load b0[x0*1024 + y0*32 + r0]
    %1: f32 = load b1[y1 + r0*32]
    l0 = dot %0, %1
  after
    %2: f32 = l0
    %3: f32 = load b2[x0*1024 + y0*32 + y1]
    %4: f32 = add %2, %3
    b3[x0*1024 + y0*32 + y1] = %4
  }
}
)"),
            (Pairs{{3, 2}}));
}

}  // namespace
}  // namespace tandem::schedule
