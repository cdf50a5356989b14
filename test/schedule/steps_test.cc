// The steps of the room as passes: their order, their text, and what flags do to them.
#include <gtest/gtest.h>

#include <fstream>
#include <set>

#include "base/diagnostic.h"
#include "base/flags.h"
#include "ir/text.h"
#include "ops/opdef.h"
#include "schedule/schedule.h"
#include "schedule/text.h"

namespace tandem::schedule {
namespace {

constexpr const char* kSoftmax = R"(graph @softmax(%x: f32[8, 128]) {
  %0 = aten.amax(%x, [1], true)
  %1 = aten.sub.Tensor(%x, %0)
  %2 = aten.exp(%1)
  %3 = aten.sum.dim_IntList(%2, [1], true, none)
  %4 = aten.div.Tensor(%2, %3)
  return %4
}
)";

struct Scheduling {
  Scheduling()
      : module(ir::parse_module(kSoftmax, ops::op_table())), kernels(*module->graphs()[0], {}) {}
  std::unique_ptr<ir::Module> module;
  KernelGraph kernels;
};

std::string problem_with(Flag flag, const std::string& value) {
  const FlagOverride set(flag, value);
  Scheduling run;
  try {
    run_steps(run.kernels);
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

TEST(Steps, HaveNamesOfTheirOwn) {
  const std::vector<std::string_view> names = step_names();
  EXPECT_EQ(std::set<std::string_view>(names.begin(), names.end()).size(), names.size());
}

/// The page that shows the road leaves none out.
TEST(Steps, StandOnThePageInTheirOrder) {
  std::ifstream page(TANDEM_SOURCE_DIR "/docs/design.md");
  std::string line;
  while (std::getline(page, line) && !line.starts_with("   schedule  ")) continue;
  std::string road;
  for (std::string_view step : step_names()) road += std::string(step) + " ─► ";
  EXPECT_EQ(line, "   schedule  " + road + "emit_program");
}

TEST(Steps, LeaveOneKernelInOrder) {
  Scheduling run;
  run_steps(run.kernels);
  ASSERT_EQ(run.kernels.groups.size(), 1U);
  EXPECT_EQ(run.kernels.order, (LaunchOrder{{0}}));
  const std::string text = to_string(run.kernels);
  EXPECT_NE(text.find("item 1 map of %2"), std::string::npos) << text;
  EXPECT_NE(text.find("member 3 full stage 2"), std::string::npos) << text;
}

TEST(Steps, ANeededOneIsMissedByName) {
  EXPECT_EQ(problem_with(Flag::disable, "form_groups"),
            "step build_kernels needs form_groups, which is disabled");
  EXPECT_EQ(problem_with(Flag::disable, "materialize"),
            "step inline_values needs materialize, which is disabled");
}

TEST(Steps, OptionalOnesMayBeMissing) {
  for (const char* name : {"choose_layouts", "split_reductions", "compute_at_rows",
                           "compute_at_windows", "map_axes", "share_scratch", "fuse_horizontally"})
    EXPECT_EQ(problem_with(Flag::disable, name), "");
}

constexpr const char* kNeighbours = R"(graph @f(%x: f32[64, 256], %w: f32[256, 2048], %v: f32[64]) {
  %p = aten.mm(%x, %w)
  %r = aten.relu(%p)
  %n = aten.neg(%r)
  %s = aten.sum.dim_IntList(%n, [1], false, none)
  %k = aten.cumsum(%s, 0)
  %u = aten.add.Tensor(%k, %v)
  return %r, %s, %u
}
)";

std::string answer(const std::vector<std::string>& values) {
  const std::unique_ptr<ir::Module> module = ir::parse_module(kNeighbours, ops::op_table());
  return why(*module->graphs()[0], {}, values);
}

TEST(Why, TellsWhereAValueIsComputed) {
  EXPECT_NE(answer({"%n"}).find("inlined into its readers"), std::string::npos);
  EXPECT_NE(answer({"p"}).find("library declined: "), std::string::npos) << answer({"p"});
  EXPECT_NE(answer({"p"}).find("its kernel also computes aten.relu"), std::string::npos);
}

TEST(Why, TellsWhyTwoAreNotOneKernel) {
  EXPECT_NE(answer({"p", "r"}).find("they share a kernel"), std::string::npos);
  const std::string apart = answer({"k", "u"});
  EXPECT_NE(apart.find("aten.add.Tensor does not join the kernel of aten.cumsum: nothing joins a "
                       "library call, a scan or a scatter"),
            std::string::npos)
      << apart;
  EXPECT_NE(answer({"r", "s"}).find("aten.sum.dim_IntList does not join"), std::string::npos);
}

constexpr std::string_view kConvolutions = R"(
graph @f(%x: f32[2, 8, 6, 6], %w: f32[16, 8, 3, 3], %v: f32[16, 16, 1, 1]) {
  %a = aten.convolution(%x, %w, none, [1, 1], [1, 1], [1, 1], false, [0, 0], 1)
  %b = aten.relu(%a)
  %c = aten.convolution(%b, %v, none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1)
  %d, %i = aten.max_pool2d_with_indices(%c, [2, 2], [2, 2])
  return %d
}
)";

TEST(Why, TellsWhatRunsAlongALibraryCall) {
  const std::unique_ptr<ir::Module> module = ir::parse_module(kConvolutions, ops::op_table());
  const auto said = [&](const std::vector<std::string>& values) {
    return why(*module->graphs()[0], {}, values);
  };
  const std::string along = said({"a", "b"});
  EXPECT_NE(along.find("mapped by map_lines"), std::string::npos) << along;
  EXPECT_NE(along.find("relu along the lines of aten.convolution: taken"), std::string::npos)
      << along;
  const std::string apart = said({"c", "d"});
  EXPECT_NE(apart.find("along the lines of aten.convolution: it is not pointwise"),
            std::string::npos)
      << apart;
}

TEST(Why, ANameThatNothingMakesIsSaid) {
  EXPECT_THROW(answer({"%x"}), UserError);  // an input
  EXPECT_THROW(answer({"%zz"}), UserError);
}

TEST(Steps, StopIsSaid) {
  EXPECT_NE(problem_with(Flag::stop_after, "form_groups").find("TANDEM_DUMP=after:form_groups"),
            std::string::npos);
}

}  // namespace
}  // namespace tandem::schedule
