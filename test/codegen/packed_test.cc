// Sums of products of packed integers: machine code of each kind of processor that is here, with
// one lane and many, against the interpreter, and that against plain loops over bytes; loads of
// four bytes at once against loads of one.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "base/diagnostic.h"
#include "codegen/codegen.h"
#include "loop/kernel.h"

namespace tandem::codegen {
namespace {

constexpr int64_t kRows = 3;
constexpr int64_t kPacks = 5;

/// C[i, j] = sum over p of A[i, p] . B[p, j]; `wide`: A is read several elements at once.
std::string product_text(const std::string& combiner, bool wide, int64_t columns, int lanes,
                         const std::string& features) {
  const std::string n = std::to_string(columns), k = std::to_string(kPacks);
  const std::string axis = lanes == 1 ? "" : " vector(" + std::to_string(lanes) + ")";
  return "kernel \"packed\" target \"" + features + R"(" {
  buffer b0: )" +
         (!wide                ? "i32"
          : combiner != "dot2" ? "u8"
                               : "i16") +
         R"( read
  buffer b1: i32 read
  buffer b2: i32 write
  locals 1
  outer x0 < )" +
         std::to_string(kRows) + R"( task
  stage {
    axis y0 < )" +
         n + axis + R"(
    reduce r0 < )" +
         k + R"(
    %0: i32 = load b0[x0*)" +
         k + R"( + r0]
    %1: i32 = load b1[r0*)" +
         n + R"( + y0]
    l0 = )" +
         combiner + R"( %0, %1
  after
    %2: i32 = l0
    b2[x0*)" +
         n + R"( + y0] = %2
  }
})";
}

std::vector<int32_t> numbers(size_t count, uint32_t seed) {
  std::vector<int32_t> made(count);
  for (int32_t& each : made) {
    seed = seed * 1664525u + 1013904223u;
    each = static_cast<int32_t>(seed);
  }
  made[0] = -1;  // 255 and -1; the largest halves
  return made;
}

/// `saturates`: the sums of two neighbouring products, at 16 bits.
template <class Left, class Right, bool saturates = false>
std::vector<int32_t> by_hand(const std::vector<int32_t>& a, const std::vector<int32_t>& b,
                             int64_t columns) {
  constexpr size_t kParts = 4 / sizeof(Left);
  std::vector<int32_t> c(static_cast<size_t>(kRows * columns));
  for (int64_t i = 0; i < kRows; ++i)
    for (int64_t j = 0; j < columns; ++j) {
      uint32_t sum = 0;
      for (int64_t p = 0; p < kPacks; ++p) {
        std::array<Left, kParts> left;
        std::array<Right, kParts> right;
        std::memcpy(left.data(), &a[static_cast<size_t>(i * kPacks + p)], 4);
        std::memcpy(right.data(), &b[static_cast<size_t>(p * columns + j)], 4);
        for (size_t q = 0; q < kParts; q += 2) {
          const int64_t two = int64_t{left[q]} * right[q] + int64_t{left[q + 1]} * right[q + 1];
          const int64_t held = std::clamp<int64_t>(two, INT16_MIN, INT16_MAX);
          sum += static_cast<uint32_t>(saturates ? held : two);
        }
      }
      c[static_cast<size_t>(i * columns + j)] = static_cast<int32_t>(sum);
    }
  return c;
}

std::vector<int32_t> by_hand(std::string_view combiner, const std::vector<int32_t>& a,
                             const std::vector<int32_t>& b, int64_t columns) {
  if (combiner == "dot2") return by_hand<int16_t, int16_t>(a, b, columns);
  return combiner == "dot4" ? by_hand<uint8_t, int8_t>(a, b, columns)
                            : by_hand<uint8_t, int8_t, true>(a, b, columns);
}

void check_products(const Target& target, int lanes) {
  for (const int64_t columns : {1, 2, 3, 7, 16, 33, 40})
    for (const auto& [combiner, wide] :
         {std::pair{"dot4", false}, std::pair{"dot4", true}, std::pair{"dot4_saturating", false},
          std::pair{"dot4_saturating", true}, std::pair{"dot2", false}, std::pair{"dot2", true}}) {
      const loop::Kernel kernel =
          loop::parse_kernel(product_text(combiner, wide, columns, lanes, target.features));
      ASSERT_EQ(loop::verify(kernel), std::vector<std::string>{});
      EXPECT_EQ(loop::to_string(loop::parse_kernel(loop::to_string(kernel))),
                loop::to_string(kernel));
      std::vector<int32_t> a = numbers(kRows * kPacks, 1);
      std::vector<int32_t> b = numbers(static_cast<size_t>(kPacks * columns), 2);
      const std::vector<int32_t> expected = by_hand(combiner, a, b, columns);
      std::vector<int32_t> interpreted(expected.size()), compiled(expected.size());
      void* buffers[] = {a.data(), b.data(), interpreted.data()};
      EXPECT_EQ(loop::interpret(kernel, buffers, nullptr, 0, kRows), 0);
      EXPECT_EQ(interpreted, expected) << combiner << " of " << columns;
      const KernelLibrary library(compile_objects(std::vector{kernel}, target, CompileOptions()));
      buffers[2] = compiled.data();
      EXPECT_EQ(library.functions()[0](buffers, nullptr, 0, kRows, nullptr), 0);
      EXPECT_EQ(compiled, expected) << combiner << " of " << columns << ", " << lanes << " lanes";
    }
}

class Packed : public ::testing::TestWithParam<int> {};

TEST_P(Packed, ProductsOnAvx2) { check_products(host_target("avx2"), GetParam()); }
TEST_P(Packed, ProductsOnThisMachine) { check_products(host_target(std::nullopt), GetParam()); }

INSTANTIATE_TEST_SUITE_P(Lanes, Packed, ::testing::Values(1, 2, 8, 16, 32));

/// Parts of each type side by side, the first in the lowest bits; a constant is one.
TEST(Packed, PartsSideBySide) {
  constexpr const char* kText = R"(kernel "parts" {
  buffer b0: i8 read
  buffer b1: i16 read
  buffer b2: i32 write
  outer x0 < 3 task
  stage {
    %0: i8 = load b0[x0*4]
    %1: i8 = load b0[x0*4 + 1]
    %2: i8 = load b0[x0*4 + 2]
    %3: i8 = load b0[x0*4 + 3]
    %4: i32 = pack %0, %1, %2, %3
    b2[x0*4] = %4
    %5: i32 = load b0[x0]
    b2[x0*4 + 1] = %5
    %6: i16 = load b1[x0*2]
    %7: i16 = load b1[x0*2 + 1]
    %8: i32 = pack %6, %7
    b2[x0*4 + 2] = %8
    %9: i32 = pack i8(-1), i8(2), i8(3), i8(-4)
    b2[x0*4 + 3] = %9
  }
})";
  const loop::Kernel kernel = loop::parse_kernel(kText);
  ASSERT_EQ(loop::verify(kernel), std::vector<std::string>{});
  std::vector<int32_t> bytes = numbers(3, 5), halves = numbers(3, 6), interpreted(12), compiled(12);
  void* buffers[] = {bytes.data(), halves.data(), interpreted.data()};
  EXPECT_EQ(loop::interpret(kernel, buffers, nullptr, 0, 3), 0);
  const Target target = host_target(std::nullopt);
  loop::Kernel native = kernel;
  native.target = target.features;
  const KernelLibrary library(compile_objects(std::vector{native}, target, CompileOptions()));
  buffers[2] = compiled.data();
  EXPECT_EQ(library.functions()[0](buffers, nullptr, 0, 3, nullptr), 0);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(interpreted[i * 4], bytes[i]);
    EXPECT_EQ(interpreted[i * 4 + 1], bytes[i]);
    EXPECT_EQ(interpreted[i * 4 + 2], halves[i]);
    EXPECT_EQ(interpreted[i * 4 + 3], static_cast<int32_t>(0xfc0302ff));
  }
  EXPECT_EQ(compiled, interpreted);
}

TEST(Packed, BadTextIsAnError) {
  const auto message = [](const std::string& line) -> std::string {
    try {
      loop::parse_kernel(
          "kernel {\n  buffer b0: i8 read\n  buffer b1: i32 write\n  outer x0 < 3 "
          "task\n  stage {\n    %0: i8 = load b0[x0]\n    " +
          line + "\n    b1[x0] = %1\n  }\n}");
    } catch (const UserError& error) {
      return error.what();
    }
    return "";
  };
  for (const char* line : {"%1: i32 = pack %0, %0", "%1: i32 = pack %0, %0, %0, i16(1)",
                           "%1: i32 = pack f32(1)", "%1: i32 = pack %0"})
    EXPECT_NE(message(line).find("a pack is of integers of one type"), std::string::npos) << line;
}

}  // namespace
}  // namespace tandem::codegen
