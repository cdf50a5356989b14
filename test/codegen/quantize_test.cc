// Quantization in few instructions, clamp(round(v * scale) + zero, low, high) as an integer:
// machine code with one lane and many against the interpreter, on numbers where rounding and
// clamping decide: ties, neighbours of ties, both ends, infinities, and NaN, which becomes 0.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "codegen/codegen.h"
#include "loop/kernel.h"

namespace tandem::codegen {
namespace {

struct Steps {
  std::string dtype;
  std::string scale, zero, low, high;
  bool has_relu = false;
};

constexpr int64_t kCount = 448;

std::string kernel_text(const Steps& steps, int lanes, const std::string& features) {
  const std::string axis = lanes == 1 ? "" : " vector(" + std::to_string(lanes) + ")";
  const std::string relu = steps.has_relu ? "max %0, f32(0)" : "add %0, f32(0)";
  return "kernel \"quantize\" target \"" + features + R"(" {
  buffer b0: f32 read
  buffer b1: )" +
         steps.dtype + R"( write
  stage {
    axis y0 < )" +
         std::to_string(kCount) + axis + R"(
    %0: f32 = load b0[y0]
    %1: f32 = )" +
         relu + R"(
    %2: f32 = mul %1, f32()" +
         steps.scale + R"()
    %3: f32 = round %2
    %4: f32 = add %3, f32()" +
         steps.zero + R"()
    %5: f32 = max %4, f32()" +
         steps.low + R"()
    %6: f32 = min %5, f32()" +
         steps.high + R"()
    %7: )" +
         steps.dtype + R"( = cast %6
    b1[y0] = %7
  }
})";
}

/// Halves from -100 on and their neighbours, and what is far away or no number.
std::vector<float> hard_numbers() {
  std::vector<float> made;
  for (int i = -70; i < 70; ++i) {
    const float half = static_cast<float>(i) * 2.5F;
    made.insert(made.end(), {half, std::nextafter(half, 1e9F), std::nextafter(half, -1e9F)});
  }
  const float inf = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (float far : {0.F, 1e-40F, 4e6F, 1.3e7F, 3e9F, 1e20F, 3e38F, inf})
    made.insert(made.end(), {far, -far});
  made.insert(made.end(), {nan, -nan, std::nanf("1"), std::nanf("77")});
  made.resize(kCount, 0.25F);
  return made;
}

class Quantize : public ::testing::TestWithParam<Steps> {};

TEST_P(Quantize, IsWhatTheInterpreterGives) {
  const Steps& steps = GetParam();
  std::vector<float> x = hard_numbers();
  for (const char* isa : {"avx2", ""}) {
    const Target target = host_target(*isa == 0 ? std::nullopt : std::optional<std::string>(isa));
    for (int lanes : {1, 8, 16, 32}) {
      const loop::Kernel kernel = loop::parse_kernel(kernel_text(steps, lanes, target.features));
      ASSERT_EQ(loop::verify(kernel), std::vector<std::string>{});
      std::vector<int16_t> expected(kCount), compiled(kCount);
      void* buffers[] = {x.data(), expected.data()};
      EXPECT_EQ(loop::interpret(kernel, buffers, nullptr, 0, 1), 0);
      buffers[1] = compiled.data();
      const KernelLibrary library(compile_objects(std::vector{kernel}, target, CompileOptions()));
      EXPECT_EQ(library.functions()[0](buffers, nullptr, 0, 1, nullptr), 0);
      EXPECT_EQ(compiled, expected) << lanes << " lanes";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ranges, Quantize,
                         ::testing::Values(Steps{"u8", "1", "0", "0", "255"},
                                           Steps{"u8", "1", "0", "0", "255", true},
                                           Steps{"u8", "1.5", "128", "0", "255"},
                                           Steps{"u8", "3", "7", "7", "127", true},
                                           Steps{"u8", "0.3", "131", "0", "255", true},
                                           Steps{"u8", "-1", "3", "0", "255"},
                                           Steps{"i8", "1", "0", "-128", "127"},
                                           Steps{"i8", "0.7", "-5", "-128", "127"},
                                           Steps{"i8", "1", "0", "-7", "8", true},
                                           Steps{"i8", "-2", "0", "0", "127", true},
                                           Steps{"i16", "100", "11", "-30000", "30000"}));

}  // namespace
}  // namespace tandem::codegen
