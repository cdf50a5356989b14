// What the property rests on: comments are read back, smaller graphs are right, bounds are not
// passed, and a wrong number or a graph without comments is told.
#include <gtest/gtest.h>

#include <stdexcept>

#include "base/diagnostic.h"
#include "ir/text.h"
#include "ops/opdef.h"
#include "test/property/annotated.h"
#include "test/property/graph.h"
#include "test/property/roads.h"

namespace tandem::property {
namespace {

constexpr const char* kSum = R"(; run s0 5 3
; data x0 -3 3 1
; data x1 0 1 0.25
; data x2 -3 3 1
; has rows
graph @f(%x0: f32[s0], %x1: f32[4], %x2: f32[4]) where s0 in [2, 4096] {
  %0 = aten.neg(%x0)  ; 0
  %1, %2 = aten.max.dim(%x1, 0)  ; 0.5 0
  %3 = aten.copy_(%x2, %x1)  ; 0
  return %0, %1
}
)";

TEST(Annotated, CommentsAreRead) {
  const Annotated notes = annotated(kSum);
  EXPECT_EQ(notes.symbols.at("s0"), (std::array<int64_t, 2>{5, 3}));
  EXPECT_EQ(notes.data.at("x1").step, 0.25);
  EXPECT_EQ(notes.errors.at("1"), 0.5);
  EXPECT_EQ(notes.values, (std::vector<std::string>{"0", "1", "2"}));
  EXPECT_EQ(notes.written, std::vector<std::string>{"x2"});
  EXPECT_EQ(notes.outputs, (std::vector<std::string>{"0", "1"}));
  EXPECT_THROW(annotated("graph @f(%x0: f32[2]) {\n  %0 = aten.neg(%x0)\n  return %0\n}\n"),
               UserError);
}

TEST(Annotated, SmallerGraphsAreGraphs) {
  fuzz::Random random(5);
  for (size_t theme = 0; theme < theme_count(); ++theme)
    for (const std::string& text : smaller(write_graph(random, theme))) {
      EXPECT_NO_THROW(ir::parse_module(text, ops::op_table())) << text;
      EXPECT_NO_THROW(annotated(text)) << text;
    }
}

TEST(Graph, IsAFunctionOfItsSeed) {
  fuzz::Random one(3);
  fuzz::Random other(3);
  EXPECT_EQ(write_graph(one, 4), write_graph(other, 4));
}

/// A comparison that finds nothing proves nothing: here is something to find.
TEST(Roads, ADifferenceBeyondTheBoundIsTold) {
  const std::string text = R"(; data x0 -1000 1000 0.001
graph @f(%x0: f32[64, 3000]) {
  %0 = aten.sum.dim_IntList(%x0, [1])  ; 0
  return %0
}
)";
  Counts counts;
  EXPECT_THROW(run_roads(text, counts), std::logic_error);  // thousandths do not add exactly
  std::string bounded = text;
  bounded.replace(bounded.find("; 0\n"), 3, "; 1.1");  // 3000 * 3000 * 1 * 2^-23
  EXPECT_NO_THROW(run_roads(bounded, counts));
  EXPECT_GT(counts["roads"], 1);
}

/// Which size is the first one must not follow from what else the pool has held.
TEST(Roads, SizesOfAKernelStandInTheOrderOfItsText) {
  Counts counts;
  EXPECT_NO_THROW(run_roads(R"(; run s1 2 13
; run s2 3 3
; data x1 -3 3 1
; data x3 0 1 1
; gradients
graph @f(%x1: f32[s1] {input grad}, %x3: i64[s2]) where s1 in [2, 4096], s2 in [2, 4096] {
  %0 = aten.index_select(%x1, 0, %x3)  ; 0
  %3 = aten.relu(%0)  ; 0
  %4 = aten.sum(%3)  ; 0
  return %4
}
)",
                            counts));
}

}  // namespace
}  // namespace tandem::property
