// Register tiles of any number of rows, and what is left of the rows, against the interpreter, bit
// by bit; sums that are added to in scratch from one point of a loop around the stages to the next.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "codegen/codegen.h"
#include "loop/kernel.h"

namespace tandem::codegen {
namespace {

constexpr int64_t kMostRows = 40, kColumns = 48, kTerms = 20;

/// c[i, j] = sum over two parts of 10 terms, which are added in scratch; the rows are n0.
std::string kernel_text(int tile_rows, int lanes, const std::string& rows,
                        const std::string& features) {
  const std::string columns = " axis y1 < 48 vector(" + std::to_string(lanes) + ")\n";
  return "kernel \"rows" + std::to_string(tile_rows) + "_" + std::to_string(lanes) + "_" + rows +
         "\" target \"" + features +
         "\" {\n size n0 in [1, 40]\n buffer b0: f32 read\n buffer b1: f32 read\n"
         " buffer b2: f32 write\n buffer b3: f32[1920] scratch\n locals 1\n outer x0 < 1 task\n"
         " outer x1 < 2\n stage {\n axis y9 < (2 - x1)//2\n axis y8 < 1920 vector(16)\n"
         " b3[y8] = f32(0)\n }\n stage {\n" +
         columns + " axis y2 < " + rows + " unroll(" + std::to_string(tile_rows) +
         ")\n reduce r0 < 10\n %0: f32 = load b0[y2*20 + x1*10 + r0]\n"
         " %1: f32 = load b1[x1*480 + r0*48 + y1]\n l0 = dot %0, %1\n after\n %2: f32 = l0\n"
         " b3[y2*48 + y1] += %2\n }\n stage {\n axis y7 < (x1 + 1)//2\n axis y6 < " +
         rows + "\n axis y5 < 48 vector(16)\n %0: f32 = load b3[y6*48 + y5]\n" +
         " b2[y6*48 + y5] = %0\n }\n}";
}

std::vector<float> values(int64_t count, int64_t step) {
  std::vector<float> made(static_cast<size_t>(count));
  for (size_t i = 0; i < made.size(); ++i)
    made[i] = static_cast<float>(static_cast<int64_t>(i) * step % 101) / 7 - 6;
  return made;
}

std::vector<float> run(const loop::Kernel& kernel, abi::KernelFunction function, int64_t rows) {
  std::vector<float> a = values(kMostRows * kTerms, 37), b = values(kTerms * kColumns, 53);
  std::vector<float> c(static_cast<size_t>(kMostRows * kColumns), -1);
  alignas(64) float scratch[kMostRows * kColumns];
  std::fill(std::begin(scratch), std::end(scratch), NAN);
  void* buffers[] = {a.data(), b.data(), c.data(), scratch};
  const int64_t status = function == nullptr ? loop::interpret(kernel, buffers, &rows, 0, 1)
                                             : function(buffers, &rows, 0, 1, scratch);
  EXPECT_EQ(status, 0);
  return c;
}

/// Both parts, in their order.
float expected(int64_t row, int64_t column) {
  const std::vector<float> a = values(kMostRows * kTerms, 37), b = values(kTerms * kColumns, 53);
  float total = 0;
  for (int64_t part = 0; part < 2; ++part) {
    float sum = 0;
    for (int64_t k = part * 10; k < part * 10 + 10; ++k)
      sum = std::fma(a[static_cast<size_t>(row * kTerms + k)],
                     b[static_cast<size_t>(k * kColumns + column)], sum);
    total += sum;
  }
  return total;
}

TEST(RowTiles, CompiledAsInterpreted) {
  const Target target = host_target(std::nullopt);
  const int lanes = target.vector_bytes == 64 ? 32 : 16;
  std::vector<loop::Kernel> kernels;
  for (const int tile_rows : {1, 3, 6, 8, 14})
    for (const std::string rows :
         {"n0", "40", "37", "34", "17", "13", "11", "10", "9", "8", "5", "1"}) {
      kernels.push_back(loop::parse_kernel(kernel_text(tile_rows, lanes, rows, target.features)));
      ASSERT_EQ(loop::verify(kernels.back()), std::vector<std::string>{});
    }
  const KernelLibrary library(compile_objects(kernels, target, CompileOptions{}));
  for (size_t i = 0; i < kernels.size(); ++i)
    for (const int64_t rows : {1, 5, 6, 7, 13, 15, 29, 40}) {
      const std::vector<float> found = run(kernels[i], library.functions()[i], rows);
      ASSERT_EQ(found, run(kernels[i], nullptr, rows)) << kernels[i].name << ", " << rows;
      ASSERT_EQ(found[0], expected(0, 0)) << kernels[i].name;
    }
}

/// Blocks of 8 rows, the last of them shorter: what is left behind whole tiles differs.
std::string blocks_text(int tile_rows, int64_t rows, const std::string& features) {
  const std::string count = std::to_string((rows + 7) / 8);
  const std::string name = std::to_string(tile_rows) + "_" + std::to_string(rows);
  return "kernel \"blocks" + name + "\" target \"" + features +
         "\" {\n buffer b0: f32 read\n buffer b1: f32 read\n buffer b2: f32 write\n locals 1\n"
         " outer x0 < " +
         count +
         " task\n stage {\n axis y0 < 48 vector(16)\n"
         " axis y1 < min(-x0*8 + " +
         std::to_string(rows) + ", 8) unroll(" + std::to_string(tile_rows) +
         ")\n reduce r0 < 20\n %0: f32 = load b0[x0*160 + y1*20 + r0]\n"
         " %1: f32 = load b1[r0*48 + y0]\n l0 = dot %0, %1\n after\n %2: f32 = l0\n"
         " b2[x0*384 + y1*48 + y0] = %2\n }\n}";
}

TEST(RowTiles, WhatIsLeftOfBlocks) {
  const Target target = host_target(std::nullopt);
  std::vector<loop::Kernel> kernels;
  for (const int tile_rows : {3, 4, 6, 8})
    for (int64_t rows = 1; rows <= kMostRows; ++rows)
      kernels.push_back(loop::parse_kernel(blocks_text(tile_rows, rows, target.features)));
  const KernelLibrary library(compile_objects(kernels, target, CompileOptions{}));
  const std::vector<float> a = values(kMostRows * kTerms, 37), b = values(kTerms * kColumns, 53);
  for (size_t i = 0; i < kernels.size(); ++i) {
    const int64_t blocks = (static_cast<int64_t>(i) % kMostRows + 8) / 8;
    std::vector<float> found(static_cast<size_t>(kMostRows * kColumns), -1), wanted = found;
    for (std::vector<float>* c : {&found, &wanted}) {
      void* buffers[] = {const_cast<float*>(a.data()), const_cast<float*>(b.data()), c->data()};
      const int64_t status = c == &wanted
                                 ? loop::interpret(kernels[i], buffers, nullptr, 0, blocks)
                                 : library.functions()[i](buffers, nullptr, 0, blocks, nullptr);
      ASSERT_EQ(status, 0);
    }
    ASSERT_EQ(found, wanted) << kernels[i].name;
  }
}

TEST(RowTiles, NoneOfNoRows) { EXPECT_ANY_THROW(loop::parse_kernel(kernel_text(0, 16, "40", ""))); }

/// A prefetch stands in the loops of the sums up to the last one that its index depends on.
TEST(RowTiles, AskOnceForWhatSeveralStepsShare) {
  const Target target = host_target("avx2");
  const auto times_asked = [&](const std::string& index) {
    const std::string text = llvm_text(
        loop::parse_kernel(
            "kernel \"asks\" target \"" + target.features +
            "\" {\n buffer b0: f32 read\n buffer b1: f32 read\n buffer b2: f32 write\n locals 1\n"
            " outer x0 < 1 task\n stage {\n axis y0 < 16 vector(16)\n axis y1 < 12 unroll(6)\n"
            " reduce r0 < 4 written_out\n reduce r1 < 8 written_out\n"
            " %0: f32 = load b0[y1*32 + r0*8 + r1]\n %1: f32 = load b1[r0*128 + r1*16 + y0]\n"
            " l0 = dot %0, %1\n prefetch b1[" +
            index + "]\n after\n %2: f32 = l0\n b2[y1*16 + y0] = %2\n }\n}\n"),
        target);
    int times = 0;
    for (size_t at = 0; (at = text.find("call void @llvm.prefetch", at)) != std::string::npos; ++at)
      ++times;
    return times;
  };
  EXPECT_EQ(times_asked("y1*16 + r0*8 + r1"), 32);
  EXPECT_EQ(times_asked("y1*16 + r0*16"), 4);
  EXPECT_EQ(times_asked("y1*16"), 1);
}

}  // namespace
}  // namespace tandem::codegen
