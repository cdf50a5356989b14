// Places in sorted rows against std::stable_sort: every dtype, NaN and both zeros, ties, strides,
// limits, and the same result from any number of threads.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "base/diagnostic.h"
#include "runtime/library.h"
#include "runtime/parallel_for.h"

namespace tandem::runtime {
namespace {

using Places = std::vector<int64_t>;

/// NaN above all numbers.
template <class T>
bool below(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) return a < b || (std::isnan(b) && !std::isnan(a));
  return a < b;
}
template <class T>
Places expected_places(const std::vector<T>& row, bool descending, int64_t limit) {
  Places order(row.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t i, int64_t j) {
    const T a = row[static_cast<size_t>(i)];
    const T b = row[static_cast<size_t>(j)];
    return descending ? below(b, a) : below(a, b);
  });
  Places places(row.size());
  for (size_t i = 0; i < order.size(); ++i)
    places[static_cast<size_t>(order[i])] =
        limit < 0 ? static_cast<int64_t>(i) : std::min(static_cast<int64_t>(i), limit);
  return places;
}

template <class T>
std::vector<T> random_values(size_t count, std::mt19937& random) {
  std::uniform_int_distribution<int> integers(0, 40);
  std::vector<T> values(count);
  for (T& value : values) value = static_cast<T>(integers(random) - 20);
  if constexpr (std::is_floating_point_v<T>)
    for (size_t i = 0; i + 4 < count; i += 7) {
      values[i] = std::numeric_limits<T>::quiet_NaN();
      values[i + 1] = -std::numeric_limits<T>::infinity();
      values[i + 2] = std::numeric_limits<T>::infinity();
      values[i + 3] = static_cast<T>(-0.0);
      values[i + 4] = -std::numeric_limits<T>::quiet_NaN();
    }
  return values;
}

template <class T>
void check(DType dtype) {
  std::mt19937 random(7);
  constexpr int64_t kRows = 5;
  for (const int64_t length : {0, 1, 2, 17, 100})
    for (const bool descending : {false, true})
      for (const int64_t limit : {-1, 0, 3, 100, 1000}) {
        std::vector<T> values = random_values<T>(static_cast<size_t>(kRows * length), random);
        Places places(values.size());
        const std::vector<Operand> operands{{dtype, {kRows, length}, {length, 1}},
                                            {DType::i64, {kRows, length}, {length, 1}}};
        const std::unique_ptr<LibraryPlan> plan = plan_rank(operands, {descending, limit});
        plan->execute(std::vector<void*>{values.data(), places.data()});
        for (int64_t row = 0; row < kRows; ++row) {
          const Places got(places.begin() + row * length, places.begin() + (row + 1) * length);
          const std::vector<T> one(values.begin() + row * length,
                                   values.begin() + (row + 1) * length);
          EXPECT_EQ(got, expected_places(one, descending, limit)) << length << " " << limit;
        }
      }
}

TEST(Rank, EveryDType) {
  check<float>(DType::f32);
  check<double>(DType::f64);
  check<int64_t>(DType::i64);
  check<int32_t>(DType::i32);
  check<int16_t>(DType::i16);
  check<int8_t>(DType::i8);
  check<uint8_t>(DType::u8);
}

TEST(Rank, HalvesKeepNanAboveAndZerosAlike) {
  // bf16: -0, nan, 1, -inf, 0, -nan, inf
  std::vector<uint16_t> values{0x8000, 0x7FC0, 0x3F80, 0xFF80, 0x0000, 0xFFC0, 0x7F80};
  Places places(values.size());
  const int64_t length = static_cast<int64_t>(values.size());
  const std::vector<Operand> operands{{DType::bf16, {length}, {1}}, {DType::i64, {length}, {1}}};
  plan_rank(operands, {})->execute(std::vector<void*>{values.data(), places.data()});
  EXPECT_EQ(places, (Places{1, 5, 3, 0, 2, 6, 4}));
}

TEST(Rank, NarrowPlacesOfLongRows) {
  std::mt19937 random(7);
  std::vector<float> values(5000);
  for (float& value : values) value = std::uniform_real_distribution<float>(-1, 1)(random);
  const std::vector<Operand> operands{{DType::f32, {5000}, {1}}, {DType::i32, {5000}, {1}}};
  for (const int64_t limit : {-1, 7, 4000}) {
    std::vector<int32_t> places(values.size());
    plan_rank(operands, {true, limit})->execute(std::vector<void*>{values.data(), places.data()});
    EXPECT_EQ(Places(places.begin(), places.end()), expected_places(values, true, limit));
  }
}

TEST(Rank, StridesAndThreads) {
  std::mt19937 random(7);
  const std::vector<float> values = random_values<float>(60, random);
  const std::vector<Operand> columns{{DType::f32, {3, 20}, {1, 3}}, {DType::i64, {3, 20}, {1, 3}}};
  Places first;
  for (const int count : {1, 2, 8}) {
    set_threads(count);
    Places places(60);
    plan_rank(columns, {})
        ->execute(std::vector<void*>{const_cast<float*>(values.data()), places.data()});
    for (size_t row = 0; row < 3; ++row) {
      std::vector<float> one;
      Places got;
      for (size_t i = 0; i < 20; ++i) {
        one.push_back(values[row + 3 * i]);
        got.push_back(places[row + 3 * i]);
      }
      EXPECT_EQ(got, expected_places(one, false, -1));
    }
    if (first.empty()) first = places;
    EXPECT_EQ(places, first);
  }
  set_threads(1);
}

TEST(Rank, RefusesOtherOperands) {
  const std::vector<Operand> scalar{{DType::f32, {}, {}}, {DType::i64, {}, {}}};
  EXPECT_THROW(plan_rank(scalar, {}), UserError);
  const std::vector<Operand> narrow{{DType::f32, {3}, {1}}, {DType::i16, {3}, {1}}};
  EXPECT_THROW(plan_rank(narrow, {}), UserError);
}

}  // namespace
}  // namespace tandem::runtime
