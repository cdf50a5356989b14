// What a program is compiled for is an option: other processors get their own code from here, which
// does not run where its instructions are missing, and nothing compiled for one machine is taken
// from the cache for another.
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>

#include "base/flags.h"
#include "driver/compiler.h"
#include "driver/graph_function.h"
#include "ir/text.h"
#include "ops/opdef.h"

namespace tandem::driver {
namespace {

constexpr const char* kText =
    "graph @f(%x: f32[64, 32]) {\n  %0 = aten.softmax.int(%x, -1)\n  return %0\n}\n";

Built built_for(const Target& target) {
  const std::unique_ptr<ir::Module> module = ir::parse_module(kText, ops::op_table());
  Options options;
  options.target = target;
  GraphCtx ctx;
  run_passes(*module->graphs()[0], options, ctx);
  return build(*module->graphs()[0], options);
}

std::string problem_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

TEST(TargetOption, OtherProcessorsGetCodeOfTheirOwn) {
  std::string last;
  for (const char* cpu : {"haswell", "skylake-avx512", "znver4", "sapphirerapids"}) {
    const Built built = built_for(target_named(cpu));
    EXPECT_EQ(built.image.target.cpu, cpu);
    ASSERT_EQ(built.image.kernels.size(), 1u);
    EXPECT_TRUE(
        built.image.kernels[0].bytes.starts_with("\x7f"
                                                 "ELF"));
    EXPECT_NE(built.image.kernels[0].bytes, last) << cpu;
    last = built.image.kernels[0].bytes;
  }
}

TEST(TargetOption, RegistersFollowFromTheName) {
  EXPECT_EQ(target_named("haswell").vector_bytes, 32);
  const FlagOverride unset(Flag::isa, std::nullopt);
  EXPECT_EQ(target_named("znver4").vector_bytes, 64);
  EXPECT_EQ(target_named("znver4").isa, Isa::avx512);
  const FlagOverride lowered(Flag::isa, "avx2");
  EXPECT_EQ(target_named("znver4").vector_bytes, 32);
}

TEST(TargetOption, UnknownNamesAreToldTheKnownOnes) {
  for (const char* cpu : {"znver99", "nehalem", ""}) {  // nehalem has no AVX2
    const std::string problem = problem_of([&] { target_named(cpu); });
    EXPECT_NE(problem.find(std::string("'") + cpu + "'"), std::string::npos) << problem;
    EXPECT_NE(problem.find(" haswell "), std::string::npos) << problem;
    EXPECT_NE(problem.find(" znver4"), std::string::npos) << problem;
  }
}

TEST(TargetOption, CodeThatCannotRunHereIsNotLoaded) {
  EXPECT_NO_THROW(Executable(built_for(target_of({}))));
  Built built = built_for(target_of({}));
  built.image.target.cpu = "another";
  built.image.target.features += ",+xop,+avx512fp16,+wbnoinvd";  // no processor has the first two
  const std::string problem = problem_of([&] { Executable loaded(std::move(built)); });
  EXPECT_NE(problem.find("compiled for another"), std::string::npos) << problem;
  EXPECT_NE(problem.find("xop"), std::string::npos) << problem;
  EXPECT_EQ(problem.find("wbnoinvd"), std::string::npos) << problem;  // never in a kernel
}

bool is_cached(const Target& target) {
  FunctionOptions options;
  options.target = target;
  return GraphFunction(kText, options).is_from_cache();
}

TEST(TargetOption, AllOfItIsInTheKeyOfTheCache) {
  const std::string folder = ::testing::TempDir() + "tandem-target-test";
  std::filesystem::remove_all(folder);
  const FlagOverride cache(Flag::cache_dir, folder);
  const Target own = target_of({});
  std::vector<Target> targets(8, own);
  targets[1].cpu = "x86-64-v3";
  targets[2].features += ",-xop";
  targets[3].isa = own.isa == Isa::avx2 ? Isa::avx512 : Isa::avx2;
  targets[4].cores += 1;
  targets[5].l1_bytes *= 2;
  targets[6].l2_bytes *= 2;
  targets[7].l3_bytes *= 2;
  for (const Target& target : targets) EXPECT_FALSE(is_cached(target));
  for (const Target& target : targets) EXPECT_TRUE(is_cached(target));
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace tandem::driver
