// Long sums of products in parts: what they come to depends on the number of terms alone, not on
// the machine, on blocks, on how the factors lie or on whether that number is known.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "schedule/map.h"
#include "schedule/steps.h"

namespace tandem::schedule {
namespace {

constexpr int64_t kRows = 7, kColumns = 20, kMost = 800;

std::string kernel_text(const std::string& terms, bool is_left_transposed) {
  const std::string left = is_left_transposed ? "r0*7 + x0" : "x0*800 + r0";
  return "kernel {\n size n0 in [0, 800]\n buffer b0: f32 read\n buffer b1: f32 read\n"
         " buffer b2: f32 write\n locals 1\n outer x0 < 7\n outer x1 < 20\n stage {\n reduce r0 "
         "< " +
         terms + "\n %0: f32 = load b0[" + left +
         "]\n %1: f32 = load b1[r0*20 + x1]\n l0 = dot %0, %1\n after\n %2: f32 = l0\n"
         " %3: f32 = mul %2, f32(2)\n b2[x0*20 + x1] = %3\n }\n}";
}

float left(int64_t row, int64_t term) {
  return static_cast<float>((row * 31 + term * 17) % 103) / 13 - 4;
}
float right(int64_t term, int64_t column) {
  return static_cast<float>((term * 41 + column * 7) % 97) / 11 - 4;
}

std::vector<float> run(const loop::Kernel& kernel, int64_t terms, bool is_left_transposed) {
  std::vector<float> a(kRows * kMost), b(kMost * kColumns), c(kRows * kColumns, NAN);
  for (int64_t k = 0; k < kMost; ++k) {
    for (int64_t i = 0; i < kRows; ++i)
      a[static_cast<size_t>(is_left_transposed ? k * kRows + i : i * kMost + k)] = left(i, k);
    for (int64_t j = 0; j < kColumns; ++j) b[static_cast<size_t>(k * kColumns + j)] = right(k, j);
  }
  std::vector<void*> buffers(kernel.buffers.size());
  buffers[0] = a.data();
  buffers[1] = b.data();
  buffers[2] = c.data();
  sym::Assignment size = [&](const sym::Node*) { return std::optional<int64_t>(terms); };
  const int64_t tasks = sym::evaluate(kernel.tasks(), size).value();
  EXPECT_EQ(loop::interpret(kernel, buffers.data(), &terms, 0, tasks), 0);
  return c;
}

/// Parts of 192 terms, of which the last one takes up to 64 more.
float expected(int64_t row, int64_t column, int64_t terms) {
  const int64_t parts = std::max<int64_t>(1, (terms - 64 + 191) / 192);
  float total = 0;
  for (int64_t part = 0; part < parts; ++part) {
    const int64_t end = part == parts - 1 ? terms : (part + 1) * 192;
    float sum = 0;
    for (int64_t k = part * 192; k < end; ++k) sum = std::fma(left(row, k), right(k, column), sum);
    total += sum;
  }
  return total * 2;
}

std::vector<float> expected(int64_t terms) {
  std::vector<float> all;
  for (int64_t i = 0; i < kRows; ++i)
    for (int64_t j = 0; j < kColumns; ++j) all.push_back(expected(i, j, terms));
  return all;
}

TEST(ProductParts, DependOnTheNumberOfTermsAlone) {
  for (const Isa isa : {Isa::avx2, Isa::avx512})
    for (const bool is_left_transposed : {false, true})
      for (const int64_t terms : {1, 256, 257, 448, 449, 768, 800})
        for (const std::string& said : {std::to_string(terms), std::string("n0")}) {
          Target target;
          target.isa = isa;
          target.vector_bytes = isa == Isa::avx512 ? 64 : 32;
          const std::optional<loop::Kernel> kernel = mapped_by(
              "map_product", loop::parse_kernel(kernel_text(said, is_left_transposed)), target);
          ASSERT_TRUE(kernel) << said;
          ASSERT_EQ(loop::verify(*kernel), std::vector<std::string>{});
          ASSERT_EQ(run(*kernel, terms, is_left_transposed), expected(terms))
              << terms << " terms, said as " << said << ", transposed: " << is_left_transposed;
        }
}

TEST(ProductParts, SumsOfNothing) {
  const std::optional<loop::Kernel> kernel =
      mapped_by("map_product", loop::parse_kernel(kernel_text("n0", false)), {});
  ASSERT_TRUE(kernel);
  EXPECT_EQ(run(*kernel, 0, false), std::vector<float>(kRows * kColumns, 0));
}

}  // namespace
}  // namespace tandem::schedule
