// Products of few rows with a matrix along its terms: every number of rows, of columns that end in
// a block, of terms that end in a step or in a part.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "schedule/map.h"
#include "schedule/steps.h"

namespace tandem::schedule {
namespace {

struct Shape {
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t terms = 0;
};

loop::Kernel kernel_of(const Shape& shape, bool is_across = false) {
  const std::string rows = std::to_string(shape.rows);
  const std::string columns = std::to_string(shape.columns);
  const std::string terms = std::to_string(shape.terms);
  const std::string right = is_across ? "r0*" + columns + " + x1" : "x1*" + terms + " + r0";
  return loop::parse_kernel(
      "kernel {\n buffer b0: f32 read\n buffer b1: f32 read\n buffer b2: f32 write\n locals 1\n"
      " outer x0 < " +
      rows + "\n outer x1 < " + columns + "\n stage {\n reduce r0 < " + terms +
      "\n %0: f32 = load b0[x0*" + terms + " + r0]\n %1: f32 = load b1[" + right +
      "]\n l0 = dot %0, %1\n after\n %2: f32 = l0\n %3: f32 = mul %2, f32(2)\n b2[x0*" + columns +
      " + x1] = %3\n }\n}");
}

Target target_of(Isa isa) {
  Target target;
  target.isa = isa;
  target.vector_bytes = isa == Isa::avx512 ? 64 : 32;
  return target;
}

float left(int64_t row, int64_t term) {
  return static_cast<float>((row * 31 + term * 17) % 103) / 13 - 4;
}
float right(int64_t column, int64_t term) {
  return static_cast<float>((term * 41 + column * 7) % 97) / 11 - 4;
}

std::vector<float> run(const loop::Kernel& kernel, const Shape& shape) {
  std::vector<float> a;
  std::vector<float> b;
  std::vector<float> c(static_cast<size_t>(shape.rows * shape.columns), NAN);
  for (int64_t i = 0; i < shape.rows; ++i)
    for (int64_t k = 0; k < shape.terms; ++k) a.push_back(left(i, k));
  for (int64_t j = 0; j < shape.columns; ++j)
    for (int64_t k = 0; k < shape.terms; ++k) b.push_back(right(j, k));
  std::vector<void*> buffers(kernel.buffers.size());
  buffers[0] = a.data();
  buffers[1] = b.data();
  buffers[2] = c.data();
  const sym::Assignment size = [](const sym::Node*) { return std::optional<int64_t>(); };
  const int64_t tasks = sym::evaluate(kernel.tasks(), size).value();
  EXPECT_EQ(loop::interpret(kernel, buffers.data(), nullptr, 0, tasks), 0);
  return c;
}

/// Twice the sum; and what additions in any order may add to it: so many roundings of the sum of
/// all magnitudes.
void expect_products(const std::vector<float>& results, const Shape& shape) {
  for (int64_t i = 0; i < shape.rows; ++i)
    for (int64_t j = 0; j < shape.columns; ++j) {
      double sum = 0;
      double size = 0;
      for (int64_t k = 0; k < shape.terms; ++k) {
        const double term = static_cast<double>(left(i, k)) * right(j, k);
        sum += term;
        size += std::abs(term);
      }
      const double most =
          2 * size * static_cast<double>(shape.terms) * std::numeric_limits<float>::epsilon() / 2;
      const float result = results[static_cast<size_t>(i * shape.columns + j)];
      ASSERT_NEAR(result, 2 * sum, most) << "row " << i << ", column " << j;
    }
}

TEST(MapDots, EveryRestOfRowsColumnsAndTerms) {
  for (const Isa isa : {Isa::avx2, Isa::avx512})
    for (int64_t rows = 2; rows <= 8; ++rows)
      for (const int64_t columns : {1, 32, 33})
        for (const int64_t terms : {1, 64, 65, 1500, 2001}) {
          const Shape shape{rows, columns, terms};
          const std::optional<loop::Kernel> kernel =
              mapped_by("map_dots", kernel_of(shape), target_of(isa));
          ASSERT_TRUE(kernel) << rows << " rows";
          ASSERT_EQ(loop::verify(*kernel), std::vector<std::string>{});
          expect_products(run(*kernel, shape), shape);
        }
}

TEST(MapDots, PartsWhereTheFirstLevelCacheIsTooSmall) {
  const Target target = target_of(Isa::avx512);
  const auto stages = [&](int64_t terms) {
    return mapped_by("map_dots", kernel_of({8, 32, terms}), target)->stages.size();
  };
  EXPECT_EQ(stages(target.l1_bytes * 3 / 4 / 32), 2u);
  EXPECT_EQ(stages(target.l1_bytes * 3 / 4 / 32 + 1), 3u);
}

TEST(MapDots, AsksForAMatrixThatNoSecondLevelCacheHolds) {
  const Target target = target_of(Isa::avx512);
  const auto is_asked_for = [&](int64_t columns) {
    return mapped_by("map_dots", kernel_of({4, columns, 512}), target)->buffers[1].far;
  };
  EXPECT_FALSE(is_asked_for(target.l2_bytes / 2048));
  EXPECT_TRUE(is_asked_for(target.l2_bytes / 2048 + 1));
}

TEST(MapDots, TakesNeitherOneRowNorManyNorColumnsAsTheyLie) {
  const Target target = target_of(Isa::avx512);
  EXPECT_FALSE(mapped_by("map_dots", kernel_of({1, 32, 64}), target));
  EXPECT_FALSE(mapped_by("map_dots", kernel_of({9, 32, 64}), target));
  EXPECT_FALSE(mapped_by("map_dots", kernel_of({4, 32, 0}), target));
  EXPECT_FALSE(mapped_by("map_dots", kernel_of({4, 32, 64}, true), target));
}

}  // namespace
}  // namespace tandem::schedule
