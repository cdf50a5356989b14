// Kernels of blocks of threads: each rule of the verifier broken once, what the interpreter makes
// of good ones, and that it gives wrong numbers where a barrier is missing.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "loop/kernel.h"
#include "loop/threads.h"

namespace tandem::loop {
namespace {

/// f32 b0 (read), b1 (write), b2 (shared), b3 (registers), i64 b4 (read), under 4 blocks of 64
/// threads.
std::string kernel_of(std::string_view stages, std::string_view outer = " outer x0 < 4 block\n") {
  return "kernel {\n size n0 in [2, 100]\n buffer b0: f32 read\n buffer b1: f32 write\n"
         " buffer b2: f32[64] scratch shared\n buffer b3: f32[4] scratch registers\n"
         " buffer b4: i64 read\n locals 2\n threads 64\n" +
         std::string(outer) + std::string(stages) + "}\n";
}

std::string problems_of(std::string_view text) {
  std::string all;
  for (const std::string& problem : verify(parse_kernel(text))) all += problem + "\n";
  return all;
}

constexpr std::string_view kFill = "stage {\naxis y0 < 64 thread(64)\nb2[y0] = f32(1)\n}\n";
constexpr std::string_view kTurned =
    "{\naxis y1 < 64 thread(64)\n%0: f32 = load b2[63 - y1]\nb1[x0*64 + y1] = %0\n}\n";

std::string turned(bool barrier) {
  return kernel_of(std::string(kFill) + (barrier ? "stage barrier " : "stage ") +
                   std::string(kTurned));
}

TEST(Threads, GoodKernelsHaveNoProblems) {
  EXPECT_EQ(problems_of(turned(true)), "");
  EXPECT_EQ(problems_of(kernel_of("stage {\nreduce r0 < n0 thread(32)\n%0: f32 = load b0[r0]\n"
                                  "l0 = sum %0\nafter\n%1: f32 = l0\nb1[x0] = %1\n}\n")),
            "");
}

struct Violation {
  std::string text;
  std::string problem;
};

class ThreadRule : public ::testing::TestWithParam<Violation> {};

TEST_P(ThreadRule, IsChecked) {
  EXPECT_NE(problems_of(GetParam().text).find(GetParam().problem), std::string::npos)
      << GetParam().text << problems_of(GetParam().text);
}

const std::string kTask =
    "kernel {\n buffer b0: f32 write\n outer x0 < 4 task\n";  // without threads

INSTANTIATE_TEST_SUITE_P(
    Rules, ThreadRule,
    ::testing::Values(
        Violation{turned(false),
                  "stage 1: no barrier before it, and other threads have touched b2"},
        Violation{kernel_of("stage {\naxis y0 < 64 thread(64)\nb2[y0] = f32(1)\n}\nstage {\n"
                            "axis y1 < 64 thread(32)\n%0: f32 = load b2[y1]\nb1[x0*64 + y1] = "
                            "%0\n}\n"),
                  "no barrier before it"},
        // The second turn of a loop of the block stores what the first one still reads.
        Violation{kernel_of(std::string(kFill) + "stage barrier " + std::string(kTurned),
                            " outer x0 < 4 block\n outer x1 < 3\n"),
                  "stage 0: no barrier before it"},
        Violation{kernel_of("stage {\naxis y0 < 64 thread(64)\nb1[x0] = f32(1)\n}\n"),
                  "threads of y0 store to one place of b1"},
        Violation{kernel_of("stage {\naxis y0 < 64 thread(64)\n%0: i64 = load b4[y0]\n"
                            "t0 < n0 = %0\nb1[t0] = f32(1)\n}\n"),
                  "threads of y0 store to one place of b1"},
        Violation{kernel_of("stage {\nreduce r0 < 64 thread(64)\nb1[x0] = f32(1)\n}\n"),
                  "threads of r0 store to one place of b1"},
        Violation{kernel_of("stage {\naxis y0 < 4 thread(4)\nb3[y0] = f32(1)\n}\n"),
                  "registers b3 are indexed by thread axis y0"},
        Violation{kernel_of("stage {\naxis y0 < 60 thread(64)\nb2[y0] = f32(1)\n"
                            "b2[y0 + 1] = f32(2)\n}\n"),
                  "two stores to different places of b2"},
        Violation{kernel_of("stage {\naxis y0 < 128 thread(128)\nb1[x0*128 + y0] = f32(1)\n}\n"),
                  "takes 128 threads of 64"},
        Violation{kernel_of("stage {\naxis y0 < 6 thread(6)\nb1[x0*6 + y0] = f32(1)\n}\n"),
                  "lanes are no power of two"},
        Violation{kernel_of("stage {\naxis y0 < 64 vector(8)\nb1[x0*64 + y0] = f32(1)\n}\n"),
                  "a vector axis beside threads"},
        Violation{kernel_of("stage {\nreduce r0 < 8 thread(8)\nreduce r1 < 8 thread(8)\n"
                            "%0: f32 = load b0[r0 + r1]\nl0 = sum %0\n}\n"),
                  "more than one reduce axis over threads"},
        Violation{kernel_of("stage {\nreduce r0 < 8 thread(8)\n%0: f32 = load b0[r0]\n"
                            "l0 = scan sum %0\n}\n"),
                  "a scan over lanes, and over another axis"},
        Violation{kernel_of(std::string(kFill), " outer x0 < 4 task\n"),
                  "a task axis beside threads"},
        Violation{kernel_of(std::string(kFill), " outer x0 < 4 thread(4)\n"),
                  "an outer axis is thread"},
        Violation{kernel_of("stage {\naxis y0 < 4 block\nb1[y0] = f32(1)\n}\n"),
                  "a block axis inside a stage"},
        Violation{kTask + "stage {\naxis y0 < 4 thread(4)\nb0[x0*4 + y0] = f32(1)\n}\n}\n",
                  "a thread axis without threads"},
        Violation{kTask + "stage barrier {\nb0[x0] = f32(1)\n}\n}\n", "a barrier without threads"},
        Violation{"kernel {\n buffer b0: f32 write\n outer x0 < 4 block\nstage {\nb0[x0] = "
                  "f32(1)\n}\n}\n",
                  "a block axis without threads"},
        Violation{"kernel ordered {\n buffer b0: f32 write\n threads 32\n outer x0 < 4 block\n"
                  "stage {\nb0[x0] = f32(1)\n}\n}\n",
                  "an ordered kernel has blocks"},
        Violation{"kernel {\n buffer b0: f32 write\n buffer b1: f32[4] scratch shared\n outer x0 < "
                  "4 task\nstage {\nb0[x0] = f32(1)\n}\n}\n",
                  "b1 is shared without threads"},
        Violation{
            "kernel {\n size n0 in [2, 9]\n buffer b0: f32 write\n buffer b1: f32[n0] scratch "
            "registers\n threads 32\n outer x0 < 4 block\nstage {\nb0[x0] = f32(1)\n}\n}\n",
            "the extent of buffer b1 in registers is no constant"}));

TEST(Threads, ArgumentsAreGlobal) {
  Kernel kernel = parse_kernel(turned(true));
  kernel.buffers[0].space = Space::shared;
  ASSERT_EQ(verify(kernel).size(), 1u);
  EXPECT_EQ(verify(kernel)[0], "buffer b0 is no scratch and not global");
}

TEST(Threads, TextReadsBackAndCanonicalKeepsIt) {
  const Kernel kernel = parse_kernel(turned(true));
  const std::string text = to_string(canonical(kernel));
  EXPECT_EQ(to_string(parse_kernel(text)), text);
  for (const char* part : {"threads 64", "scratch shared", "scratch registers", "stage barrier {",
                           "outer x0 < 4 block", "axis y1 < 64 thread(64)"})
    EXPECT_NE(text.find(part), std::string::npos) << part;
}

TEST(Threads, BadCountsAreErrors) {
  for (const char* line : {" threads 0\n", " threads 100000\n", " outer x0 < 4 thread(0)\n",
                           " outer x0 < 4 thread(4\n"})
    EXPECT_ANY_THROW(parse_kernel("kernel {\n" + std::string(line) + "}\n")) << line;
}

TEST(Threads, BarriersArePlacedWhereTheyAreNeeded) {
  Kernel kernel = parse_kernel(turned(false));
  kernel.stages[0].barrier = true;
  place_barriers(kernel);
  EXPECT_FALSE(kernel.stages[0].barrier);
  EXPECT_TRUE(kernel.stages[1].barrier);
  EXPECT_TRUE(verify(kernel).empty());
}

std::vector<float> run(const Kernel& kernel, const std::vector<float>& in, size_t out,
                       int64_t tasks, int64_t size = 2) {
  std::vector<float> x = in;
  std::vector<float> y(out, -1);
  std::vector<void*> buffers(kernel.buffers.size());
  buffers[0] = x.data();
  buffers[1] = y.data();
  EXPECT_EQ(interpret(kernel, buffers.data(), &size, 0, tasks), 0);
  return y;
}

TEST(Threads, BarrierIsReal) {
  EXPECT_EQ(run(parse_kernel(turned(true)), {}, 256, 4), std::vector<float>(256, 1));
  for (float y : run(parse_kernel(turned(false)), {}, 256, 4)) EXPECT_TRUE(std::isnan(y));
}

/// Each sums every 32nd element, and the sums fold as lanes do.
TEST(Threads, FoldAsATree) {
  std::vector<float> x(77);
  for (size_t i = 0; i < x.size(); ++i) x[i] = std::sin(static_cast<float>(i)) * 100;
  std::vector<float> sums(32, 0);
  for (size_t i = 0; i < x.size(); ++i) sums[i % 32] += x[i];
  for (size_t half = 16; half > 0; half /= 2)
    for (size_t i = 0; i < half; ++i) sums[i] += sums[i + half];
  const Kernel kernel = parse_kernel(
      kernel_of("stage {\nreduce r0 < n0 thread(32)\n%0: f32 = load b0[r0]\nl0 = sum %0\n}\n"
                "stage {\naxis y0 < 8 thread(8)\n%1: f32 = l0\nb1[x0*8 + y0] = %1\n}\n"));
  EXPECT_TRUE(verify(kernel).empty());
  EXPECT_EQ(run(kernel, x, 32, 4, 77), std::vector<float>(32, sums[0]));
}

/// A thread's first 64 steps are a block of its sum.
TEST(Threads, LongSumsAreInBlocksOfEachThread) {
  std::vector<float> x(2 * 100);
  for (size_t i = 0; i < x.size(); ++i) x[i] = std::cos(static_cast<float>(i)) * 1000 + 0.3f;
  float expected = 0;
  for (size_t lane : {0, 1}) {
    float first = 0;
    float rest = 0;
    for (size_t i = 0; i < 100; ++i) (i < 64 ? first : rest) += x[2 * i + lane];
    const float sum = (0.0f + first) + rest;
    expected = lane == 0 ? sum : expected + sum;
  }
  const Kernel kernel =
      parse_kernel(kernel_of("stage {\nreduce r0 < 200 thread(2)\n%0: f32 = load b0[r0]\n"
                             "l0 = sum %0\nafter\n%1: f32 = l0\nb1[x0] = %1\n}\n"));
  EXPECT_TRUE(sums_in_blocks(kernel.stages[0]));
  EXPECT_EQ(run(kernel, x, 4, 4), std::vector<float>(4, expected));
}

/// Registers are a thread's own and outlive a stage; threads beyond a stage's are idle.
TEST(Threads, RegistersAreOfEachThread) {
  const Kernel kernel = parse_kernel(
      kernel_of("stage {\naxis y0 < 8 thread(8)\naxis y1 < 4\n%0: f32 = load b0[y0*4 + y1]\n"
                "b3[y1] = %0\n}\n"
                "stage {\naxis y2 < 16 thread(16)\naxis y3 < 4\n%1: f32 = load b3[y3]\n"
                "b1[x0*64 + y2*4 + y3] = %1\n}\n"));
  EXPECT_TRUE(verify(kernel).empty());
  std::vector<float> x(32);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i);
  const std::vector<float> y = run(kernel, x, 256, 4);
  for (size_t i = 0; i < 64; ++i) {
    if (i < 32) EXPECT_EQ(y[i], x[i]) << i;
    if (i >= 32) EXPECT_TRUE(std::isnan(y[i])) << i;
  }
}

/// Scratch outlives a turn of a loop of the block, and is gone with the block.
TEST(Threads, ScratchIsOfTheBlock) {
  const auto text = [](const char* space) {
    return "kernel {\n buffer b0: f32 read\n buffer b1: f32 write\n buffer b2: f32[1] scratch" +
           std::string(space) +
           "\n threads 32\n outer x0 < 2 block\n outer x1 < 2\n"
           "stage {\naxis y0 < max(1 - x1, 0)\n%0: f32 = load b0[x0]\nb2[0] = %0\n}\n"
           "stage {\n%1: f32 = load b2[0]\nb1[x0] = %1\n}\n}\n";
  };
  for (const char* space : {" shared", ""}) {
    const Kernel kernel = parse_kernel(text(space));
    EXPECT_TRUE(verify(kernel).empty());
    EXPECT_EQ(run(kernel, {3, 4}, 2, 2), (std::vector<float>{3, 4}));
  }
}

TEST(Threads, ScratchOfAnotherBlockIsNotSeen) {
  const Kernel kernel = parse_kernel(
      "kernel {\n buffer b0: f32 read\n buffer b1: f32 write\n buffer b2: f32[1] scratch\n"
      " outer x0 < 2 task\nstage {\naxis y0 < max(1 - x0, 0)\n%0: f32 = load b0[x0]\n"
      "b2[0] = %0\n}\nstage {\n%1: f32 = load b2[0]\nb1[x0] = %1\n}\n}\n");
  const std::vector<float> seen = run(kernel, {3, 4}, 2, 2);
  EXPECT_EQ(seen[0], 3);
  EXPECT_TRUE(std::isnan(seen[1]));
}

}  // namespace
}  // namespace tandem::loop
