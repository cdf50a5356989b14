// Which kernel a GPU's strategies take, and what they do where shared memory is too small.
#include <gtest/gtest.h>

#include "base/flags.h"
#include "codegen/codegen.h"
#include "loop/kernel.h"
#include "schedule/gpu/map.h"

namespace tandem::schedule {
namespace {

Target gpu() { return *codegen::gpu_target("sm_90"); }

struct Mapped {
  loop::Kernel kernel;
  std::vector<MapDecision> said;
  std::string_view strategy() const {
    return !said.empty() && said.back().reason.empty() ? said.back().strategy : "";
  }
};

Mapped mapped(std::string_view text, const Target& target = gpu()) {
  Mapped result{loop::parse_kernel(text), {}};
  result.said = map_axes(result.kernel, target);
  EXPECT_EQ(loop::verify(result.kernel), std::vector<std::string>{});
  return result;
}

constexpr std::string_view kPoints =
    "kernel {\n buffer b0: f32 read\n buffer b1: f32 write\n outer x0 < 10000\n stage {\n"
    "%0: f32 = load b0[x0]\n%1: f32 = exp %0\nb1[x0] = %1\n }\n}\n";
constexpr std::string_view kTransposed =
    "kernel {\n buffer b0: f32 read\n buffer b1: f32 write\n outer x0 < 90\n outer x1 < 70\n"
    " stage {\n%0: f32 = load b0[x1*90 + x0]\nb1[x0*70 + x1] = %0\n }\n}\n";
constexpr std::string_view kColumnSum =
    "kernel {\n buffer b0: f32 read\n buffer b1: f32 write\n outer x0 < 500\n stage {\n"
    "reduce r0 < 300\n%0: f32 = load b0[r0*500 + x0]\nl0 = sum %0\nafter\n%1: f32 = l0\n"
    "b1[x0] = %1\n }\n}\n";
constexpr std::string_view kRowSum =
    "kernel {\n buffer b0: f32 read\n buffer b1: f32 write\n outer x0 < 500\n stage {\n"
    "reduce r0 < 300\n%0: f32 = load b0[x0*300 + r0]\nl0 = sum %0\nafter\n%1: f32 = l0\n"
    "b1[x0] = %1\n }\n}\n";
constexpr std::string_view kShortSum =
    "kernel {\n buffer b0: f32 read\n buffer b1: f32 write\n outer x0 < 500\n stage {\n"
    "reduce r0 < 9\n%0: f32 = load b0[x0*9 + r0]\nl0 = sum %0\nafter\n%1: f32 = l0\n"
    "b1[x0] = %1\n }\n}\n";
constexpr std::string_view kScan =
    "kernel {\n buffer b0: f32 read\n buffer b1: f32 write\n outer x0 < 500\n stage {\n"
    "reduce r0 < 300\n%0: f32 = load b0[x0*300 + r0]\nl0 = scan sum %0\n%1: f32 = l0\n"
    "b1[x0*300 + r0] = %1\n }\n}\n";
constexpr std::string_view kProduct =
    "kernel {\n buffer b0: f32 read\n buffer b1: f32 read\n buffer b2: f32 write\n outer x0 < 50\n"
    " outer x1 < 40\n stage {\nreduce r0 < 30\n%0: f32 = load b0[x0*30 + r0]\n"
    "%1: f32 = load b1[r0*40 + x1]\nl0 = dot %0, %1\nafter\n%2: f32 = l0\nb2[x0*40 + x1] = %2\n"
    " }\n}\n";

/// Two stages of rows, with a row of scratch between them.
std::string rows_of(int64_t length) {
  const std::string n = std::to_string(length);
  return "kernel {\n buffer b0: f32 read\n buffer b1: f32 write\n buffer b2: f32[" + n +
         "] scratch\n locals 1\n outer x0 < 500\n stage {\nreduce r0 < " + n +
         "\n%0: f32 = load b0[x0*" + n +
         " + r0]\nl0 = sum %0\nb2[r0] = %0\n }\n stage {\naxis y0 < " + n +
         "\n%1: f32 = load b2[y0]\n%2: f32 = l0\n%3: f32 = div %1, %2\nb1[x0*" + n +
         " + y0] = %3\n }\n}\n";
}

/// A product of rows with a matrix of that many columns, and a sum over those.
std::string chain_of(int64_t columns) {
  const std::string n = std::to_string(columns);
  return "kernel {\n buffer b0: f32 read\n buffer b1: f32 read\n buffer b2: f32 write\n"
         " buffer b3: f32[" +
         n + "] scratch\n locals 2\n outer x0 < 500\n stage {\naxis y0 < " + n +
         "\nreduce r0 < 30\n%0: f32 = load b0[x0*30 + r0]\n%1: f32 = load b1[r0*" + n +
         " + y0]\nl0 = dot %0, %1\nafter\n%2: f32 = l0\nb3[y0] = %2\n }\n stage {\nreduce r1 < " +
         n + "\n%3: f32 = load b3[r1]\nl1 = max %3\nafter\n%4: f32 = l1\nb2[x0] = %4\n }\n}\n";
}

TEST(GpuMap, EachKernelHasItsStrategy) {
  EXPECT_EQ(mapped(kPoints).strategy(), "gpu_points");
  EXPECT_EQ(mapped(kTransposed).strategy(), "gpu_transpose");
  EXPECT_EQ(mapped(kColumnSum).strategy(), "gpu_columns");
  EXPECT_EQ(mapped(kShortSum).strategy(), "gpu_columns");
  EXPECT_EQ(mapped(kRowSum).strategy(), "gpu_rows");
  EXPECT_EQ(mapped(kScan).strategy(), "gpu_scans");
  EXPECT_EQ(mapped(kProduct).strategy(), "gpu_product");
  EXPECT_EQ(mapped(rows_of(300)).strategy(), "gpu_rows");
  EXPECT_EQ(mapped(chain_of(300)).strategy(), "gpu_chain");
}

TEST(GpuMap, ThreadsFillWholeWarps) {
  for (std::string_view text : {kPoints, kTransposed, kColumnSum, kShortSum, kRowSum, kScan}) {
    const loop::Kernel kernel = mapped(text).kernel;
    EXPECT_GT(kernel.threads, 0);
    EXPECT_EQ(kernel.threads % gpu().gpu.warp, 0);
    EXPECT_LE(kernel.threads, gpu().gpu.block_threads);
  }
}

/// Where there is work enough, and all that is accessed lies side by side.
TEST(GpuMap, AThreadLoadsWhatOneAccessHolds) {
  const auto points = [](const std::string& count, const std::string& place) {
    return "kernel {\n buffer b0: f32 read\n buffer b1: f32 write\n outer x0 < " + count +
           "\n stage {\n%0: f32 = load b0[" + place + "]\nb1[x0] = %0\n }\n}\n";
  };
  const loop::Kernel wide = mapped(points("1000000", "x0")).kernel;
  ASSERT_EQ(wide.stages[0].axes.size(), 2u);
  EXPECT_EQ(wide.stages[0].axes[1].kind, loop::AxisKind::unroll);
  EXPECT_EQ(wide.stages[0].axes[1].lanes, 4);
  for (const std::string& narrow :
       {points("1000", "x0"), points("1000001", "x0"), points("1000000", "x0*2")})
    EXPECT_EQ(mapped(narrow).kernel.stages[0].axes.size(), 1u) << narrow;
}

TEST(GpuMap, LongRowsStayInMemory) {
  EXPECT_EQ(mapped(rows_of(300)).kernel.buffers[2].space, loop::Space::shared);
  const loop::Kernel kernel = mapped(rows_of(100'000)).kernel;
  EXPECT_EQ(kernel.buffers[2].space, loop::Space::global);
  EXPECT_EQ(kernel.threads, 1024);
}

TEST(GpuMap, AChainThatSharedMemoryDoesNotHoldIsABlockForEachRow) {
  const Mapped large = mapped(chain_of(5000));
  EXPECT_EQ(large.strategy(), "gpu_rows");
  EXPECT_EQ(large.said[0].reason,
            "what is computed of a block's rows is more than shared memory holds");
}

TEST(GpuMap, WhereNothingFitsTheKernelStaysLegal) {
  std::string all;
  for (const Strategy& strategy : gpu::strategies())
    all += (all.empty() ? "" : ",") + std::string(strategy.name);
  const FlagOverride none(Flag::disable, all);
  const Mapped left = mapped(kPoints);
  EXPECT_EQ(left.said.size(), gpu::strategies().size());
  EXPECT_EQ(left.kernel.threads, 0);
}

}  // namespace
}  // namespace tandem::schedule
