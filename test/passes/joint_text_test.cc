// A joint graph as two columns: what is said of which line of the model, and that it can be read
// where nothing has a place.
#include "passes/partition/joint_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "driver/compiler.h"
#include "ir/text.h"
#include "ops/opdef.h"
#include "passes/passes.h"

namespace tandem::passes {
namespace {

std::unique_ptr<ir::Module> joint_of(const std::string& text) {
  std::unique_ptr<ir::Module> module = ir::parse_module(text, ops::op_table());
  driver::GraphCtx ctx;
  for (std::string_view name : {"functionalize", "decompose_composite", "rng", "joint", "dce"})
    driver::run_pass(*module->graphs()[0], *driver::find_pass(name), ctx);
  return module;
}

TEST(JointText, ForwardBesideItsBackwardByLine) {
  const std::unique_ptr<ir::Module> module = joint_of(
      "graph @g(%x: f32[2, 3] {input grad}, %w: f32[3, 3]) {\n"
      "  %0 = aten.mm(%x, %w) loc(\"model.py:4\")\n"
      "  %1 = aten.tanh(%0) loc(\"model.py:5\")\n"
      "  return %1\n}\n");
  const ir::Graph& graph = *module->graphs()[0];
  const ir::Values saved = {graph.inputs()[1], graph.first()->next->results[0]};
  EXPECT_EQ(joint_text(graph, saved),
            "; joint graph @g: forward | backward; * is saved\n"
            "* %w: f32[3, 3]\n"
            "model.py:4\n"
            "  %0: f32[2, 3] = aten.mm(%x, %w)                                       "
            " | %3: f32[3, 3] = aten.transpose.int(%w, -2, -1)\n"
            "                                                                        "
            " | %4: f32[2, 3] = aten.mm(%2, %3)\n"
            "model.py:5\n"
            "* %1: f32[2, 3] = aten.tanh(%0)                                         "
            " | %2: f32[2, 3] = aten.tanh_backward(%tangent0, %1)\n");
}

TEST(JointText, LongLinesAndNoPlaces) {
  const std::unique_ptr<ir::Module> module = joint_of(
      "graph @g(%a_name_that_takes_all_of_a_column_and_more_than_that_in_two_places: f32[3] {input "
      "grad}) {\n"
      "  %0 = aten.sin(%a_name_that_takes_all_of_a_column_and_more_than_that_in_two_places)\n"
      "  return %0\n}\n");
  const std::string text = joint_text(*module->graphs()[0], {});
  EXPECT_THAT(text, testing::HasSubstr("… | %"));
  EXPECT_THAT(text, testing::Not(testing::HasSubstr("*  ")));
}

}  // namespace
}  // namespace tandem::passes
