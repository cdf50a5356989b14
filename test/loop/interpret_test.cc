// The interpreter against plain loops.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "loop/kernel.h"
#include "loop/random.h"
#include "loop/small_floats.h"

namespace tandem::loop {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

/// Parses, verifies, and runs the text and its canonical form, which must agree.
int64_t run(std::string_view text, std::vector<void*> buffers, std::vector<int64_t> sizes,
            int64_t tasks) {
  Kernel kernel = parse_kernel(text);
  EXPECT_EQ(verify(kernel), std::vector<std::string>{}) << text;
  EXPECT_EQ(to_string(parse_kernel(to_string(kernel))), to_string(kernel));
  return interpret(canonical(kernel), buffers.data(), sizes.data(), 0, tasks);
}

std::vector<float> ramp(size_t count, float step = 0.37f) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i)
    values[i] = std::sin(static_cast<float>(i) * step) * 3 + static_cast<float>(i % 5);
  return values;
}

TEST(Interpret, Pointwise) {
  std::vector<float> x = ramp(37);
  std::vector<float> y(37, -1);
  int64_t status = run(R"(kernel {
    size n0 in [0, 1000]
    buffer b0: f32 read
    buffer b1: f32 write
    outer x0 < (n0 + 7)//8 task
    stage {
      axis y0 < min(8, n0 - x0*8) vector(8)
      %0: f32 = load b0[x0*8 + y0]
      %1: f32 = exp %0
      %2: f32 = mul %1, f32(0.1)
      %3: bool = gt %0, f32(1)
      %4: f32 = select %3, %2, %0
      b1[x0*8 + y0] = %4
    }
  })",
                       {x.data(), y.data()}, {37}, 5);
  EXPECT_EQ(status, 0);
  for (size_t i = 0; i < x.size(); ++i) {
    float scaled = std::exp(x[i]) * 0.1f;
    EXPECT_EQ(y[i], x[i] > 1 ? scaled : x[i]) << i;
  }
}

TEST(Interpret, RunsOnlyItsTasks) {
  std::vector<float> y(6, 0);
  Kernel kernel = parse_kernel(R"(kernel {
    buffer b0: f32 write
    outer x0 < 2 task
    outer x1 < 3 task
    stage {
      b0[x0*3 + x1] = f32(1)
    }
  })");
  void* buffers[] = {y.data()};
  EXPECT_EQ(interpret(kernel, buffers, nullptr, 1, 4), 0);
  EXPECT_EQ(y, (std::vector<float>{0, 1, 1, 1, 0, 0}));
  EXPECT_EQ(kernel.tasks(), sym::Expr(6));
}

/// The documented tree: lanes take every lanes-th point, then fold halves.
template <class T, class Combine>
T tree(const std::vector<T>& points, size_t lanes, T identity, Combine combine) {
  std::vector<T> sums(lanes, identity);
  for (size_t i = 0; i < points.size(); ++i) sums[i % lanes] = combine(sums[i % lanes], points[i]);
  for (size_t half = lanes / 2; half > 0; half /= 2)
    for (size_t i = 0; i < half; ++i) sums[i] = combine(sums[i], sums[i + half]);
  return sums[0];
}

constexpr std::string_view kSoftmax = R"(kernel "softmax" {
    size n0 in [1, 1000]
    size n1 in [1, 1000]
    buffer b0: f32 read
    buffer b1: f32 write
    buffer b2: f32[n1] scratch
    outer x0 < n0 task
    stage {
      reduce r0 < n1 vector(16)
      %0: f32 = load b0[x0*n1 + r0]
      l0 = max %0
    }
    stage {
      reduce r1 < n1 vector(16)
      %0: f32 = load b0[x0*n1 + r1]
      %1: f32 = l0
      %2: f32 = sub %0, %1
      %3: f32 = exp %2
      l1 = sum %3
      b2[r1] = %3
    }
    stage {
      axis y0 < n1 vector(16)
      %0: f32 = load b2[y0]
      %1: f32 = l1
      %2: f32 = div %0, %1
      b1[x0*n1 + y0] = %2
    }
  })";

TEST(Interpret, RowSoftmaxIsBitExact) {
  constexpr size_t kRows = 3;
  constexpr size_t kColumns = 37;
  std::vector<float> x = ramp(kRows * kColumns);
  std::vector<float> y(x.size());
  EXPECT_EQ(run(kSoftmax, {x.data(), y.data(), nullptr}, {kRows, kColumns}, kRows), 0);
  for (size_t row = 0; row < kRows; ++row) {
    std::vector<float> e(x.begin() + row * kColumns, x.begin() + (row + 1) * kColumns);
    float largest = *std::max_element(e.begin(), e.end());
    for (float& value : e) value = std::exp(value - largest);
    float sum = tree(e, 16, 0.0f, [](float a, float b) { return a + b; });
    for (size_t j = 0; j < kColumns; ++j) EXPECT_EQ(y[row * kColumns + j], e[j] / sum);
  }
}

TEST(Interpret, SoftmaxRoundTripsAsText) {
  std::string text = to_string(canonical(parse_kernel(kSoftmax)));
  EXPECT_EQ(to_string(parse_kernel(text)), text);
}

TEST(Interpret, ColumnSumWithVectorAxis) {
  std::vector<float> x = ramp(7 * 13);
  std::vector<float> y(13);
  run(R"(kernel {
    buffer b0: f32 read
    buffer b1: f32 write
    stage {
      axis y0 < 13 vector(8)
      reduce r0 < 7
      %0: f32 = load b0[r0*13 + y0]
      l0 = sum %0
    after
      %1: f32 = l0
      b1[y0] = %1
    }
  })",
      {x.data(), y.data()}, {}, 1);
  for (size_t j = 0; j < 13; ++j) {
    float sum = 0;
    for (size_t i = 0; i < 7; ++i) sum += x[i * 13 + j];
    EXPECT_EQ(y[j], sum);
  }
}

constexpr std::string_view kGather = R"(kernel {
    size n0 in [1, 1000]
    buffer b0: f32 read
    buffer b1: i64 read
    buffer b2: f32 write
    error 0 "below"
    error 1 "index out of range"
    outer x0 < n0 task
    stage {
      axis y0 < 3
      %0: i64 = load b1[x0]
      %1: bool = ge %0, i64(0)
      %2: i64 = check %1, %0, error 0
      %3: bool = lt %2, i64(4)
      %4: i64 = check %3, %2, error 1
      t0 < 4 = %4
      %5: f32 = load b0[t0*3 + y0]
      b2[x0*3 + y0] = %5
    }
  })";

TEST(Interpret, GatherStopsAtTheFirstFailingCheck) {
  std::vector<float> table = ramp(12);
  std::vector<int64_t> ids = {3, 0, 2};
  std::vector<float> y(9);
  EXPECT_EQ(run(kGather, {table.data(), ids.data(), y.data()}, {3}, 3), 0);
  for (size_t i = 0; i < 9; ++i)
    EXPECT_EQ(y[i], table[static_cast<size_t>(ids[i / 3]) * 3 + i % 3]);
  ids = {1, 4, -1};
  y.assign(9, -5);
  EXPECT_EQ(run(kGather, {table.data(), ids.data(), y.data()}, {3}, 3), 2);
  EXPECT_EQ(y[2], table[5]);
  EXPECT_EQ(y[3], -5);
  ids = {1, -1, 4};
  EXPECT_EQ(run(kGather, {table.data(), ids.data(), y.data()}, {3}, 3), 1);
}

struct Best {
  float value;
  int64_t index;
};

Best argmax_of(const std::vector<float>& x) {
  Best best{-kInf, std::numeric_limits<int64_t>::max()};
  for (size_t i = 0; i < x.size(); ++i) {
    if (std::isnan(best.value)) break;
    bool better = std::isnan(x[i]) || x[i] > best.value ||
                  (x[i] == best.value && best.index > static_cast<int64_t>(i));
    if (better) best = {x[i], static_cast<int64_t>(i)};
  }
  return best;
}

TEST(Interpret, ArgmaxFindsTheFirstNanElseTheLowestIndex) {
  std::vector<std::vector<float>> rows = {ramp(11),
                                          {1, 2, 2, 1, 2},
                                          {1, kNan, 5, kNan},
                                          {-kInf, -kInf},
                                          {0, 0, 0, 0, 0, 0, 0, kInf, 0, kInf},
                                          {3, 1, 1, 1, 1, 1, 1, 1, 1, 3, 3}};
  for (std::vector<float>& row : rows)
    for (std::string_view lanes : {"", " vector(4)", " vector(8)"}) {
      float value = 0;
      int64_t index = -1;
      std::string text =
          "kernel {\n size n0 in [0, 99]\n buffer b0: f32 read\n buffer b1: f32 write\n"
          " buffer b2: i64 write\n stage {\n reduce r0 < n0" +
          std::string(lanes) +
          "\n %0: f32 = load b0[r0]\n l0, l1 = argmax %0, [r0]\n after\n %1: f32 = l0\n"
          " b1[0] = %1\n %2: i64 = l1\n b2[0] = %2\n }\n}\n";
      run(text, {row.data(), &value, &index}, {static_cast<int64_t>(row.size())}, 1);
      Best best = argmax_of(row);
      EXPECT_EQ(index, best.index);
      EXPECT_TRUE(value == best.value || (std::isnan(value) && std::isnan(best.value)));
    }
}

TEST(Interpret, CumsumIsAScan) {
  std::vector<float> x = ramp(2 * 9);
  std::vector<float> y(18);
  run(R"(kernel {
    buffer b0: f32 read
    buffer b1: f32 write
    outer x0 < 2 task
    stage {
      reduce r0 < 9
      %0: f32 = load b0[x0*9 + r0]
      l0 = scan sum %0
      %1: f32 = l0
      b1[x0*9 + r0] = %1
    }
  })",
      {x.data(), y.data()}, {}, 2);
  for (size_t i = 0; i < 2; ++i) {
    float sum = 0;
    for (size_t j = 0; j < 9; ++j) EXPECT_EQ(y[i * 9 + j], sum += x[i * 9 + j]);
  }
}

TEST(Interpret, ScatterAccumulatesInSourceOrder) {
  std::vector<float> source = ramp(20, 1.7f);
  std::vector<int64_t> ids(20);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int64_t>(i * 7 % 4);
  std::vector<float> sums(4, 0.5f);
  std::vector<float> expected = sums;
  run(R"(kernel ordered {
    buffer b0: f32 read
    buffer b1: i64 read
    buffer b2: f32 read_write
    outer x0 < 20 task
    stage {
      %0: i64 = load b1[x0]
      t0 < 4 = %0
      %1: f32 = load b0[x0]
      b2[t0] += %1
    }
  })",
      {source.data(), ids.data(), sums.data()}, {}, 20);
  for (size_t i = 0; i < 20; ++i) expected[static_cast<size_t>(ids[i])] += source[i];
  EXPECT_EQ(sums, expected);
}

TEST(Interpret, ScatterCombines) {
  std::vector<float> source = ramp(20, 1.7f);
  std::vector<int64_t> ids(20);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int64_t>(i * 7 % 4);
  std::vector<float> products(4, 0.5f);
  std::vector<float> least(4, 0.5f);
  std::vector<float> most(4, 0.5f);
  std::vector<std::vector<float>> expected(3, products);
  run(R"(kernel ordered {
    buffer b0: f32 read
    buffer b1: i64 read
    buffer b2: f32 read_write
    buffer b3: f32 read_write
    buffer b4: f32 read_write
    outer x0 < 20 task
    stage {
      %0: i64 = load b1[x0]
      t0 < 4 = %0
      %1: f32 = load b0[x0]
      b2[t0] *= %1
      b3[t0] min= %1
      b4[t0] max= %1
    }
  })",
      {source.data(), ids.data(), products.data(), least.data(), most.data()}, {}, 20);
  for (size_t i = 0; i < 20; ++i) {
    size_t at = static_cast<size_t>(ids[i]);
    expected[0][at] *= source[i];
    expected[1][at] = std::min(expected[1][at], source[i]);
    expected[2][at] = std::max(expected[2][at], source[i]);
  }
  EXPECT_EQ(products, expected[0]);
  EXPECT_EQ(least, expected[1]);
  EXPECT_EQ(most, expected[2]);
}

TEST(Interpret, Bf16RoundsAtEveryStep) {
  std::vector<float> wide = ramp(16);
  std::vector<uint16_t> x(16);
  std::vector<uint16_t> y(16);
  for (size_t i = 0; i < 16; ++i) x[i] = f32_to_bf16(wide[i]);
  run(R"(kernel {
    buffer b0: bf16 read
    buffer b1: bf16 write
    stage {
      axis y0 < 16 vector(16)
      %0: bf16 = load b0[y0]
      %1: f32 = cast %0
      %2: f32 = mul %1, %1
      %3: bf16 = cast %2
      %4: f32 = cast %3
      %5: f32 = add %4, f32(0.1)
      %6: bf16 = cast %5
      b1[y0] = %6
    }
  })",
      {x.data(), y.data()}, {}, 1);
  for (size_t i = 0; i < 16; ++i) {
    float value = bf16_to_f32(x[i]);
    float square = bf16_to_f32(f32_to_bf16(value * value));
    EXPECT_EQ(y[i], f32_to_bf16(square + 0.1f));
  }
}

TEST(Interpret, PhiloxIsTheSharedStream) {
  std::vector<int32_t> y(200);
  run(R"(kernel {
    size n0
    buffer b0: i32 write
    stage {
      axis y0 < 200 vector(64)
      %0: i32 = philox [n0], i64(5), [y0]
      b0[y0] = %0
    }
  })",
      {y.data()}, {-3}, 1);
  for (size_t i = 0; i < y.size(); ++i)
    EXPECT_EQ(y[i], static_cast<int32_t>(philox(static_cast<uint64_t>(-3), 5, i)));
}

TEST(Interpret, MaskedLoadsDoNotTouchMemory) {
  std::vector<float> x = {1, 2, 3};
  std::vector<float> y(5, -1);
  run(R"(kernel {
    buffer b0: f32 read
    buffer b1: f32 write
    stage {
      axis y0 < 5
      %0: bool = ge [y0 - 1], i64(0)
      %1: bool = lt [y0 - 1], i64(3)
      %2: bool = bit_and %0, %1
      %3: f32 = load b0[(y0 - 1)*1000000000*0 + y0 - 1] if %2
      b1[y0] = %3
    }
  })",
      {x.data(), y.data()}, {}, 1);
  EXPECT_EQ(y, (std::vector<float>{0, 1, 2, 3, 0}));
}

/// What is loaded under a mask for a later store is the value from before the point.
TEST(Interpret, StoresOfAPointFollowAllItsLoads) {
  std::vector<float> x = {1, 2, 3, 4};
  std::vector<float> y(4, -1);
  run(R"(kernel {
    buffer b0: f32 read_write
    buffer b1: f32 write
    stage {
      axis y0 < 4
      %0: f32 = load b0[y0]
      %1: f32 = add %0, f32(10)
      b0[y0] = %1
      %2: bool = ge [y0], i64(2)
      %3: f32 = load b0[y0] if %2
      b1[y0] = %3
    }
  })",
      {x.data(), y.data()}, {}, 1);
  EXPECT_EQ(x, (std::vector<float>{11, 12, 13, 14}));
  EXPECT_EQ(y, (std::vector<float>{0, 0, 3, 4}));
}

TEST(Interpret, EmptyReductionsGiveTheirIdentity) {
  std::vector<float> y(3);
  run(R"(kernel {
    size n0 in [0, 9]
    buffer b0: f32 write
    stage {
      reduce r0 < n0
      l0 = sum f32(1)
      l1 = prod f32(2)
      l2 = max f32(3)
    after
      %0: f32 = l0
      %1: f32 = l1
      %2: f32 = l2
      b0[0] = %0
      b0[1] = %1
      b0[2] = %2
    }
  })",
      {y.data()}, {0}, 1);
  EXPECT_EQ(y, (std::vector<float>{0, 1, -kInf}));
}

TEST(Interpret, NestedVectorReductionKeepsOneAccumulatorALane) {
  std::vector<float> x = ramp(3 * 21);
  float y = 0;
  run(R"(kernel {
    buffer b0: f32 read
    buffer b1: f32 write
    stage {
      reduce r0 < 3
      reduce r1 < 21 vector(8)
      %0: f32 = load b0[r0*21 + r1]
      l0 = sum %0
    after
      %1: f32 = l0
      b1[0] = %1
    }
  })",
      {x.data(), &y}, {}, 1);
  std::vector<float> lanes(8, 0);
  for (size_t i = 0; i < x.size(); ++i) lanes[i % 21 % 8] += x[i];
  for (size_t half = 4; half > 0; half /= 2)
    for (size_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  EXPECT_EQ(y, lanes[0]);
}

}  // namespace
}  // namespace tandem::loop
