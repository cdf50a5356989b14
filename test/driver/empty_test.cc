// Tensors without elements cost nothing, however long their other sizes are: 2**62 steps of a loop
// that does nothing would never end. A sum over no elements still gives its zeros.
#include <gtest/gtest.h>

#include "driver/compiler.h"
#include "ir/text.h"
#include "ops/opdef.h"

namespace tandem::driver {
namespace {

using runtime::Argument;
using runtime::Array;
using runtime::Result;

constexpr int64_t kLong = int64_t{1} << 62;
constexpr int64_t kMostOfACall = int64_t{1} << 40;  // products of sizes stay in range

std::vector<Result> run(const std::string& text, std::vector<int64_t> sizes, bool interpret) {
  std::unique_ptr<ir::Module> module = ir::parse_module(text, ops::op_table());
  Options options;
  options.interpret = interpret;
  std::unique_ptr<Executable> executable = compile(*module->graphs()[0], options);
  const std::vector<Argument> arguments = {Array::empty(DType::f32, sizes)};
  return executable->run(arguments);
}

void expect_zeros(const Result& result, const std::vector<int64_t>& sizes) {
  const Array array = std::get<Array>(result).contiguous();
  EXPECT_TRUE(std::ranges::equal(array.sizes(), sizes)) << array.describe();
  for (int64_t i = 0; i < array.numel(); ++i) EXPECT_EQ(array.data<float>()[i], 0);
}

void check(int64_t length, const std::string& sizes, const std::string& ranges) {
  const std::string text = "graph @a(%x: f32[" + sizes + "]) " + ranges + R"({
    %0 = aten.exp(%x)
    %1 = aten.sum.dim_IntList(%0, [0, 1])
    %2 = aten.sum.dim_IntList(%0, [0])
    %3 = aten.t(%0)
    %4 = aten.clone(%3)
    %5 = aten.cumsum(%0, 1)
    return %0, %1, %2, %4, %5
  })";
  for (const bool interpret : {true, false}) {
    const std::vector<Result> results = run(text, {length, 0}, interpret);
    expect_zeros(results[0], {length, 0});
    expect_zeros(results[1], {});
    expect_zeros(results[2], {0});
    expect_zeros(results[3], {0, length});
    expect_zeros(results[4], {length, 0});
  }
}

TEST(Empty, LongSizesBesideNoneCostNothing) { check(kLong, std::to_string(kLong) + ", 0", ""); }

TEST(Empty, NorDoSizesOfACall) {
  check(kMostOfACall, "s0, s1", "where s0 in [0, inf], s1 in [0, inf] ");
}

TEST(Empty, InnerSumsOfNothingAreZeros) {
  const std::string text =
      R"(graph @a(%x: f32[s0, s1, s2]) where s0 in [0, inf], s1 in [0, inf], s2 in [0, inf] {
    %0 = aten.sum.dim_IntList(%x, [1, 2])
    %1 = aten.sum.dim_IntList(%x, [0, 1])
    %2 = aten.prod(%x)
    return %0, %1, %2
  })";
  for (const bool interpret : {true, false}) {
    const std::vector<Result> results = run(text, {3, kMostOfACall, 0}, interpret);
    expect_zeros(results[0], {3});
    expect_zeros(results[1], {0});
    EXPECT_EQ(*std::get<Array>(results[2]).data<float>(), 1);
  }
}

}  // namespace
}  // namespace tandem::driver
