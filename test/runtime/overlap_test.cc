// Whether two strided arrays share a byte, beside the bytes themselves; which arguments of a call
// belong together; and a program that refuses such a call.
#include "runtime/overlap.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bitset>
#include <random>

#include "runtime/shared_bytes.h"
#include "test/runtime/programs.h"

namespace tandem::runtime {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr size_t kBytes = 4096;
alignas(64) std::byte memory[kBytes];

Array array_at(int64_t byte, DType dtype, const Dims& sizes, const Dims& strides) {
  return Array::borrow(memory + byte, dtype, sizes, strides);
}

using Bytes = std::bitset<kBytes>;

Bytes bytes_of(const Array& array) {
  Bytes bytes;
  const int64_t begin = static_cast<std::byte*>(array.raw()) - memory;
  for (int64_t number = 0; number < array.numel(); ++number) {
    int64_t place = 0;
    int64_t rest = number;
    for (size_t i = array.rank(); i-- > 0;) {
      place += rest % array.sizes()[i] * array.strides()[i];
      rest /= array.sizes()[i];
    }
    const int64_t element = size_of(array.dtype());
    for (int64_t k = 0; k < element; ++k)
      bytes.set(static_cast<size_t>(begin + place * element + k));
  }
  return bytes;
}

Array drawn(std::mt19937& random) {
  const DType dtypes[] = {DType::i8, DType::i16, DType::f32, DType::f64};
  const DType dtype = dtypes[random() % 4];
  const size_t rank = random() % 5;
  Dims sizes, strides;
  for (size_t i = 0; i < rank; ++i) {
    sizes.push_back(static_cast<int64_t>(random() % (random() % 8 == 0 ? 2 : 5)));
    strides.push_back(static_cast<int64_t>(random() % (random() % 2 == 0 ? 6 : 24)));
  }
  return array_at(static_cast<int64_t>(random() % 120), dtype, sizes, strides);
}

TEST(SharedBytesTest, AsTheBytesSay) {
  std::mt19937 random(3);
  int shared = 0;
  for (int i = 0; i < 200000; ++i) {
    const Array a = drawn(random), b = drawn(random);
    const bool expected = (bytes_of(a) & bytes_of(b)).any();
    ASSERT_EQ(sharing_of(a, b), expected ? Sharing::shared : Sharing::apart)
        << a.describe() << " at " << static_cast<std::byte*>(a.raw()) - memory << ", "
        << b.describe() << " at " << static_cast<std::byte*>(b.raw()) - memory << ", number " << i;
    shared += expected;
  }
  EXPECT_GT(shared, 10000);
  EXPECT_LT(shared, 180000);
}

/// Of any size: nothing is counted element by element.
TEST(SharedBytesTest, WhatProgramsTakeIsDecidedInAFewSteps) {
  const int64_t n = int64_t{1} << 20;
  std::byte* const far = memory;  // never read
  const auto at = [&](int64_t element, const Dims& sizes, const Dims& strides) {
    return Array::borrow(far + 4 * element, DType::f32, sizes, strides);
  };
  const auto expect = [](const Array& a, const Array& b, Sharing sharing) {
    EXPECT_EQ(sharing_of(a, b, 8), sharing);
    EXPECT_EQ(sharing_of(b, a, 8), sharing);
  };
  expect(at(0, {n, 4}, {8, 1}), at(4, {n, 4}, {8, 1}), Sharing::apart);
  expect(at(0, {n, 5}, {8, 1}), at(4, {n, 4}, {8, 1}), Sharing::shared);
  expect(at(0, {n}, {2}), at(1, {n}, {2}), Sharing::apart);
  expect(at(0, {n}, {6}), at(3, {n}, {10}), Sharing::apart);
  expect(at(0, {n}, {6}), at(4, {n}, {10}), Sharing::shared);
  expect(at(0, {n, n}, {n, 1}), at(n * n, {n, n}, {n, 1}), Sharing::apart);
  expect(at(0, {n, n}, {1, n}), at(n * n - 1, {n, n}, {1, n}), Sharing::shared);
  expect(at(0, {64, 3, 32, 32}, {6 * 1024, 1024, 32, 1}),
         at(3 * 1024, {64, 3, 32, 32}, {6 * 1024, 1024, 32, 1}), Sharing::apart);
}

TEST(SharedBytesTest, ABoundOnTheWorkIsKept) {
  const Dims sizes(7, 40);
  const Array a = array_at(0, DType::i8, sizes, {1009, 1013, 1019, 1021, 1031, 1033, 1039});
  const Array b = array_at(509, DType::i8, sizes, {997, 991, 983, 977, 971, 967, 953});
  EXPECT_EQ(sharing_of(a, b, 0), Sharing::unknown);
  EXPECT_NE(sharing_of(a, b), Sharing::apart);
}

TEST(SharedBytesTest, NothingIsSharedWithAnEmptyArray) {
  EXPECT_EQ(sharing_of(array_at(0, DType::f32, {3, 0}, {1, 1}), array_at(0, DType::f32, {}, {})),
            Sharing::apart);
}

TEST(OverlapTest, GroupsTouchAndHoldAWrittenOneThatShares) {
  const std::vector<Argument> arguments{
      array_at(0, DType::f32, {4}, {1}),     // written; shares with 2
      array_at(400, DType::f32, {4}, {2}),   // written; interleaved with 3
      array_at(8, DType::f32, {4}, {1}),     //
      array_at(404, DType::f32, {4}, {2}),   //
      int64_t{7},                            //
      array_at(20, DType::f64, {3}, {1}),    // begins within 2
      array_at(800, DType::f32, {4}, {1}),   // shares with 7, and neither is written
      array_at(800, DType::f32, {4}, {1}),   //
      array_at(1200, DType::f32, {0}, {1}),  // empty
      array_at(1200, DType::f32, {4}, {1})};
  Overlap overlap({0, 1, 9});
  EXPECT_THAT(overlap.groups(arguments), ElementsAre(ElementsAre(0, 2, 5)));
  const std::optional<Overlap::Pair> pair = overlap.find(arguments);
  ASSERT_TRUE(pair.has_value());
  EXPECT_EQ(pair->written, 0u);
  EXPECT_EQ(pair->other, 2u);
  EXPECT_FALSE(Overlap({1, 9}).find(arguments).has_value());
  EXPECT_TRUE(Overlap({1, 9}).groups(arguments).empty());
  EXPECT_FALSE(Overlap({}).find(arguments).has_value());
}

/// Adds y to what x was, element by element in place: x is written.
abi::Program adding() {
  abi::Program program = chain();
  program.inputs.push_back(vector_input("y", slot(0)));
  program.inputs[0].mutated = true;
  program.buffers.push_back(buffer(BufferKind::input, 1, {}));
  program.instructions = {launch(0, {4, 1}, slot(0)), launch(0, {1, 3}, slot(0))};
  program.write_backs = {{0, vector_ref(1, slot(0))}};
  return program;
}

TEST(OverlapTest, AProgramRefusesACallAndHasWrittenNothing) {
  LoadedProgram program(adding(), {double_kernel});
  const Array all = vector_of({1, 2, 3, 4});
  const Array x = all.as_strided(Dims{2}, Dims{1});
  const Array y = all.as_strided(Dims{2}, Dims{1}, 1);
  EXPECT_THAT([&] { program.run(std::vector<Argument>{x, y}); },
              ThrowsMessage<OverlapError>(HasSubstr(
                  "program 'chain': input 'x', which it writes, shares memory with input 'y'")));
  EXPECT_EQ(values_of(all), (Floats{1, 2, 3, 4}));
  const Array apart = all.as_strided(Dims{2}, Dims{1}, 2);
  program.run(std::vector<Argument>{x, apart});
  EXPECT_EQ(values_of(all), (Floats{6, 8, 3, 4}));
}

}  // namespace
}  // namespace tandem::runtime
