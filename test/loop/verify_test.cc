// Each rule of the verifier, broken once.
#include <gtest/gtest.h>

#include "loop/kernel.h"

namespace tandem::loop {
namespace {

/// A kernel with one stage (and a second one, when given) over f32 b0 (read), b1 (write), b2
/// (scratch), i64 b3 (read).
std::string kernel_of(std::string_view stage, std::string_view second = "") {
  std::string text =
      "kernel {\n size n0 in [2, 100]\n buffer b0: f32 read\n buffer b1: f32 write\n"
      " buffer b2: f32[n0] scratch\n buffer b3: i64 read\n error 0 \"bad\"\n locals 3\n"
      " outer x0 < n0 task\n stage {\n" +
      std::string(stage) + "\n }\n";
  if (!second.empty()) text += " stage {\n" + std::string(second) + "\n }\n";
  return text + "}\n";
}

std::string problems_of(const Kernel& kernel) {
  std::string all;
  for (const std::string& problem : verify(kernel)) all += problem + "\n";
  return all;
}

TEST(Verify, AcceptsGoodKernels) {
  EXPECT_EQ(problems_of(parse_kernel(
                kernel_of("reduce r0 < n0 vector(8)\n%0: f32 = load b0[r0]\nl0 = sum %0\n"
                          "b2[r0] = %0\nafter\n%1: f32 = l0\nb1[x0] = %1",
                          "axis y0 < n0\n%0: f32 = load b2[y0]\n%1: f32 = l0\n"
                          "%2: f32 = div %0, %1\nb1[x0*n0 + y0] = %2"))),
            "");
  EXPECT_EQ(
      problems_of(parse_kernel(kernel_of("reduce r0 < n0\n%0: f32 = load b0[r0]\nl0 = scan sum %0\n"
                                         "%1: f32 = l0\nb1[x0*n0 + r0] = %1"))),
      "");
}

TEST(Verify, LanesBesideAPlaceFromDataAreApart) {
  EXPECT_EQ(problems_of(parse_kernel(kernel_of(
                "axis y0 < 4\naxis y1 < 16 vector(8)\n%0: i64 = load b3[y0]\nt0 < n0 = %0\n"
                "b2[t0*16 + y1] += f32(1)"))),
            "");
}

TEST(Verify, LanesMayHavePlacesOfTheirOwn) {
  const std::string lines = "axis y0 < 16 vector(8)\n%0: i64 = load b3[y0]\nt0 < n0 = %0\n";
  EXPECT_EQ(problems_of(parse_kernel(kernel_of(lines + "b2[t0*16 + y0] += f32(1)"))), "");
  EXPECT_NE(problems_of(parse_kernel(kernel_of(lines + "b2[t0*15 + y0] += f32(1)"))), "");
}

TEST(Verify, LanesMayHaveRangesOfTheirOwn) {
  const std::string lines = "axis y0 < 16 vector(8)\n%0: i64 = load b3[y0]\nt0 < 4 = %0\n";
  EXPECT_EQ(problems_of(parse_kernel(kernel_of(lines + "b2[t0 + y0*4] += f32(1)"))), "");
  EXPECT_EQ(problems_of(parse_kernel(kernel_of(lines + "b2[t0*2 + y0*8] += f32(1)"))), "");
  EXPECT_NE(problems_of(parse_kernel(kernel_of(lines + "b2[t0 + y0*3] += f32(1)"))), "");
}

TEST(Verify, WhatIsStoredBehindAReductionIsOfAllItsLanes) {
  const std::string sum = "axis y0 < 4\nreduce r0 < 16 vector(8)\n%0: f32 = load b0[r0]\n";
  const std::string in_scratch = "l0 = sum %0\nafter\n%1: f32 = l0\nb2[y0] += %1";
  EXPECT_EQ(problems_of(parse_kernel(kernel_of(sum + in_scratch))), "");
  const std::string at_each_lane = "l0 = sum %0\nb2[y0] += %0";
  EXPECT_NE(problems_of(parse_kernel(kernel_of(sum + at_each_lane)))
                .find("accumulating store under vector axis r0"),
            std::string::npos);
}

TEST(Verify, StagesMayShareAnAxis) {
  Kernel kernel = parse_kernel(kernel_of(
      "axis y0 < n0\nb2[y0] = f32(1)", "axis y1 < n0\n%0: f32 = load b2[y1]\nb1[x0*n0 + y1] = %0"));
  kernel.stages[1] = kernel.stages[0];
  EXPECT_EQ(problems_of(kernel), "");
}

/// What a round of a loop around the stages has left in scratch is there in the next one, of the
/// same task; what nothing stores, or another task has, is not.
TEST(Verify, ScratchIsKeptThroughLoopsInsideATask) {
  const std::string task = kernel_of("%0: f32 = load b2[0]\nb2[0] = %0\nb1[x0] = %0");
  const std::string from = "outer x0 < n0 task\n";
  std::string rounds = task;
  rounds.replace(rounds.find(from), from.size(), from + " outer x1 < 4\n");
  EXPECT_NE(problems_of(parse_kernel(task)).find("load of b2 before any store"), std::string::npos);
  EXPECT_EQ(problems_of(parse_kernel(rounds)), "");
  std::string unwritten = rounds;
  unwritten.replace(unwritten.find("b2[0] = %0\n"), 11, "");
  EXPECT_NE(problems_of(parse_kernel(unwritten)).find("load of b2 before any store"),
            std::string::npos);
}

struct Violation {
  std::string_view stage;
  std::string_view second;
  std::string_view problem;
};

const std::vector<Violation> kViolations = {
    {"axis y0 < 4 vector(4)\nreduce r0 < 4 vector(4)", "", "more than one vector axis"},
    {"axis y0 < 4 vector(3)", "", "lanes are no power of two"},
    {"axis y0 < 4 task", "", "a task axis inside a stage"},
    {"b0[x0] = f32(1)", "", "store to b0: it is read only"},
    {"b1[x0] = i64(1)", "", "store to b1: value is i64, buffer is f32"},
    {"b7[x0] = i64(1)", "", "store to b7: no such buffer"},
    {"%0: f64 = load b0[x0]\n%1: f32 = cast %0\nb1[x0] = %1", "", "load of b0: value is f64"},
    {"%0: f32 = load b9[x0]\nb1[x0] = %0", "", "load of b9: no such buffer"},
    {"%0: f32 = load b1[x0]\nb2[0] = %0", "", "load of b1 before any store"},
    {"%0: f32 = load b2[x0]\nb1[x0] = %0", "", "load of b2 before any store"},
    {"%0: f32 = l0\nb1[x0] = %0", "", "l0 is not readable here"},
    {"reduce r0 < 4\n%0: f32 = load b0[r0]\nl0 = sum %0\n%1: f32 = l0\nb1[r0] = %1", "",
     "l0 is not readable here"},
    {"axis y0 < 4\nreduce r0 < 4\n%0: f32 = load b0[r0]\nl0 = sum %0", "%0: f32 = l0\nb1[x0] = %0",
     "l0 is not readable here"},
    {"%0: f32 = load b0[0]\nl0 = sum %0\nafter\n%1: f64 = l0\n%2: f32 = cast %1\nb1[x0] = %2", "",
     "l0 has another type"},
    {"l0 = sum f32(1)\nl0 = sum f32(2)", "", "l0 is defined twice"},
    {"reduce r0 < 4\nafter\n%0: f32 = load b0[r0]\nb1[x0] = %0", "",
     "uses r0, which is not in scope"},
    {"reduce r0 < 4\nafter\nb1[r0] = f32(1)", "", "uses r0, which is not in scope"},
    {"reduce r1 < 4\nreduce r0 < 16 vector(8)\n%0: f32 = load b0[r0]\nl0 = scan sum %0", "",
     "a scan over lanes, and over another axis"},
    {"reduce r0 < 16 vector(8)\n%0: f32 = load b0[r0]\nl0 = scan dot %0, %0", "",
     "a scan of products over lanes"},
    {"l0 = sum bf16(1)", "", "sum of bf16"},
    {"l0 = any f32(1)", "", "any of f32: is over bool"},
    {"l0, l1 = argmin f32(1), f32(1)", "", "takes an i64 index"},
    {"l0 = dot f32(1), f64(1)", "", "dot of f32: takes two of one type"},
    {"l0 = dot bf16(1), bf16(1)", "", "dot of bf16: accumulates in that type"},
    {"%0: bf16 = add bf16(1), bf16(2)\nl0 = min %0", "", "add: does not take bf16"},
    {"%0: i64 = load b3[0]\n%1: i64 = exp %0\nl0 = min %1", "", "exp: does not take i64"},
    {"%0: f32 = load b0[0]\n%1: bool = lt %0, f32(0)\n%2: bool = add %1, bool(true)\nl0 = any %2",
     "", "add: does not take bool"},
    {"%0: i64 = load b3[0]\n%1: i32 = philox %0, %0, i32(1)\nl0 = min %1", "", "element are i64"},
    {"%0: i64 = load b3[0]\n%1: bool = lt %0, i64(3)\n%2: i64 = check %1, %0, error 4\nl0 = min %2",
     "", "error 4 has no text"},
    {"%0: i64 = load b3[0]\n%1: i64 = check %0, %0, error 0\nl0 = min %1", "",
     "condition is no bool"},
    {"axis y0 < n0\nb2[y0] = f32(1)\n%0: f32 = load b2[0]\nb1[y0] = %0", "",
     "load of b2[0] in the stage that stores it at [y0]"},
    {"axis y0 < -1\nb1[x0] = f32(1)", "", "y0 has a negative extent"},
    {"axis y0 < 16 vector(8)\nb2[0] += f32(1)", "", "accumulating store under vector axis y0"},
    {"axis y0 < 16 vector(8)\n%0: i64 = load b3[y0]\nt0 < n0 = %0\nb2[t0] += f32(1)", "",
     "accumulating store under vector axis y0"},
    {"b1[0] += f32(1)", "", "tasks of x0 accumulate into one element"},
};

TEST(Verify, NamesWhatIsWrong) {
  for (const Violation& violation : kViolations) {
    Kernel kernel = parse_kernel(kernel_of(violation.stage, violation.second));
    std::string problems = problems_of(kernel);
    EXPECT_NE(problems.find(violation.problem), std::string::npos)
        << violation.stage << "\ngives: " << problems;
  }
}

TEST(Verify, KindsKeepTheirPromise) {
  const auto problems = [](std::string_view kind, std::string_view body) {
    std::string text = kernel_of(body);
    text.replace(text.find("stage {"), 7, "stage " + std::string(kind) + " {");
    return problems_of(parse_kernel(text));
  };
  const std::string sum = "axis y0 < n0\nreduce r0 < 4\n%0: f32 = load b0[y0 + r0]\nl0 = sum %0\n";
  EXPECT_EQ(problems("footprint", sum + "after\n%1: f32 = l0\nb2[y0] = %1"), "");
  EXPECT_NE(problems("footprint", sum + "after\n%1: f32 = l0\nb1[y0] = %1")
                .find("a footprint is one reduction, stored once to scratch"),
            std::string::npos);
  EXPECT_NE(problems("gather", "axis y0 < n0\naxis y1 < 4\nb2[y0] = f32(1)")
                .find("a gather is one store of an fma under two axes"),
            std::string::npos);
}

TEST(Verify, MarksHaveWhatTheySpell) {
  const auto says = [](std::string_view body, std::string_view problem) {
    const std::string found = problems_of(parse_kernel(kernel_of(body)));
    EXPECT_NE(found.find(problem), std::string::npos) << body << "\n" << found;
  };
  const std::string load = "%0: f32 = load b0[y0*4 + y1]\n";
  const auto under = [&](const std::string& tile) {
    return "axis y0 < 8 vector(8)\naxis y1 < 4 " + tile + "\n" + load;
  };
  EXPECT_EQ(problems_of(parse_kernel(kernel_of(under("interleave(4)") + "b1[y0*4 + y1] = %0"))),
            "");
  EXPECT_EQ(problems_of(parse_kernel(kernel_of(under("transpose(8)") + "b1[y0 + y1*8] = %0"))), "");
  says(under("interleave(4)") + "b1[y0*5 + y1] = %0", "does not lie point by point");
  says(under("interleave(2)") + "b1[y0*4 + y1] = %0", "does not lie point by point");
  says(
      "axis y0 < 8 vector(8)\naxis y1 < 4 transpose(8)\n%0: f32 = load b0[y0 + y1*8]\n"
      "b1[y0 + y1*8] = %0",
      "nothing is transposed");
  says("axis y1 < 4 interleave(4)\naxis y0 < 8 vector(8)\n" + load + "b1[y0*4 + y1] = %0",
       "is not the last axis");
  says("axis y0 < 4 written_out\nb1[y0] = f32(1)", "reduces nothing");
  says("axis y0 < 4 stride(2)\nb1[y0] = f32(1)", "has marks of lanes");
  const std::string sum = "%0: f32 = load b0[r0]\nl0 = sum %0\nafter\n%1: f32 = l0\nb1[x0] = %1";
  says("reduce r0 < n0 written_out\n" + sum, "has no few known steps");
  says("reduce r0 < 65 written_out\n" + sum, "has no few known steps");
  says("reduce r1 < 9 written_out\nreduce r0 < 9 written_out\n" + sum, "too many steps");
}

TEST(Verify, WhatTextCannotSay) {
  Kernel kernel = parse_kernel(kernel_of("b1[x0] = f32(1)"));
  kernel.buffers[2].elements = 0;
  EXPECT_NE(problems_of(kernel).find("scratch buffer b2 has no extent"), std::string::npos);
  kernel.outer[0].kind = AxisKind::vector;
  EXPECT_NE(problems_of(kernel).find("an outer axis is vector"), std::string::npos);
  kernel.sizes.push_back(4);
  EXPECT_NE(problems_of(kernel).find("size argument 4 is no symbol"), std::string::npos);
  kernel.stages[0].axes = {kernel.outer[0]};
  EXPECT_NE(problems_of(kernel).find("axis x0 is declared twice"), std::string::npos);
  kernel.stages[0].reductions = {{Combiner::argmin, {kernel.scalars->local(0, DType::f32)}, 0}};
  EXPECT_NE(problems_of(kernel).find("argmin has the wrong number of inputs"), std::string::npos);
  kernel.scalars = nullptr;
  EXPECT_EQ(problems_of(kernel), "the kernel has no scalar pool\n");
}

TEST(Verify, WhatGoesPastTheCachesFillsRegistersAndIsWrittenOnce) {
  const auto problems = [](const std::string& store, const std::string& access = "write") {
    return problems_of(parse_kernel("kernel {\n size n0 in [2, 100]\n buffer b0: f32 " + access +
                                    "\n outer x0 < n0 task\n stage {\n axis y0 < 64 vector(16)\n" +
                                    store + "\n }\n}\n"));
  };
  const std::string one = " = f32(1) nontemporal";
  EXPECT_EQ(problems("b0[x0*64 + y0]" + one), "");
  const std::string apart = "what goes past the caches starts at a multiple of a register";
  EXPECT_NE(problems("b0[x0*63 + y0]" + one).find(apart), std::string::npos);
  EXPECT_NE(problems("b0[x0*64 + y0 + 1]" + one).find(apart), std::string::npos);
  EXPECT_NE(problems("b0[x0*128 + y0*2]" + one).find(apart), std::string::npos);
  EXPECT_NE(problems("b0[x0*64 + y0]" + one, "read_write").find("is written once"),
            std::string::npos);
}

}  // namespace
}  // namespace tandem::loop
