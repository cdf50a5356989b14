// Recipes as texts: the built-in ones read, every text that is written reads back, and what is
// wrong is told with its line.
#include "quant/recipe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/diagnostic.h"

namespace tandem::quant {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> problems_of(const std::string& text) {
  std::vector<std::string> problems;
  try {
    parse_recipe(text, "own.toml");
  } catch (const UserError& error) {
    for (const Diagnostic& problem : error.problems()) problems.push_back(problem.render());
  }
  return problems;
}

TEST(Recipe, BuiltInOnesReadAndPrintBack) {
  ASSERT_THAT(recipe_names(), ElementsAre("x86_default", "x86_reduced_range", "x86_dynamic",
                                          "weight_only_int8", "weight_only_int4"));
  for (const std::string_view name : recipe_names()) {
    const Recipe recipe = recipe_named(name);
    EXPECT_EQ(recipe.name, name);
    EXPECT_EQ(to_text(parse_recipe(to_text(recipe), "again")), to_text(recipe)) << name;
  }
}

TEST(Recipe, X86DefaultIsTheOneOfPyTorch) {
  const Recipe recipe = recipe_named("x86_default");
  const QSpec activation = recipe.specs.at("activation");
  EXPECT_EQ(activation.dtype, DType::u8);
  EXPECT_EQ(activation.quant_max, 255);
  EXPECT_FALSE(activation.symmetric);
  EXPECT_EQ(activation.observer, ObserverKind::histogram);
  EXPECT_EQ(activation.epsilon, 0x1p-12);
  const QSpec weight = recipe.specs.at("weight");
  EXPECT_EQ(weight.quant_min, -128);
  EXPECT_TRUE(weight.symmetric);
  EXPECT_EQ(weight.per, Per::channel);
}

TEST(Recipe, X86ReducedRangeIsTheDefaultWithSevenBits) {
  Recipe recipe = recipe_named("x86_reduced_range");
  EXPECT_EQ(recipe.specs.at("activation").quant_max, 127);
  recipe.name = "x86_default";
  recipe.specs.at("activation").quant_max = 255;
  EXPECT_EQ(to_text(recipe), to_text(recipe_named("x86_default")));
}

TEST(Recipe, UnknownNamesAreToldTheKnownOnes) {
  try {
    recipe_named("x86");
    FAIL() << "no error";
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("x86_default, x86_reduced_range, x86_dynamic, weight_only_int8"));
  }
}

TEST(Recipe, EveryProblemIsToldAtItsLine) {
  EXPECT_THAT(problems_of(R"(name = "own"
[specs.a]
dtype = "f32"
range = [0, 300]
per = "row"
axes = 1
[[rules]]
name = "linear"
chain = ["aten.linear"]
inputs = { input = "b" }
)"),
              ElementsAre("specification 'a': dtype 'f32' must be i8 or u8 (own.toml:3)",
                          "specification 'a': 'range' must be two numbers from -128 to 127, the "
                          "least first (own.toml:4)",
                          "specification 'a': 'per' is one of tensor, channel, group (own.toml:5)",
                          "specification 'a': there is no field 'axes' (own.toml:6)",
                          "rule 1: there is no specification 'b' (own.toml:7)"));
}

TEST(Recipe, WhatHasNoOperatorIsRefused) {
  const std::vector<std::string> problems = problems_of(R"(name = "own"
[specs.a]
dtype = "u8"
per = "channel"
[[rules]]
name = "linear"
chain = ["aten.linear"]
inputs = { input = "a" }
)");
  ASSERT_EQ(problems.size(), 1U);
  EXPECT_THAT(problems[0], HasSubstr("is for constant and symmetric values"));
}

TEST(Recipe, DamagedTextsAreErrorsOfTheUser) {
  EXPECT_THAT(problems_of("name = "), ElementsAre(HasSubstr("(own.toml:1)")));
  EXPECT_FALSE(problems_of("").empty());
  EXPECT_FALSE(problems_of("name = 3\nrules = 4\nspecs = 5\nlayers = [1]").empty());
  EXPECT_FALSE(problems_of("name = \"x\"\nrules = [1, 2]").empty());
  EXPECT_FALSE(problems_of("name = \"x\"\nspecs = { a = 1 }").empty());
  EXPECT_FALSE(problems_of("name = " + std::string(100000, '[')).empty());
  EXPECT_FALSE(problems_of("name" + std::string(100000, '.') + " = 1").empty());
  const std::string text(recipe_text("x86_default"));
  for (size_t length = 0; length < text.size(); length += 11) problems_of(text.substr(0, length));
}

}  // namespace
}  // namespace tandem::quant
