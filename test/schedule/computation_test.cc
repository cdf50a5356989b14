// What ops say of themselves, kept as data.
#include "schedule/computation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "ir/text.h"
#include "loop/kernel.h"
#include "ops/opdef.h"

namespace tandem::schedule {
namespace {

struct Program {
  explicit Program(const std::string& text)
      : module(ir::parse_module(text, ops::op_table())),
        graph(*module->graphs()[0]),
        computations(module->pool()) {}
  const Computation& of_last() { return computations.of(graph.last()); }
  std::string text_of_last(size_t result = 0) {
    return loop::to_string(of_last().results[result].value);
  }

  std::unique_ptr<ir::Module> module;
  const ir::Graph& graph;
  Computations computations;
};

std::string graph_of(const std::string& line) {
  return "graph @f(%x: f32[3, 4], %y: f32[4], %h: bf16[3, 4], %i: i64[3], %a: f64) {\n  %r = " +
         line + "\n  return %r\n}\n";
}

std::vector<loop::Val> elements(const loop::Val value) {
  std::vector<loop::Val> found = loop::reachable(std::span(&value, 1));
  std::erase_if(found, [](loop::Val v) { return v->opcode != loop::Opcode::element; });
  return found;
}

TEST(Computation, ABroadcastOperandIsReadAtItsOwnDimensions) {
  Program program(graph_of("aten.add.Tensor(%x, %y)"));
  const Computation& sum = program.of_last();
  const std::vector<loop::Val> read = elements(sum.results[0].value);
  ASSERT_EQ(read.size(), 2U);
  const ops::Index& axes = sum.results[0].axes;
  for (const loop::Val element : read) {
    const bool is_row = program.computations.value(element->slot)->name == "y";
    EXPECT_EQ(element->at, is_row ? ops::Index{axes[1]} : axes);
  }
}

TEST(Computation, AViewIsItsIndexMap) {
  Program program(graph_of("aten.t(%x)"));
  const Computation& view = program.of_last();
  const std::vector<loop::Val> read = elements(view.results[0].value);
  ASSERT_EQ(read.size(), 1U);
  const ops::Index& axes = view.results[0].axes;
  EXPECT_EQ(read[0]->at, (ops::Index{axes[1], axes[0]}));
}

TEST(Computation, SixteenBitsAreReadInTheirComputeType) {
  Program program(graph_of("aten.exp(%h)"));
  EXPECT_EQ(elements(program.of_last().results[0].value)[0]->dtype, DType::f32);
}

TEST(Computation, AScalarInputHasNoPosition) {
  Program program(graph_of("aten.mul.Scalar(%x, %a)"));
  const std::vector<loop::Val> read = elements(program.of_last().results[0].value);
  ASSERT_EQ(read.size(), 2U);
  EXPECT_TRUE(std::ranges::any_of(read, [](loop::Val v) { return v->at.empty(); }));
}

TEST(Computation, AReductionHasInputsOverBothKindsOfAxes) {
  Program program(graph_of("aten.sum.dim_IntList(%x, [1], false, none)"));
  const Computation& sum = program.of_last();
  EXPECT_EQ(sum.kind, Computation::Kind::reduce);
  EXPECT_EQ(elements(sum.inputs[0])[0]->at, (ops::Index{sum.out[0], sum.reduce[0]}));
}

TEST(Computation, AGatherReadsWhereDataSays) {
  Program program(graph_of("aten.index_select(%x, 0, %i)"));
  const std::vector<loop::Val> read = elements(program.of_last().results[0].value);
  const auto gathers = [](loop::Val v) { return v->args.size() > (v->masked ? 1U : 0U); };
  EXPECT_EQ(std::ranges::count_if(read, gathers), 1);
  const std::vector<loop::Val> all =
      loop::reachable(std::span(&program.of_last().results[0].value, 1));
  const auto checks = std::ranges::find(all, loop::Opcode::check, &loop::Scalar::opcode);
  ASSERT_NE(checks, all.end());
  EXPECT_NE(program.computations.error_text((*checks)->slot).find("out of range"),
            std::string::npos);
}

TEST(Computation, IsMadeOnce) {
  Program program(graph_of("aten.exp(%x)"));
  EXPECT_EQ(&program.of_last(), &program.of_last());
}

TEST(Computation, NoKernelHasElements) {
  Program program(graph_of("aten.exp(%x)"));
  loop::Kernel kernel =
      loop::parse_kernel("kernel {\n buffer b0: f32 write\n stage {\n b0[0] = f32(1)\n }\n}\n");
  loop::ScalarPool& pool = *kernel.scalars;
  kernel.stages[0].body[0].value = pool.element(7, DType::f32, {0, 1});
  ASSERT_FALSE(loop::verify(kernel).empty());
  EXPECT_NE(loop::verify(kernel)[0].find("no address yet"), std::string::npos);
}

}  // namespace
}  // namespace tandem::schedule
