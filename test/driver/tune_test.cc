// Mappings chosen by time: equal results, a choice that is kept, and none where sizes are unknown.
#include "driver/tune.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>

#include "base/flags.h"
#include "ir/text.h"
#include "ops/opdef.h"

namespace tandem::driver {
namespace {

constexpr const char* kGraph = R"(graph @f(%x: f32[300, 512]) {
  %0 = aten.sum.dim_IntList(%x, [0], false, none)
  %1 = aten.relu(%x)
  return %0, %1
}
)";

std::unique_ptr<Executable> compiled(const char* text, bool tune) {
  const std::unique_ptr<ir::Module> module = ir::parse_module(text, ops::op_table());
  Options options;
  options.tune = tune;
  return compile(*module->graphs()[0], options);
}

runtime::Array ramp() {
  runtime::Array x = runtime::Array::zeros(DType::f32, std::vector<int64_t>{300, 512});
  for (int64_t i = 0; i < x.numel(); ++i) x.data<float>()[i] = static_cast<float>(i % 17) - 8;
  return x;
}

size_t files_in(const std::filesystem::path& folder, const std::string& ending) {
  size_t count = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
    count += entry.path().extension() == ending;
  return count;
}

class Tune : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() /
              ("tandem_tune_" + std::to_string(::getpid()) + "_" +
               testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(folder_);
    std::filesystem::permissions(folder_, std::filesystem::perms::owner_all);
    cache_.emplace(Flag::cache_dir, folder_.string());
  }
  void TearDown() override {
    cache_.reset();
    std::filesystem::remove_all(folder_);
  }

  std::filesystem::path folder_;
  std::optional<FlagOverride> cache_;
};

TEST_F(Tune, ResultsAreThoseWithout) {
  const std::vector<runtime::Argument> arguments{ramp()};
  const std::vector<runtime::Result> plain = compiled(kGraph, false)->run(arguments);
  const std::vector<runtime::Result> tuned = compiled(kGraph, true)->run(arguments);
  for (size_t i = 0; i < plain.size(); ++i) {
    const runtime::Array a = std::get<runtime::Array>(plain[i]);
    const runtime::Array b = std::get<runtime::Array>(tuned[i]);
    for (int64_t at = 0; at < a.numel(); ++at)  // sums of small integers: any order is exact
      ASSERT_EQ(a.data<float>()[at], b.data<float>()[at]) << i << " " << at;
  }
}

TEST_F(Tune, TheChoiceIsKept) {
  compiled(kGraph, true);
  const size_t kept = files_in(folder_, ".tune");
  EXPECT_GE(kept, 1U);
  compiled(kGraph, true);
  EXPECT_EQ(files_in(folder_, ".tune"), kept);
}

TEST_F(Tune, UnknownSizesKeepTheModelsChoice) {
  compiled(
      "graph @f(%x: f32[s0, 512]) where s0 in [2, 999] {\n  %0 = aten.relu(%x)\n"
      "  return %0\n}\n",
      true);
  EXPECT_EQ(files_in(folder_, ".tune"), 0U);
}

/// What is asked decides: a chooser that takes the last candidate gets it.
TEST(Chooser, MayTakeAnyCandidate) {
  const std::unique_ptr<ir::Module> module = ir::parse_module(kGraph, ops::op_table());
  GraphCtx ctx;
  run_passes(*module->graphs()[0], {}, ctx);
  std::vector<std::string> names;
  const schedule::Chooser last = [&](const std::vector<schedule::Candidate>& candidates,
                                     const std::vector<int64_t>& elements) {
    EXPECT_GE(candidates.size(), 2U);
    EXPECT_FALSE(elements.empty());
    names.push_back(candidates.back().name);
    return candidates.size() - 1;
  };
  const schedule::Scheduled made = schedule::schedule(*module->graphs()[0], target_of({}), last);
  ASSERT_FALSE(names.empty());
  EXPECT_NE(schedule::report(made).find("timed: " + names[0]), std::string::npos);
}

}  // namespace
}  // namespace tandem::driver
