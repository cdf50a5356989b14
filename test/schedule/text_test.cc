// The text form of kernel graphs: what is wrong in it is said with its line.
#include "schedule/text.h"

#include <gtest/gtest.h>

#include "base/diagnostic.h"
#include "ir/text.h"
#include "ops/opdef.h"

namespace tandem::schedule {
namespace {

constexpr const char* kGraph = R"(graph @f(%x: f32[s0, 4], %a: f64) where s0 in [1, 64] {
  %0 = aten.mul.Scalar(%x, %a)
  %1 = aten.sum.dim_IntList(%0, [1], false, none)
  return %1
}
)";

constexpr const char* kKernels = R"(kernels @f {
item 0 reduce of %1 "not pointwise"
  slot %1 f32[s0]
  combiner sum
  reduces [4]
  of [s0, 4]
  dims 1
  values %x, %a
  sizes s0
kernel {
  size n0 in [1, 64]
  locals 1
  outer x0 < n0
  stage {
    reduce r0 < 4
    %0: f32 = element v0[x0, r0]
    %1: f64 = element v1[]
    %2: f32 = cast %1
    %3: f32 = mul %0, %2
    l0 = sum %3
  }
}
}
)";

/// The problem with the text; empty where it reads.
std::string problem_with(const std::string& text) {
  const std::unique_ptr<ir::Module> module = ir::parse_module(kGraph, ops::op_table());
  KernelGraph graph(*module->graphs()[0], {});
  try {
    parse_kernel_graph(graph, text);
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

std::string with(const std::string& old, const std::string& text) {
  std::string changed = kKernels;
  const size_t at = changed.find(old);
  EXPECT_NE(at, std::string::npos) << old;
  return changed.replace(at, old.size(), text);
}

TEST(KernelGraphText, ReadsWhatPeopleWrite) { EXPECT_EQ(problem_with(kKernels), ""); }

TEST(KernelGraphText, AStepGoesOnFromText) {
  const std::unique_ptr<ir::Module> module = ir::parse_module(kGraph, ops::op_table());
  const ir::Graph& graph = *module->graphs()[0];
  std::string text = kKernels;
  for (const char* step : {"form_groups", "build_kernels", "map_axes", "fuse_horizontally"})
    text = after_step(graph, {}, step, text);
  EXPECT_NE(text.find("outer x0 < n0 task"), std::string::npos) << text;
  EXPECT_NE(text.find("scalar$a"), std::string::npos) << text;
  EXPECT_EQ(text, after_step(graph, {}, "fuse_horizontally"));
}

TEST(KernelGraphText, SaysWhereItIsWrong) {
  EXPECT_NE(problem_with(with("item 0", "item 1")).find("line 2: items count up"),
            std::string::npos);
  EXPECT_NE(problem_with(with("of %1", "of %x")).find("nothing makes an input"), std::string::npos);
  EXPECT_NE(problem_with(with("slot %1", "slot %0")).find("line 3: another node makes it"),
            std::string::npos);
  EXPECT_NE(problem_with(with("combiner sum", "combiner plus")).find("line 4: "),
            std::string::npos);
  EXPECT_NE(problem_with(with("values %x, %a", "values %x")).find("no such value"),
            std::string::npos);
  EXPECT_NE(problem_with(with("v0[x0, r0]", "v0[x0, r9]")).find("line 16: no symbol r9"),
            std::string::npos);
  EXPECT_NE(problem_with(with("  sizes s0\n", "")).find("a size for each"), std::string::npos);
  EXPECT_NE(problem_with("kernels @g {\n}\n").find("not of @f"), std::string::npos);
  EXPECT_NE(problem_with("kernels @f {\n").find("ends before its `}`"), std::string::npos);
}

TEST(KernelGraphText, ObeysTheRulesOfKernelGraphs) {
  EXPECT_NE(problem_with(with("v0[x0, r0]", "v0[x0]")).find("reads %x with 1 indices"),
            std::string::npos);
  EXPECT_NE(problem_with(with("f32[s0]\n", "f32[7]\n")).find("has another type"),
            std::string::npos);
  EXPECT_NE(problem_with(with("values %x", "values %0")).find("reads %0, which has no place"),
            std::string::npos);
  EXPECT_NE(problem_with(with("dims 1", "dims 9"))
                .find("line 2: item 0: aten.sum.dim_IntList has other sizes"),
            std::string::npos);
}

constexpr const char* kReader = R"(item N map of %1 "it is a result of the graph"
  slot %1 f32[3] stored
  values %x, %0
kernel {
  buffer b0: f32 write
  outer x0 < 3
  stage {
    %0: f32 = element v0[x0]
    %1: i64 = element v1[]
    %2: f32 = cast %1
    %3: f32 = mul %0, %2
    b0[x0] = %3
  }
}
)";
constexpr const char* kRead =
    "item N library of %0 \"library call\"\n  slot %0 i64[]\n  route 13\n";

/// A kernel computes with a number that the program reads from memory, once it has been read.
TEST(KernelGraphText, ReadsNumbersBehindWhatMakesThem) {
  const std::unique_ptr<ir::Module> module = ir::parse_module(
      "graph @f(%x: f32[3], %n: i64[]) {\n  %0 = tandem.read_scalar(%n)\n"
      "  %1 = aten.mul.Scalar(%x, %0)\n  return %1\n}\n",
      ops::op_table());
  const auto problem = [&](std::string first, std::string second) {
    first.replace(first.find('N'), 1, "0");
    second.replace(second.find('N'), 1, "1");
    KernelGraph graph(*module->graphs()[0], {});
    try {
      parse_kernel_graph(graph, "kernels @f {\n" + first + second + "}\n");
    } catch (const UserError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(problem(kRead, kReader), "");
  EXPECT_NE(problem(kReader, kRead).find("reads number %0, which no earlier item makes"),
            std::string::npos);
}

/// A sum over nothing has no axes of any kind, and is said all the same.
TEST(KernelGraphText, KeepsASumOfOneNumber) {
  const std::unique_ptr<ir::Module> module = ir::parse_module(
      "graph @f(%x: f32[]) {\n  %0 = aten.sum.dim_IntList(%x, [], false, none)\n  return %0\n}\n",
      ops::op_table());
  const ir::Graph& graph = *module->graphs()[0];
  const std::string text = after_step(graph, {}, "inline_values");
  EXPECT_NE(text.find("l0 = sum"), std::string::npos) << text;
  EXPECT_EQ(after_step(graph, {}, "fuse_horizontally", after_step(graph, {}, "map_axes")),
            after_step(graph, {}, "fuse_horizontally"));
}

TEST(KernelGraphText, AStageFollowsThoseBefore) {
  const std::unique_ptr<ir::Module> module = ir::parse_module(kGraph, ops::op_table());
  std::string text = after_step(*module->graphs()[0], {}, "form_groups");
  const std::string member = "member 0 full stage 0";
  text.replace(text.find(member), member.size(), "member 0 full stage 2000000000");
  EXPECT_NE(problem_with(text).find("in the next one"), std::string::npos);
}

/// An input begins anywhere; a processor would fault.
TEST(KernelGraphText, OnlyOwnMemoryIsStoredPastTheCaches) {
  const std::unique_ptr<ir::Module> module = ir::parse_module(
      "graph @f(%x: f32[64], %y: f32[64]) {\n  %0 = aten.neg(%y)\n  %1 = aten.copy_(%x, %0)\n"
      "  %2 = aten.relu(%y)\n  return %2\n}\n",
      ops::op_table());
  Target target;
  target.vector_bytes = 32;
  const std::string text = after_step(*module->graphs()[0], target, "mark_memory");
  const auto problem_of = [&](const std::string& store) {
    std::string changed = text;
    const size_t at = changed.find(store);
    EXPECT_NE(at, std::string::npos) << store << " in " << text;
    changed.insert(changed.find('\n', at), " nontemporal");
    KernelGraph graph(*module->graphs()[0], target);
    try {
      parse_kernel_graph(graph, changed);
    } catch (const UserError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const std::string problem = problem_of("b1[y0] = ");
  EXPECT_NE(problem.find("buffer 1 is no result with memory of its own"), std::string::npos)
      << problem << text;
  EXPECT_EQ(problem_of("b2[y0] = "), "");
}

TEST(KernelGraphText, AStepThatIsNoneIsSaid) {
  const std::unique_ptr<ir::Module> module = ir::parse_module(kGraph, ops::op_table());
  EXPECT_THROW(after_step(*module->graphs()[0], {}, "fuse"), UserError);
}

}  // namespace
}  // namespace tandem::schedule
