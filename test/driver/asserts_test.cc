// What is asserted of data ends a call, whether anything reads the truth or not: in a program, in
// its forward half, in the body of a loop.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/diagnostic.h"
#include "driver/graph_function.h"

namespace tandem::driver {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

runtime::Array numbers(std::vector<float> values) {
  const std::vector<int64_t> sizes = {static_cast<int64_t>(values.size())};
  runtime::Array array = runtime::Array::empty(DType::f32, sizes);
  std::ranges::copy(values, array.data<float>());
  return array;
}

void expect_asserts(const std::string& text, bool differentiate) {
  FunctionOptions options;
  options.differentiate = differentiate;
  GraphFunction function(text, options);
  function.forward(std::vector<runtime::Argument>{numbers({1, 2})});
  EXPECT_THAT([&] { function.forward(std::vector<runtime::Argument>{numbers({1, 0})}); },
              ThrowsMessage<DataError>(HasSubstr("assertion failed: all must count")));
}

constexpr char kPlain[] =
    "graph @f(%x: f32[2] {input grad}) {\n  %0 = aten.all(%x)\n"
    "  %1 = tandem.assert_true(%0, \"all must count\")\n  %2 = aten.exp(%x)\n  return %2\n}\n";

TEST(Asserts, NobodyReadsTheTruth) {
  expect_asserts(kPlain, false);
  expect_asserts(kPlain, true);
}

TEST(Asserts, InTheBodyOfALoop) {
  const std::string text =
      "graph @f(%x: f32[2]) {\n  %0: f32[2] = tandem.scan([], [%x], [], \"row\")\n"
      "  return %0\n}\n\n"
      "graph @row(%x: f32[]) {\n  %0 = tandem.assert_true(%x, \"all must count\")\n"
      "  %1 = aten.exp(%x)\n  return %1\n}\n";
  expect_asserts(text, false);
}

TEST(Asserts, NothingIsWrittenBefore) {
  GraphFunction function(
      "graph @f(%x: f32[2]) {\n  %0 = aten.all(%x)\n"
      "  %1 = tandem.assert_true(%0, \"all must count\")\n  %2 = aten.add_.Scalar(%x, 1)\n"
      "  return\n}\n",
      {});
  const runtime::Array x = numbers({1, 0});
  EXPECT_THROW(function.forward(std::vector<runtime::Argument>{x}), DataError);
  EXPECT_EQ(x.data<float>()[0], 1);
}

}  // namespace
}  // namespace tandem::driver
