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

constexpr const char* kBlocks = R"(kernel {
  buffer b0: f32 read
  buffer b1: f32 read
  buffer b2: f32 write
  outer x0 < 2
  outer x1 < 100
  outer x2 < 64
  stage {
    %0: bool = lt [x0], i64(1)
    %1: f32 = load b0[x1*64 + x2]
    %2: f32 = load b1[x1*64 + x2]
    %3: f32 = add %1, %2
    %4: f32 = sub %1, %2
    %5: f32 = select %0, %3, %4
    b2[x0*6400 + x1*64 + x2] = %5
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

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  return text.replace(text.find(from), from.size(), to);
}

TEST(MapCases, StoresAllThatShareWhatTheyRead) {
  EXPECT_EQ(mapped_by(kBlocks), "map_cases");
  const std::string stacked =
      replaced(replaced(kBlocks, "add %1, %2", "neg %1"), "sub %1, %2", "neg %2");
  EXPECT_EQ(mapped_by(stacked.c_str()), "map_points");  // streams of their own
  const std::string side_by_side =
      replaced(kBlocks, "b2[x0*6400 + x1*64 + x2]", "b2[x0 + x1*128 + x2*2]");
  EXPECT_EQ(mapped_by(side_by_side.c_str()), "map_interleaved");
  const std::string in_place = replaced(replaced(kBlocks, "b2: f32 write", "b2: f32 read_write"),
                                        "load b1[x1*64 + x2]", "load b2[x0*6400 + x1*64 + x2]");
  EXPECT_EQ(mapped_by(in_place.c_str()), "map_points");  // a case would read what one has written
  const std::string beside = replaced(kBlocks, "[x0], i64(1)", "[x0*3 + x1], i64(1)");
  EXPECT_EQ(mapped_by(beside.c_str()), "map_points");  // a place, no case
}

TEST(MapCases, LeavesNoQuestion) {
  loop::Kernel kernel = loop::parse_kernel(kBlocks);
  map_axes(kernel, {});
  const std::string text = loop::to_string(kernel);
  EXPECT_EQ(text.find("select"), std::string::npos) << text;
  EXPECT_EQ(kernel.stages[0].body.size(), 2U);
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
