// The table of mapping strategies: what fits maps, what does not says why and changes nothing.
#include "schedule/map.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/flags.h"

namespace tandem::schedule {
namespace {

constexpr const char* kColumnSum = R"(kernel {
  buffer b0: f32 read
  buffer b1: f32 write
  locals 1
  outer x0 < 512
  stage {
    reduce r0 < 300
    %0: f32 = load b0[x0 + r0*512]
    l0 = sum %0
  after
    %1: f32 = l0
    b1[x0] = %1
  }
}
)";

constexpr const char* kPoints = R"(kernel {
  buffer b0: f32 read
  buffer b1: f32 write
  outer x0 < 100
  outer x1 < 200
  stage {
    %0: f32 = load b0[x0*200 + x1]
    b1[x0*200 + x1] = %0
  }
}
)";

std::string mapped_by(const char* text) {
  loop::Kernel kernel = loop::parse_kernel(text);
  const std::vector<MapDecision> said = map_axes(kernel, {});
  EXPECT_TRUE(loop::verify(kernel).empty());
  for (size_t i = 0; i + 1 < said.size(); ++i) EXPECT_NE(said[i].reason, "") << said[i].strategy;
  return std::string(said.back().strategy);
}

TEST(MapAxes, TheFirstThatFitsMaps) {
  EXPECT_EQ(mapped_by(kColumnSum), "map_column_sums");
  EXPECT_EQ(mapped_by(kPoints), "map_points");
}

TEST(MapAxes, AStrategyCanBeTakenAway) {
  {
    const FlagOverride without(Flag::disable, "map_column_sums");
    EXPECT_EQ(mapped_by(kColumnSum), "map_columns");
  }
  const FlagOverride without(Flag::disable, "map_column_sums,map_columns");
  EXPECT_EQ(mapped_by(kColumnSum), "map_rows");
}

TEST(MapAxes, WhereNothingFitsTheKernelStaysLegal) {
  std::string all;
  for (std::string_view name : strategy_names())
    all += (all.empty() ? "" : ",") + std::string(name);
  const FlagOverride none(Flag::disable, all);
  loop::Kernel kernel = loop::parse_kernel(kPoints);
  const std::vector<MapDecision> said = map_axes(kernel, {});
  EXPECT_EQ(said.size(), strategy_names().size());
  EXPECT_TRUE(loop::verify(kernel).empty());
  EXPECT_EQ(kernel.outer[0].kind, loop::AxisKind::serial);
}

TEST(MapAxes, NamesAreTheirOwn) {
  const std::vector<std::string_view> names = strategy_names();
  EXPECT_EQ(std::set<std::string_view>(names.begin(), names.end()).size(), names.size());
}

}  // namespace
}  // namespace tandem::schedule
