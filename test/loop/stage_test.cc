// A rewrite of a stage reaches every member that has an expression.
#include "loop/stage.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace tandem::loop {
namespace {

constexpr const char* kKernel = R"(kernel "scatter" target "" {
  buffer b0: f32 read
  buffer b1: i64 read
  buffer b2: f32 write
  buffer b3: f32[8] scratch
  locals 1
  outer x0 < 4
  stage {
    axis y0 < 8
    reduce r0 < 16
    %0: f32 = load b0[x0*128 + y0*16 + r0]
    l0 = sum %0
    prefetch b0[x0*128 + y0*16]
    b3[y0] = %0
  after
    %1: i64 = load b1[y0]
    t0 < 8 = %1
    %2: f32 = l0
    b2[x0*8 + t0] = %2
  }
}
)";

std::string text_after(const StageRewrite& how) {
  Kernel kernel = parse_kernel(kKernel);
  rewrite(*kernel.scalars, *kernel.scalars, kernel.stages[0], how);
  return to_string(kernel);
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(Stage, RewriteOfNothingKeepsTheText) {
  EXPECT_EQ(text_after({}), to_string(parse_kernel(kKernel)));
}

TEST(Stage, BuffersOfLoadsStoresAndPrefetchesArePlaced) {
  StageRewrite how;
  how.place = [](int32_t& buffer, sym::Expr& index) {
    if (buffer == 1) return;
    buffer = buffer == 0 ? 3 : 0;
    index = index + 5;
  };
  const std::string text = text_after(how);
  EXPECT_TRUE(has(text, "load b3[")) << text;
  EXPECT_TRUE(has(text, "prefetch b3[")) << text;
  EXPECT_FALSE(has(text, "load b0[")) << text;
  EXPECT_FALSE(has(text, "b2[x0")) << text;
  EXPECT_TRUE(has(text, "load b1[y0]")) << text;
}

TEST(Stage, LocalsMoveTogether) {
  StageRewrite how;
  how.first_local = 7;
  Kernel kernel = parse_kernel(kKernel);
  rewrite(*kernel.scalars, *kernel.scalars, kernel.stages[0], how);
  EXPECT_EQ(kernel.stages[0].reductions[0].first_local, 7);
  const std::vector<Val> scalars = scalars_of(kernel.stages[0]);
  EXPECT_TRUE(std::any_of(scalars.begin(), scalars.end(), [](Val value) {
    return value->opcode == Opcode::local && value->slot == 7;
  }));
}

TEST(Stage, SubstitutionReachesAddressesMadeFromData) {
  Kernel kernel = parse_kernel(kKernel);
  const sym::Expr row = kernel.stages[0].axes[0].index;
  substitute(kernel, {{row, sym::Expr(3)}});
  for (const sym::Expr& index : index_expressions(kernel))
    EXPECT_FALSE(sym::depends_on(index, row)) << sym::to_string(index);
  const sym::Expr prefetched = kernel.stages[0].prefetches[0].index;
  EXPECT_FALSE(sym::depends_on(prefetched, row)) << sym::to_string(prefetched);
  // t0 stands for load b1[y0], then for load b1[3].
  EXPECT_TRUE(has(to_string(kernel), "load b1[3]")) << to_string(kernel);
}

TEST(Stage, AllScalarsHoldWhatOnlyAnAddressIsMadeOf) {
  const Kernel kernel = parse_kernel(kKernel);
  const auto reads_places = [](const std::vector<Val>& scalars) {
    return std::any_of(scalars.begin(), scalars.end(),
                       [](Val value) { return value->opcode == Opcode::load && value->slot == 1; });
  };
  EXPECT_FALSE(reads_places(scalars_of(kernel.stages[0])));
  EXPECT_TRUE(reads_places(all_scalars_of(*kernel.scalars, kernel.stages[0])));
}

}  // namespace
}  // namespace tandem::loop
