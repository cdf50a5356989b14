// Graphs mapped for a GPU, run in the interpreter, against the same kernels point by point: bit for
// bit where mapping keeps the order of sums, and within a bound that follows from it where threads
// fold them. Sizes are small, and odd where tiles have tails. Then what a GPU target is not: no
// machine code, no tuning, nothing that the processor's executor runs.
#include <gtest/gtest.h>

#include <cmath>

#include "base/archive.h"
#include "base/flags.h"
#include "driver/image.h"
#include "ir/text.h"
#include "ops/opdef.h"
#include "test/driver/models.h"

namespace tandem::driver {
namespace {

constexpr double kUnit = 0x1p-24;

schedule::Scheduled scheduled_for(const std::string& text, const Target& target) {
  const std::unique_ptr<ir::Module> module = ir::parse_module(text, ops::op_table());
  Options options;
  options.target = target;
  GraphCtx ctx;
  run_passes(*module->graphs()[0], options, ctx);
  return schedule::schedule(*module->graphs()[0], target);
}

/// Numbers in [-1, 1), or places in [0, 7).
Array numbers(DType dtype, const std::vector<int64_t>& sizes, uint32_t state) {
  Array array = Array::zeros(dtype, sizes);
  for (int64_t i = 0; i < array.numel(); ++i) {
    state = state * 1664525 + 1013904223;
    if (dtype == DType::f32)
      array.data<float>()[i] = static_cast<float>(static_cast<int32_t>(state)) * 0x1p-31f;
    if (dtype == DType::i64) array.data<int64_t>()[i] = (state >> 16) % 7;
  }
  return array;
}

std::vector<int64_t> sizes_of(const abi::Input& input, int64_t symbol) {
  std::vector<int64_t> sizes;
  for (const abi::SizeCode& code : input.sizes)
    sizes.push_back(code[0].op == abi::SizeInstruction::Op::constant ? code[0].value : symbol);
  return sizes;
}

std::vector<Array> results_of(schedule::Scheduled scheduled, int64_t symbol) {
  std::vector<runtime::Argument> inputs;
  for (const abi::Input& input : scheduled.program.inputs)
    inputs.emplace_back(
        numbers(input.dtype, sizes_of(input, symbol), static_cast<uint32_t>(inputs.size()) + 1));
  Executable executable(std::move(scheduled), InLoopInterpreter());
  std::vector<Array> results;
  for (const runtime::Result& result : executable.run(inputs))
    results.push_back(std::get<Array>(result).contiguous());
  return results;
}

struct Case {
  std::string name;
  std::string text;
  int64_t symbol = 8;
  double error = 0;
  std::string mapped_by;  // a line of the report that only that mapping writes
};

class MappedForGpu : public ::testing::TestWithParam<Case> {};

void expect_near(const Array& expected, const Array& actual, double error) {
  ASSERT_EQ(expected.numel(), actual.numel());
  for (int64_t i = 0; i < expected.numel(); ++i) {
    const double difference = std::abs(static_cast<double>(expected.data<float>()[i]) -
                                       static_cast<double>(actual.data<float>()[i]));
    ASSERT_TRUE(difference <= error)
        << i << ": " << expected.data<float>()[i] << " and " << actual.data<float>()[i];
  }
}

TEST_P(MappedForGpu, GivesWhatItsKernelsMean) {
  const FlagOverride verify(Flag::verify, "1");
  const Case& tested = GetParam();
  for (const char* name : {"sm_80", "sm_90"}) {
    const Target target = target_named(name);
    const schedule::Scheduled mapped = scheduled_for(tested.text, target);
    const std::string report = schedule::report(mapped);
    EXPECT_NE(report.find(tested.mapped_by), std::string::npos) << report;
    for (const loop::Kernel& kernel : mapped.kernels) EXPECT_GT(kernel.threads, 0);
    const std::vector<Array> actual = results_of(mapped, tested.symbol);
    const FlagOverride unmapped(Flag::disable, "map_axes");
    const std::vector<Array> expected =
        results_of(scheduled_for(tested.text, target), tested.symbol);
    ASSERT_EQ(actual.size(), expected.size());
    for (size_t i = 0; i < actual.size(); ++i) expect_near(expected[i], actual[i], tested.error);
  }
}

std::string softmax(const std::string& length) {
  return "graph @f(%x: f32[s0, " + length +
         "]) where s0 in [2, 64] {\n  %0 = aten.softmax.int(%x, -1)\n  return %0\n}\n";
}
std::string layer_norm(const std::string& length) {
  return "graph @f(%x: f32[s0, " + length + "], %w: f32[" + length + "], %b: f32[" + length +
         "]) where s0 in [2, 64] {\n  %0, %1, %2 = aten.native_layer_norm(%x, [" + length +
         "], %w, %b, 0.00001)\n  return %0\n}\n";
}
std::string column_sum(const std::string& rows, const std::string& columns) {
  return "graph @f(%x: f32[" + rows + ", " + columns +
         "]) {\n  %0 = aten.sum.dim_IntList(%x, [0])\n  return %0\n}\n";
}
std::string transpose(const std::string& rows, const std::string& columns) {
  return "graph @f(%x: f32[" + rows + ", " + columns + "], %y: f32[" + columns + ", " + rows +
         "]) {\n  %0 = aten.transpose.int(%x, 0, 1)\n  %1 = aten.add.Tensor(%0, %y)\n"
         "  return %1\n}\n";
}
std::string linear_gelu(const std::string& terms, const std::string& columns) {
  return "graph @f(%x: f32[s0, " + terms + "], %w: f32[" + columns + ", " + terms + "], %b: f32[" +
         columns +
         "]) where s0 in [2, 256] {\n  %0 = aten.linear(%x, %w, %b)\n  %1 = aten.gelu(%0)\n"
         "  return %1\n}\n";
}
/// Without padding the filter is a factor of its own; with padding it is masked as the image is.
std::string convolution(const std::string& padding) {
  return "graph @f(%x: f32[2, 3, 11, 9], %w: f32[5, 3, 3, 3]) {\n"
         "  %0 = aten.convolution(%x, %w, none, [1, 1], [" +
         padding + ", " + padding + "], [1, 1], false, [0, 0], 1)\n  return %0\n}\n";
}
std::string attention(const std::string& rows, const std::string& width) {
  const std::string type = "f32[1, 2, " + rows + ", " + width + "]";
  return "graph @f(%q: " + type + ", %k: " + type + ", %v: " + type +
         ") {\n  %0 = aten.scaled_dot_product_attention(%q, %k, %v)\n  return %0\n}\n";
}

// Softmax: numerators are equal, two sums of n positive terms differ by 2n units relatively, and
// the quotient rounds twice. Layer norm of numbers below 1: two means differ by 2n units, which
// their spread of about 0.58 divides; the results, below 4, differ by as many relatively; twice
// that for higher terms. Attention: weights as softmax, and their sum is 1.
INSTANTIATE_TEST_SUITE_P(
    Graphs, MappedForGpu,
    ::testing::Values(
        Case{"softmax", softmax("1000"), 5, 2002 * kUnit, "reduce r0 < 1000 thread(256)"},
        Case{"softmax_of_an_odd_length", softmax("37"), 7, 76 * kUnit, "thread(64)"},
        Case{"softmax_of_unknown_length",
             "graph @f(%x: f32[s0, s0]) where s0 in [2, 64] {\n  %0 = aten.softmax.int(%x, -1)\n"
             "  return %0\n}\n",
             33, 70 * kUnit, "scratch"},
        Case{"layer_norm", layer_norm("768"), 3, 24 * 768 * kUnit, "thread(256)"},
        Case{"layer_norm_of_an_odd_length", layer_norm("71"), 5, 24 * 71 * kUnit, "thread(128)"},
        Case{"column_sum", column_sum("300", "200"), 0, 0, "reduce r0 < 300\n"},
        Case{"column_sum_of_odd_sizes", column_sum("77", "41"), 0, 0, "thread(32)"},
        Case{"transpose", transpose("64", "96"), 0, 0, "stage barrier"},
        Case{"transpose_of_odd_sizes", transpose("70", "41"), 0, 0, "f32[1056] scratch shared"},
        Case{"product", linear_gelu("64", "128"), 128, 0, "scratch registers"},
        Case{"product_of_odd_sizes", linear_gelu("37", "45"), 71, 0, "scratch registers"},
        Case{"product_of_few_terms", linear_gelu("5", "33"), 9, 0, "scratch registers"},
        Case{"attention", attention("48", "32"), 0, 4 * 50 * kUnit, "reduce r1 < 48 thread(32)"},
        Case{"attention_of_odd_sizes", attention("37", "9"), 0, 4 * 39 * kUnit, "stage barrier"},
        Case{"points",
             "graph @f(%x: f32[s0, 10], %y: f32[10]) where s0 in [2, 4096] {\n"
             "  %0 = aten.mul.Tensor(%x, %y)\n  return %0\n}\n",
             35, 0, "thread(16)"},
        Case{"scan", "graph @f(%x: f32[50, 30]) {\n  %0 = aten.cumsum(%x, -1)\n  return %0\n}\n", 0,
             0, "scan sum"},
        Case{"scatter",
             "graph @f(%x: f32[7, 40], %i: i64[30], %y: f32[30, 40]) {\n"
             "  %0 = aten.index_add(%x, 0, %i, %y)\n  return %0\n}\n",
             0, 0, "+="},
        Case{"convolution", convolution("0"), 0, 0, "scratch registers"},
        Case{"padded_convolution", convolution("1"), 0, 0, "thread(16)"}),
    [](const ::testing::TestParamInfo<Case>& tested) { return tested.param.name; });

Built built_for(const std::string& name) {
  const std::unique_ptr<ir::Module> module = ir::parse_module(softmax("10"), ops::op_table());
  Options options;
  options.target = target_named(name);
  GraphCtx ctx;
  run_passes(*module->graphs()[0], options, ctx);
  return build(*module->graphs()[0], options);
}

TEST(GpuTarget, HasNoMachineCodeYet) {
  const std::string problem = error_of([] { built_for("sm_90"); });
  EXPECT_NE(problem.find("no machine code is made for a GPU (sm_90)"), std::string::npos)
      << problem;
}

TEST(GpuTarget, UnknownArchitecturesAreToldTheKnownOnes) {
  EXPECT_NE(error_of([] { target_named("sm_20"); }).find("there are: sm_80 sm_90"),
            std::string::npos);
}

TEST(GpuTarget, IsNotTunedHere) {
  const std::unique_ptr<ir::Module> module = ir::parse_module(softmax("10"), ops::op_table());
  Options options;
  options.target = target_named("sm_80");
  options.tune = true;
  options.interpret = true;
  EXPECT_NE(error_of([&] { compile(*module->graphs()[0], options); }).find("[tune]"),
            std::string::npos);
}

/// What a launch needs is in the program, and comes back from its bytes; the executor of the
/// processor does not start it.
TEST(GpuTarget, LaunchesSayWhatABlockNeeds) {
  schedule::Scheduled scheduled = scheduled_for(softmax("1000"), target_named("sm_90"));
  ArchiveWriter writer;
  writer(scheduled.program);
  const std::string bytes = writer.take();
  abi::Program program;
  ArchiveReader reader(bytes);
  reader(program);
  const abi::Launch& launch = std::get<abi::Launch>(program.instructions.at(0));
  EXPECT_EQ(launch.block.threads, 256u);
  ASSERT_EQ(launch.block.shared_bytes.size(), 1u);
  EXPECT_EQ(launch.block.shared_bytes[0].value, 4032);  // 1000 numbers, in lines of 64 bytes
  EXPECT_EQ(launch.scratch_bytes.at(0).value, 0);
  const std::string problem =
      error_of([&] { runtime::LoadedProgram loaded(program, {nullptr}, {}); });
  EXPECT_NE(problem.find("is of blocks of threads, for a GPU"), std::string::npos) << problem;
}

TEST(GpuTarget, KeysHoldAllOfIt) {
  const auto key = [](Target target) {
    ArchiveWriter writer;
    writer(target);
    return writer.take();
  };
  const Target target = target_named("sm_90");
  Target other = target;
  other.gpu.shared_bytes -= 1024;
  EXPECT_NE(key(target), key(other));
  other = target;
  other.tuning.blocks.threads /= 2;
  EXPECT_NE(key(target), key(other));
  EXPECT_NE(key(target), key(target_named("sm_80")));
}

}  // namespace
}  // namespace tandem::driver
