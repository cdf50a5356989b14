// What each step does to a kernel graph, asked of its data; goldens show the same as text
// (test/golden/schedule/steps). Mapping strategies are in map_test.cc, costs in cost_test.cc.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "base/diagnostic.h"
#include "base/flags.h"
#include "ir/text.h"
#include "loop/stage.h"
#include "ops/opdef.h"
#include "schedule/fuse_horizontally.h"
#include "schedule/schedule.h"
#include "schedule/steps.h"
#include "schedule/strided.h"

namespace tandem::schedule {
namespace {

/// A graph as a step leaves it; all steps where none is named.
struct After {
  explicit After(const std::string& text, const std::string& step = "", const Target& target = {})
      : module(ir::parse_module(text, ops::op_table())), kernels(*module->graphs()[0], target) {
    const FlagOverride stop(Flag::stop_after, step);
    try {
      run_steps(kernels);
    } catch (const UserError& error) {
      if (step.empty()) throw;  // else it says where it stopped
    }
  }

  const ir::Value* value(const std::string& name) const {
    const DenseMap<ir::Value, std::string> names = ir::value_names(*kernels.graph);
    for (const ir::Node* node = kernels.graph->first(); node != nullptr; node = node->next)
      for (const ir::Value* result : node->results)
        if (names.at(result) == name) return result;
    throw UserError("no " + name);
  }
  const Item* item(const std::string& name) const { return kernels.homes.at(value(name)).item; }

  std::unique_ptr<ir::Module> module;
  KernelGraph kernels;
};

std::vector<loop::Axis> axes_of(const KernelGraph& graph) {
  std::vector<loop::Axis> axes;
  for (const Group& group : graph.groups)
    for (const loop::Stage& stage : group.kernel.stages)
      for (const std::vector<loop::Axis>* each : {&stage.axes, &stage.reduce_axes})
        axes.insert(axes.end(), each->begin(), each->end());
  return axes;
}

size_t scratch_buffers(const KernelGraph& graph) {
  size_t count = 0;
  for (const Group& group : graph.groups)
    count += static_cast<size_t>(
        std::ranges::count(group.kernel.buffers, loop::Access::scratch, &loop::Buffer::access));
  return count;
}

constexpr const char* kShared = R"(graph @f(%x: f32[64, 256]) {
  %e = aten.exp(%x)
  %n = aten.neg(%x)
  %s = aten.sum.dim_IntList(%e, [1], false, none)
  %t = aten.sum.dim_IntList(%e, [0], false, none)
  %u = aten.amax(%n, [1], false)
  %v = aten.amax(%n, [0], false)
  return %s, %t, %u, %v
}
)";

TEST(Materialize, WhatIsDearToComputeTwiceGetsAPlace) {
  const After made(kShared, "materialize");
  ASSERT_NE(made.item("e"), nullptr);
  EXPECT_EQ(made.item("e")->reason, "several kernels or stages read it");
  EXPECT_EQ(made.item("n"), nullptr);  // one operation, of one operand
  EXPECT_EQ(made.item("s")->kind, Item::Kind::reduce);
}

TEST(InlineValues, AComputationReadsPlacesAndInputsOnly) {
  const After made(kShared, "inline_values");
  std::set<std::string> read;
  for (const loop::Val part : loop::reachable(made.item("u")->computation.inputs))
    if (part->opcode == loop::Opcode::element)
      read.insert(made.kernels.computations.value(part->slot)->name);
  EXPECT_EQ(read, (std::set<std::string>{"x"}));
}

constexpr const char* kConvolutions = R"(
graph @f(%x: f32[4, 3, 16, 16], %w: f32[32, 3, 3, 3], %v: f32[32, 32, 1, 1]) {
  %a = aten.convolution(%x, %w, none, [1, 1], [1, 1], [1, 1], false, [0, 0], 1)
  %b = aten.relu(%a)
  %c = aten.convolution(%b, %v, none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1)
  return %c
}
)";

TEST(ChooseLayouts, BetweenConvolutionsChannelsLieLast) {
  const After made(kConvolutions, "choose_layouts");
  const Slot& between = made.item("b")->slots[0];
  EXPECT_EQ(between.strides, channels_last_strides(between.sizes));
  const Slot& result = made.item("c")->slots[0];  // leaves as its signature says
  EXPECT_EQ(result.strides, ir::contiguous_strides(result.sizes));
}

TEST(SplitReductions, BlocksFollowFromTheShape) {
  const char* const sum = R"(graph @f(%x: f32[100000]) {
  %s = aten.sum.dim_IntList(%x, [0], false, none)
  return %s
}
)";
  std::set<std::string> blocks;
  for (const int cores : {1, 8, 64}) {
    Target target;
    target.cores = cores;
    const After made(sum, "split_reductions", target);
    const Item* parts = made.item("s")->partial_of;
    ASSERT_NE(parts, nullptr);
    blocks.insert(sym::to_string(parts->slots[0].sizes[0]));
  }
  EXPECT_EQ(blocks.size(), 1U);
  const After columns(kShared, "split_reductions");
  EXPECT_EQ(columns.item("t")->partial_of, nullptr);  // results enough, and few rows
}

TEST(FormGroups, AReadElsewhereKeepsTwoKernels) {
  const After made(kShared, "form_groups");
  const std::vector<uint32_t>& group_of = made.kernels.decisions.group_of;
  EXPECT_EQ(group_of[made.item("e")->id], group_of[made.item("s")->id]);
  EXPECT_NE(group_of[made.item("e")->id], group_of[made.item("t")->id]);
  EXPECT_TRUE(std::ranges::any_of(made.kernels.decisions.joins, [](const JoinDecision& join) {
    return join.taken && join.cost.together.launches < join.cost.apart.launches;
  }));
}

/// Reasons for which joins were declined.
std::set<std::string> declined_for(const std::string& text, int cores) {
  Target target;
  target.cores = cores;
  const After made(text, "form_groups", target);
  std::set<std::string> reasons;
  for (const JoinDecision& join : made.kernels.decisions.joins)
    if (!join.taken) reasons.insert(join.reason);
  return reasons;
}

TEST(FormGroups, AFewLongRowsAreOneKernelWhereNoCoreWaitsForThem) {
  const char* const rows = R"(graph @f(%x: f32[2, 30000]) {
  %m = aten.amax(%x, [1], true)
  %d = aten.sub.Tensor(%x, %m)
  %e = aten.exp(%d)
  return %e
}
)";
  EXPECT_EQ(declined_for(rows, 2).count("apart they cost less"), 0U);
  EXPECT_EQ(declined_for(rows, 64).count("apart they cost less"), 1U);
}

TEST(BuildKernels, KernelsAreLegalAndSerial) {
  const After made(kShared, "build_kernels");
  for (const Group& group : made.kernels.groups) {
    EXPECT_TRUE(loop::verify(group.kernel).empty());
    for (const loop::Axis& axis : group.kernel.outer) EXPECT_EQ(axis.kind, loop::AxisKind::serial);
  }
}

constexpr const char* kAttention = R"(
graph @f(%q: f32[2, 64, 32], %k: f32[2, 32, 64], %v: f32[2, 64, 32]) {
  %s = aten.bmm(%q, %k)
  %m = aten.amax(%s, [2], true)
  %d = aten.sub.Tensor(%s, %m)
  %e = aten.exp(%d)
  %n = aten.sum.dim_IntList(%e, [2], true, none)
  %w = aten.div.Tensor(%e, %n)
  %o = aten.bmm(%w, %v)
  return %o
}
)";

TEST(ComputeAtRows, ScoresAreScratchOfOneKernel) {
  EXPECT_GT(After(kAttention, "build_kernels").kernels.groups.size(), 1U);
  const After made(kAttention, "compute_at_rows");
  ASSERT_EQ(made.kernels.groups.size(), 1U);
  EXPECT_EQ(made.kernels.groups[0].kind, Group::Kind::chain);
  EXPECT_GT(scratch_buffers(made.kernels), 0U);
}

TEST(ShareScratch, WhatHasEndedMakesRoom) {
  EXPECT_LT(scratch_buffers(After(kAttention, "share_scratch").kernels),
            scratch_buffers(After(kAttention, "map_axes").kernels));
}

constexpr const char* kWide = R"(
graph @wide(%x: f32[2, 8, 120, 120], %a: f32[32, 8, 1, 1], %w: f32[32, 1, 3, 3],
            %b: f32[16, 32, 1, 1]) {
  %p = aten.convolution(%x, %a, none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1)
  %r = aten.relu(%p)
  %d = aten.convolution(%r, %w, none, [2, 2], [1, 1], [1, 1], false, [0, 0], 32)
  %u = aten.relu(%d)
  %l = aten.convolution(%u, %b, none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1)
  return %l
}
)";

const ComputeAtDecision* decision_about(const After& made, const std::string& name) {
  for (const ComputeAtDecision& at : made.kernels.decisions.compute_at)
    if (at.item == made.item(name)->id) return &at;
  return nullptr;
}

TEST(ComputeAtWindows, AWideImageIsSummedWhereItIsRead) {
  const After made(kWide, "compute_at_windows");
  EXPECT_EQ(made.item("p")->kind, Item::Kind::reduce);  // no library call any more
  const ComputeAtDecision* taken = decision_about(made, "p");
  ASSERT_TRUE(taken != nullptr && taken->taken && taken->cost);
}

TEST(ComputeAtWindows, WhatNoStrategyTakesIsSaidByAllOfThem) {
  const FlagOverride without(Flag::disable, "map_window");
  const After made(kWide, "");
  EXPECT_EQ(made.item("p")->kind, Item::Kind::library);
  const ComputeAtDecision* declined = decision_about(made, "p");
  ASSERT_TRUE(declined != nullptr && !declined->taken);
  EXPECT_EQ(declined->reason,
            "no windows slide over it (map_window: it is disabled; map_groups: its groups are no "
            "sums of integers)");
}

TEST(ComputeAtGroups, SumsOfGroupsNeedNoMemory) {
  const char* const joined = R"(
graph @f(%x: i8[3, 64], %s: f32[1, 3, 2, 1], %w: i32[1, 8, 32], %v: f32[2, 32]) {
  %g = tandem.group_sums(%x, %w, 32, 4, 4)
  %h = aten.reshape(%g, [1, 3, 2, 32])
  %c = aten._to_copy(%h, f32)
  %m = aten.mul.Tensor(%c, %v)
  %n = aten.mul.Tensor(%m, %s)
  %r = aten.sum.dim_IntList(%n, [1, 2])
  return %r
}
)";
  Target target;
  target.features = "+avx512f,+avx512vnni";
  const size_t before = After(joined, "compute_at_windows", target).kernels.groups.size();
  const After made(joined, "compute_at_groups", target);
  EXPECT_EQ(made.kernels.groups.size() + 1, before);
  ASSERT_NE(decision_about(made, "g"), nullptr);
  EXPECT_TRUE(decision_about(made, "g")->taken);
}

TEST(FollowCalls, APointwiseKernelRunsAlongItsConvolution) {
  const After made(kConvolutions, "follow_calls");
  const auto follower = std::ranges::find_if(made.kernels.groups,
                                             [](const Group& g) { return g.follows.has_value(); });
  ASSERT_NE(follower, made.kernels.groups.end());
  EXPECT_EQ(follower->follows->lines, 4 * 16);  // images times rows
  EXPECT_TRUE(made.kernels.groups[follower->follows->call].is_library());
}

TEST(MarkLoops, OnlySpellingChanges) {
  const char* const windows = R"(graph @f(%i: f32[1, 2, 33, 33]) {
  %o = aten.avg_pool2d(%i, [3, 3], [2, 2], [0, 0], false, true, none)
  return %o
}
)";
  const auto written_out = [](const loop::Axis& axis) {
    return axis.steps == loop::Steps::written_out;
  };
  const std::vector<loop::Axis> before = axes_of(After(windows, "share_scratch").kernels);
  const std::vector<loop::Axis> after = axes_of(After(windows, "mark_loops").kernels);
  EXPECT_FALSE(std::ranges::any_of(before, written_out));
  EXPECT_TRUE(std::ranges::any_of(after, written_out));
  ASSERT_EQ(before.size(), after.size());
  for (size_t i = 0; i < after.size(); ++i) EXPECT_EQ(before[i].kind, after[i].kind);
}

TEST(MarkMemory, WhatNoCacheHoldsGoesPastThem) {
  const auto goes_past = [](const std::string& sizes) {
    const After made("graph @f(%x: f32" + sizes + ") {\n  %r = aten.relu(%x)\n  return %r\n}\n",
                     "mark_memory");
    return made.kernels.groups[0].kernel.stages[0].body[0].nontemporal;
  };
  EXPECT_TRUE(goes_past("[4096, 4096]"));
  EXPECT_FALSE(goes_past("[64, 64]"));
}

GroupUse pointwise(std::vector<const void*> reads, std::vector<const void*> writes) {
  return {std::move(reads), std::move(writes), true, true, false};
}

TEST(SideBySide, WhatNeedsNothingOfTheOthersIsOneStep) {
  const int a = 0, b = 0, c = 0;
  const std::vector<GroupUse> uses{pointwise({}, {&a}), pointwise({&a}, {&b}), pointwise({}, {&c})};
  EXPECT_EQ(order_of(uses), (LaunchOrder{{0, 2}, {1}}));
  EXPECT_STREQ(why_apart(uses, 0, 1), "what stands between uses its memory");
}

TEST(SideBySide, NothingPassesALibraryCallOrWhatMayFail) {
  const int a = 0, b = 0, c = 0;
  std::vector<GroupUse> uses{pointwise({}, {&a}), {}, pointwise({}, {&b})};
  EXPECT_EQ(order_of(uses), (LaunchOrder{{0}, {1}, {2}}));
  EXPECT_STREQ(why_apart(uses, 0, 2), "a library call stands between");
  uses[1] = pointwise({}, {&c});
  uses[1].can_fail = true;
  uses[1].is_pointwise = false;
  EXPECT_EQ(order_of(uses), (LaunchOrder{{0}, {1}, {2}}));
  EXPECT_STREQ(why_apart(uses, 0, 2), "what stands between may fail");
}

TEST(EmitProgram, EqualKernelsAreOne) {
  const std::unique_ptr<ir::Module> module = ir::parse_module(R"(
graph @f(%x: f32[64, 256], %y: f32[64, 256]) {
  %a = aten.cumsum(%x, 0)
  %b = aten.cumsum(%y, 0)
  return %a, %b
}
)",
                                                              ops::op_table());
  EXPECT_EQ(schedule(*module->graphs()[0], {}).kernels.size(), 1U);
}

TEST(Bisect, CountsStepsThatMayBeMissing) {
  const auto kind_with = [](const std::string& value) {
    const FlagOverride set(Flag::bisect, value);
    const After made(kShared);
    return made.kernels.groups[0].kernel.outer.empty()
               ? loop::AxisKind::serial
               : made.kernels.groups[0].kernel.outer[0].kind;
  };
  EXPECT_EQ(kind_with("schedule:0"), loop::AxisKind::serial);
  EXPECT_EQ(kind_with("schedule:100"), loop::AxisKind::task);
  EXPECT_EQ(kind_with("1"), loop::AxisKind::task);  // of the graph's passes
}

TEST(Why, AllTellsOfEachCallAndEachTwoKernels) {
  const std::unique_ptr<ir::Module> module = ir::parse_module(R"(
graph @f(%x: f32[16, 4096], %w: f32[4096, 512]) {
  %r = aten.exp(%x)
  %p = aten.mm(%r, %w)
  %s = aten.sum.dim_IntList(%p, [0], false, none)
  return %p, %s
}
)",
                                                              ops::op_table());
  const Scheduled made = schedule(*module->graphs()[0], {}, {}, true);
  EXPECT_NE(made.answers.find("library taken: 16 rows, sums of 4096 terms in f32: loops are as "
                              "fast up to "),
            std::string::npos)
      << made.answers;
  EXPECT_NE(made.answers.find("%p and %s:\naten.sum.dim_IntList does not join the kernel of "
                              "aten.mm: nothing joins a library call"),
            std::string::npos)
      << made.answers;
  EXPECT_NE(made.answers.find("%r and %p:\naten.mm is a library call, which reads memory"),
            std::string::npos)
      << made.answers;
  EXPECT_NE(report(made).find("why:\n"), std::string::npos);
  EXPECT_EQ(schedule(*module->graphs()[0], {}).answers, "");
}

}  // namespace
}  // namespace tandem::schedule
