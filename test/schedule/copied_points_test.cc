// What a product copies for its tasks is less than what it multiplies, whatever lies where: results
// are right with any copy, so that no comparison would see one of all that lies between two lines.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/flags.h"
#include "ir/text.h"
#include "ops/opdef.h"
#include "schedule/schedule.h"

namespace tandem::schedule {
namespace {

int64_t points(const std::vector<loop::Axis>& axes) {
  int64_t count = 1;
  for (const loop::Axis& axis : axes) count *= axis.extent.range().hi;
  return count;
}

struct Work {
  int64_t copied = 0;  // stages without a sum
  int64_t summed = 0;  // terms
};

Work work_of(const loop::Kernel& kernel) {
  Work work;
  for (const loop::Stage& stage : kernel.stages) {
    const int64_t count = points(stage.axes) * points(stage.reduce_axes);
    (stage.reductions.empty() ? work.copied : work.summed) += count;
  }
  return work;
}

Target with_registers_of(int bytes) {
  Target target;
  target.isa = bytes == 64 ? Isa::avx512 : Isa::avx2;
  target.vector_bytes = bytes;
  return target;
}

void expect_small_copies(const std::string& text) {
  const std::unique_ptr<ir::Module> module = ir::parse_module(text, ops::op_table());
  const FlagOverride no_calls(Flag::library, "0");
  for (const int bytes : {32, 64}) {
    const Scheduled made = schedule(*module->graphs()[0], with_registers_of(bytes));
    int products = 0;
    for (const loop::Kernel& kernel : made.kernels) {
      const Work work = work_of(kernel);
      if (work.summed == 0) continue;
      ++products;
      EXPECT_LE(work.copied, work.summed) << text << loop::to_string(kernel);
    }
    EXPECT_GE(products, 1) << text;
  }
}

TEST(CopiedPoints, OfConvolutionsOfBytes) {
  for (const int image : {3, 7, 14, 28})
    for (const int channels : {32, 128})
      for (const int stride : {1, 2})
        for (const int dilation : {1, 2})
          expect_small_copies(fmt::format(
              "graph @f(%x: i16[2, {0}, {1}, {1}], %w: i32[3, 3, {2}, 64]) {{\n"
              "  %0 = tandem.packed_convolution(%x, %w, [{3}, {3}], [{4}, {4}], [{4}, {4}], 1, 2, "
              "0)\n  return %0\n}}\n",
              channels, image, channels / 2, stride, dilation));
}

TEST(CopiedPoints, OfProducts) {
  for (const char* left : {"[96, 320]", "[320, 96]"})
    for (const char* right : {"[320, 64]", "[64, 320]"}) {
      const bool turns_left = left[1] == '3', turns_right = right[1] == '6';
      expect_small_copies(fmt::format(
          "graph @f(%a: f32{}, %b: f32{}) {{\n{}{}  %2 = aten.mm(%{}, %{})\n  return %2\n}}\n",
          left, right, turns_left ? "  %0 = aten.t(%a)\n" : "",
          turns_right ? "  %1 = aten.t(%b)\n" : "", turns_left ? "0" : "a",
          turns_right ? "1" : "b"));
    }
}

}  // namespace
}  // namespace tandem::schedule
