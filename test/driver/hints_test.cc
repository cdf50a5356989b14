// What a program is compiled for where it cannot serve every size: equations make sizes one, errors
// name those that must be numbers, and an entry of the cache serves the calls that it was made for.
#include <gtest/gtest.h>

#include <filesystem>

#include "base/flags.h"
#include "driver/graph_function.h"
#include "driver/hints.h"

namespace tandem::driver {
namespace {

using Sizes = std::map<std::string, int64_t>;
using Equal = std::map<std::string, std::string>;

constexpr const char* kTransform =
    "graph @f(%x: f32[b, n], %b: i64, %n: i64) where b in [1, inf], n in [1, inf] {\n"
    "  %y = aten.fft_rfft(%x)\n"
    "  %z = aten.abs(%y)\n"
    "  return %z\n}\n";

constexpr const char* kSum =
    "graph @f(%x: f32[a, b], %y: f32[c, d], %a: i64, %b: i64, %c: i64, %d: i64)\n"
    "    where a in [1, inf], b in [1, inf], c in [1, inf], d in [1, inf] {\n"
    "  %0 = aten.reshape(%x, [-1])\n"
    "  %1 = aten.reshape(%y, [-1])\n"
    "  %2 = aten.add.Tensor(%0, %1)\n"
    "  return %2\n}\n";

TEST(Hints, EquationsMakeSizesOne) {
  const ir::Bindings bindings =
      tied({{{"a", 4}, {"b", 6}, {"c", 6}, {"d", 4}}, {}, {"a*b == c*d"}});
  EXPECT_EQ(bindings.equal, (Equal{{"c", "b"}, {"d", "a"}}));
  EXPECT_EQ(bindings.sizes, Sizes());
}

TEST(Hints, WhatAnEquationLeavesOverAreNumbers) {
  const Hints hints{
      {{"a", 4}, {"b", 6}, {"c", 8}, {"d", 3}, {"e", 4}}, {}, {"a*b == c*d", "e == a"}};
  const ir::Bindings bindings = tied(hints);
  EXPECT_EQ(bindings.sizes, (Sizes{{"a", 4}, {"b", 6}, {"c", 8}, {"d", 3}, {"e", 4}}));
  EXPECT_EQ(bindings.equal, Equal());
}

TEST(Hints, EqualOnesOfEqualOnesAreOne) {
  const Hints hints{{{"a", 4}, {"b", 4}, {"c", 4}, {"d", 4}}, {}, {"b == a", "d == c", "d == b"}};
  const ir::Bindings bindings = tied(hints);
  ASSERT_EQ(bindings.equal.size(), 3u);
  for (const auto& [name, other] : bindings.equal) EXPECT_EQ(bindings.equal.count(other), 0u);
}

TEST(Hints, OtherEquationsAndUnknownSizesSayNothing) {
  EXPECT_TRUE(tied({{{"a", 4}, {"b", 6}}, {}, {"a + 2 == b", "(a*b) % 2 == 0"}}).empty());
  EXPECT_TRUE(tied({{{"a", 4}, {"b", 6}}, {}, {"a*b == u*b"}}).empty());
  EXPECT_THROW(tied({{{"a", 4}}, {}, {"a = 4"}}), UserError);
}

TEST(Hints, ErrorsNameWhatMustBeKnown) {
  const Hints hints{{{"a", 4}, {"b", 6}}, {{"f", .5}}, {}};
  ir::Bindings bindings;
  EXPECT_FALSE(add_unknown(UserError({"", "", {"u"}}), hints, bindings));
  EXPECT_TRUE(add_unknown(UserError({"", "", {"b", "f"}}), hints, bindings));
  EXPECT_FALSE(add_unknown(UserError({"", "", {"b", "f"}}), hints, bindings));
  EXPECT_EQ(bindings.sizes, (Sizes{{"b", 6}}));
  EXPECT_EQ(bindings.floats, (std::map<std::string, double>{{"f", .5}}));
  EXPECT_TRUE(add_unknown(UserError("sizes a and b differ"), hints, bindings));
  EXPECT_EQ(bindings.sizes, hints.sizes);
  EXPECT_FALSE(add_unknown(UserError("sizes a and b differ"), hints, bindings));
}

TEST(Hints, OnlyTheSizeThatMustBeKnownIsANumber) {
  FunctionOptions options;
  EXPECT_THROW(GraphFunction(kTransform, options), UserError);
  options.hints.sizes = {{"b", 3}, {"n", 8}};
  EXPECT_EQ(GraphFunction(kTransform, options).assumed().sizes, (Sizes{{"n", 8}}));
}

TEST(Hints, AFloatThatMustBeKnown) {
  const char* text =
      "graph @f(%x: f32[5, 3], %y: f32[4, 3], %p: f64) {\n"
      "  %0 = aten.mul.Scalar(%x, %p)\n"
      "  %1 = aten.cdist(%0, %y, %p)\n"
      "  return %1\n}\n";
  FunctionOptions options;
  try {
    const GraphFunction none(text, options);
    FAIL() << "no number is known";
  } catch (const UserError& error) {
    EXPECT_STREQ(error.what(), "[aten::cdist] p must be known when compiling: %p (line 3)");
  }
  options.hints.floats = {{"p", 1.5}, {"q", 2.5}};
  const GraphFunction function(text, options);
  EXPECT_EQ(function.assumed().floats, (std::map<std::string, double>{{"p", 1.5}}));
  EXPECT_EQ(function.inputs(), 3u);  // as it was
}

TEST(Hints, SizesOfEquationsAreNumbersBeforeOthers) {
  const Hints hints{{{"a", 16}, {"b", 6}, {"c", 3}}, {}, {"(a//4)*(a//4) == 16"}};
  ir::Bindings bindings = tied(hints);
  EXPECT_TRUE(bindings.empty());
  EXPECT_TRUE(add_unknown(UserError("sizes (a//4)*(a//4) and 16 differ"), hints, bindings));
  EXPECT_EQ(bindings.sizes, (Sizes{{"a", 16}}));
  EXPECT_TRUE(add_unknown(UserError("another"), hints, bindings));
  EXPECT_EQ(bindings.sizes, hints.sizes);
}

std::vector<float> sums(GraphFunction& function, std::vector<int64_t> x, std::vector<int64_t> y) {
  std::vector<float> values(static_cast<size_t>(x[0] * x[1]));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  const runtime::Array one = runtime::Array::borrow(values.data(), DType::f32, x);
  const runtime::Array other = runtime::Array::borrow(values.data(), DType::f32, y);
  const std::vector<runtime::Argument> arguments{one, other, x[0], x[1], y[0], y[1]};
  const runtime::Array made = std::get<runtime::Array>(function.forward(arguments).results[0]);
  return {made.data<float>(), made.data<float>() + made.numel()};
}

TEST(Hints, EqualSizesStayOpen) {
  FunctionOptions options;
  options.hints = {{{"a", 2}, {"b", 3}, {"c", 3}, {"d", 2}}, {}, {"a*b == c*d"}};
  GraphFunction function(kSum, options);
  EXPECT_EQ(function.assumed().equal, (Equal{{"c", "b"}, {"d", "a"}}));
  EXPECT_EQ(sums(function, {2, 3}, {3, 2}), (std::vector<float>{0, 2, 4, 6, 8, 10}));
  EXPECT_EQ(sums(function, {1, 4}, {4, 1}), (std::vector<float>{0, 2, 4, 6}));
}

TEST(Hints, AnEntryOfTheCacheServesWhatItWasMadeFor) {
  const std::string folder = ::testing::TempDir() + "tandem-hints-test";
  std::filesystem::remove_all(folder);
  const FlagOverride cache(Flag::cache_dir, folder);
  const auto is_hit = [](int64_t batch, int64_t length) {
    FunctionOptions options;
    options.hints.sizes = {{"b", batch}, {"n", length}};
    const GraphFunction function(kTransform, options);
    EXPECT_EQ(function.assumed().sizes, (Sizes{{"n", length}}));
    return function.is_from_cache();
  };
  EXPECT_FALSE(is_hit(3, 8));
  EXPECT_TRUE(is_hit(4, 8));
  EXPECT_FALSE(is_hit(4, 16));
  EXPECT_TRUE(is_hit(3, 16));
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace tandem::driver
