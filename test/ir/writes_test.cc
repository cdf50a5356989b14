// Who writes what: one value written back to two inputs, an input that is only read, and one that
// is written and is a source as well.
#include "ir/writes.h"

#include <gtest/gtest.h>

#include "ir/text.h"
#include "ops/opdef.h"

namespace tandem::ir {
namespace {

TEST(Writes, AreFoundFromBothEnds) {
  const std::unique_ptr<Module> module = parse_module(
      "graph @g(%x: f32[4], %y: f32[4], %z: f32[4]) {\n"
      "  %0 = aten.exp(%x)\n"
      "  %1 = aten.sin(%z)\n"
      "  %2 = aten.copy_(%x, %0)\n"
      "  %3 = aten.copy_(%y, %0)\n"
      "  return %1\n"
      "}\n",
      ops::op_table());
  const Graph& graph = *module->graphs()[0];
  const Value* x = graph.inputs()[0];
  const Value* y = graph.inputs()[1];
  const Value* z = graph.inputs()[2];
  const Value* exp = graph.first()->results[0];
  const Value* sin = graph.first()->next->results[0];
  EXPECT_TRUE(is_written(x));
  EXPECT_TRUE(is_written(y));
  EXPECT_FALSE(is_written(z));
  EXPECT_EQ(write_back_target(exp), x);
  EXPECT_TRUE(is_written_back_to(exp, x));
  EXPECT_TRUE(is_written_back_to(exp, y));
  EXPECT_FALSE(is_written_back_to(exp, z));
  EXPECT_FALSE(is_written_back(sin));
  EXPECT_FALSE(is_written_back(x));
}

}  // namespace
}  // namespace tandem::ir
