// Rates that are measured: what they are of, that they are kept, and where they are not to be had.
#include "driver/machine_rates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/flags.h"
#include "driver/compiler.h"
#include "ir/text.h"
#include "ops/opdef.h"
#include "test/driver/models.h"

namespace tandem::driver {
namespace {

namespace fs = std::filesystem;

/// With a number of cores that no other test measures for.
Target other_target(int cores) {
  Target target = target_of({});
  target.cores = cores;
  return target;
}

TEST(MachineRates, AreThoseOfThisMachine) {
  const FlagOverride cache(Flag::cache_dir, "");
  const Tuning::Rates rates = machine_rates(target_of({}));
  // A machine that is busy with other things included: 0.1 to 1000 GB/s, 0.1 to 1000 Gflop/s.
  for (const int64_t bytes : {rates.memory, rates.l3, rates.l2}) {
    EXPECT_GT(bytes, 100);
    EXPECT_LT(bytes, 1'000'000);
  }
  EXPECT_GT(rates.lane_flops, 100);
  EXPECT_LT(rates.lane_flops, 1'000'000);
  EXPECT_GT(rates.launch_ns, 0);
  EXPECT_EQ(rates.unknown_size, target_of({}).tuning.rates.unknown_size);
  EXPECT_EQ(machine_rates(target_of({})), rates);  // once a process
}

std::vector<fs::path> entries(const fs::path& folder) {
  std::vector<fs::path> found;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder))
    if (entry.path().extension() == ".rates") found.push_back(entry.path());
  return found;
}

TEST(MachineRates, AreKeptInTheFolderOfTheCache) {
  const std::string folder = testing::TempDir() + "tandem-rates-test";
  fs::remove_all(folder);
  {
    const FlagOverride cache(Flag::cache_dir, folder);
    machine_rates(other_target(3));
    EXPECT_EQ(entries(folder).size(), 1u);
    machine_rates(other_target(4));
    EXPECT_EQ(entries(folder).size(), 2u);
  }
  fs::remove_all(folder);
}

TEST(MachineRates, OfAnotherProcessorAreNotToBeHad) {
  Target target = target_of({});
  target.features += ",+amx-complex";
  EXPECT_THAT(error_of([&] { machine_rates(target); }), testing::HasSubstr("amx-complex"));
}

constexpr const char* kProduct = R"(
graph @f(%x: f32[64, 64] {input grad}, %w: f32[64, 64] {param "w" grad}) {
  %0 = aten.mm(%x, %w)
  %1 = aten.sin(%0)
  %2 = aten.mm(%1, %w)
  return %2
}
)";

TEST(MachineRates, ABudgetMayGoByThem) {
  const std::unique_ptr<ir::Module> module = ir::parse_module(kProduct, ops::op_table());
  Options options;
  options.gradients = Gradients::tangents;
  options.partition = Partition::budget;
  options.budget = passes::budget_named("0.5", "dp", "measured");
  GraphCtx ctx;
  run_passes(*module->graphs()[0], options, ctx);
  EXPECT_EQ(ctx.target.tuning.rates, machine_rates(target_of({})));
  EXPECT_THAT(ctx.notes, testing::Contains(testing::HasSubstr("budget: measured memory ")));
}

}  // namespace
}  // namespace tandem::driver
