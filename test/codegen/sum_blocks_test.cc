// Sums in blocks: compiled code against the interpreter, bit by bit, for lengths around whole
// blocks, with and without lanes, under a vector axis, with two reduce axes and beside another
// reduction; and that the error of a long sum is that of its blocks.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "codegen/codegen.h"
#include "loop/kernel.h"

namespace tandem::codegen {
namespace {

constexpr int64_t kRows = 3, kMost = 1 << 14;

struct Sum {
  std::string name;
  std::string axes;   // of the stage, y0 < 5 for columns
  std::string index;  // of what is loaded
  int64_t columns = 1;
  bool is_length_known = true;
};

std::string kernel_text(const Sum& sum, int64_t length, const std::string& features) {
  const std::string n = sum.is_length_known ? std::to_string(length) : "n0";
  std::string axes = sum.axes;
  for (size_t at = axes.find('N'); at != std::string::npos; at = axes.find('N'))
    axes.replace(at, 1, n);
  const std::string column = sum.columns == 1 ? "" : " + y0";
  const std::string place = "[x0*" + std::to_string(sum.columns) + column + "]";
  return "kernel \"" + sum.name + std::to_string(length) + "\" target \"" + features + R"(" {
  size n0 in [1, 100000]
  buffer b0: f32 read
  buffer b1: f32 write
  buffer b2: f32 write
  locals 2
  outer x0 < 3 task
  stage {
)" + axes +
         "    %0: f32 = load b0[" + sum.index + R"( + x0]
    l0 = sum %0
    l1 = max %0
  after
    %1: f32 = l0
    b1)" +
         place + R"( = %1
    %2: f32 = l1
    b2)" +
         place +
         R"( = %2
  }
})";
}

const std::vector<Sum> kSums = {
    {"serial", "    reduce r0 < N\n", "r0"},
    {"lanes", "    reduce r0 < N vector(16)\n", "r0"},
    {"lanes_of_unknown_length", "    reduce r0 < N vector(16)\n", "r0", 1, false},
    {"columns", "    axis y0 < 5 vector(16)\n    reduce r0 < N\n", "r0*5 + y0", 5},
    {"two_axes", "    reduce r0 < 3\n    reduce r1 < N vector(8)\n", "r0*7 + r1"},
    {"short_inside", "    reduce r0 < N\n    reduce r1 < 9 vector(8)\n", "r0 + r1"},
};

std::vector<float> input() {
  std::vector<float> values(5 * kMost + 100);
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>((i * 37 + 11) % 101) / 97.0F + 0.01F;
  return values;
}

std::vector<float> run(const loop::Kernel& kernel, abi::KernelFunction function,
                       std::vector<float> from, int64_t length, int64_t columns) {
  std::vector<float> sums(static_cast<size_t>(kRows * columns)), most(sums.size());
  void* buffers[] = {from.data(), sums.data(), most.data()};
  const int64_t status = function == nullptr ? loop::interpret(kernel, buffers, &length, 0, kRows)
                                             : function(buffers, &length, 0, kRows, nullptr);
  EXPECT_EQ(status, 0);
  sums.insert(sums.end(), most.begin(), most.end());
  return sums;
}

TEST(SumsInBlocks, CompiledAsInterpreted) {
  const Target target = host_target(std::nullopt);
  const std::vector<int64_t> lengths = {1, 16, 17, 63, 64, 65, 128, 1024, 1031, 2048, 2100};
  std::vector<loop::Kernel> kernels;
  for (const Sum& sum : kSums)
    for (const int64_t length : lengths) {
      kernels.push_back(loop::parse_kernel(kernel_text(sum, length, target.features)));
      ASSERT_EQ(loop::verify(kernels.back()), std::vector<std::string>{});
    }
  const KernelLibrary library(compile_objects(kernels, target, CompileOptions{}));
  for (size_t i = 0; i < kernels.size(); ++i) {
    const Sum& sum = kSums[i / lengths.size()];
    const int64_t length = lengths[i % lengths.size()];
    EXPECT_EQ(run(kernels[i], library.functions()[i], input(), length, sum.columns),
              run(kernels[i], nullptr, input(), length, sum.columns))
        << sum.name << " of " << length;
  }
}

TEST(SumsInBlocks, ErrorOfALongSum) {
  const Sum& serial = kSums[0];
  const loop::Kernel kernel = loop::parse_kernel(kernel_text(serial, kMost, "+avx2"));
  const std::vector<float> from = input();
  const double truth = std::accumulate(from.begin(), from.begin() + kMost, 0.0);
  const double in_order = std::accumulate(from.begin(), from.begin() + kMost, 0.0F);
  const double found = run(kernel, nullptr, from, kMost, 1)[0];
  EXPECT_LE(std::abs(found - truth) / truth, 4e-7);
  EXPECT_GT(std::abs(in_order - truth) / truth, 4e-7);  // else the test says nothing
}

}  // namespace
}  // namespace tandem::codegen
