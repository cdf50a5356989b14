// What equations between sizes say of one of them.
#include "sym/equations.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/diagnostic.h"

namespace tandem::sym {
namespace {

SizeFacts solved(const std::vector<std::string>& texts, Range range = {2, Range::kMax}) {
  Pool pool;
  const Expr symbol = pool.symbol("s0", range);
  pool.symbol("s1", range);
  std::vector<Equation> equations;
  for (const std::string& text : texts) {
    std::string error;
    const std::optional<Equation> equation = parse_equation(pool, text, &error);
    EXPECT_TRUE(equation.has_value()) << text << ": " << error;
    if (equation) equations.push_back(*equation);
  }
  return solve(symbol, equations);
}

TEST(Equations, ASumAQuotientAndAProductAreTakenOff) {
  EXPECT_EQ(solved({"(s0 + 319)//320 == 1"}).range, (Range{2, 320}));
  EXPECT_EQ(solved({"1 + (s0 - 1)//320 == 3"}).range, (Range{641, 960}));
  EXPECT_EQ(solved({"3 == s0*2//5"}).range, (Range{8, 9}));
  EXPECT_EQ(solved({"s0 - 7 == 0"}).range, (Range{7, 7}));
}

TEST(Equations, WhatTheSymbolHasStays) {
  EXPECT_EQ(solved({"(s0 + 319)//320 == 1"}, {8, 64}).range, (Range{8, 64}));
  EXPECT_EQ(solved({"s0*s1 == 12", "s0 + s1 == 7"}).range, (Range{2, Range::kMax}));
  EXPECT_EQ(solved({}).divisor, 1);
}

TEST(Equations, HalvesOfHalvesThatArePutTogether) {
  EXPECT_EQ(solved({"s0//2//2*4 == s0"}).divisor, 4);
  EXPECT_EQ(solved({"s0 % 6 == 0", "s0//4*4 == s0"}).divisor, 12);
  EXPECT_EQ(solved({"s0 % 6 == 3"}).divisor, 3);
}

TEST(Equations, OfWhichNoDivisorFollows) {
  EXPECT_EQ(solved({"s0*s0//2 == 8"}).divisor, 1);  // it does not repeat
  EXPECT_EQ(solved({"s0 % 512 == 0"}).divisor, 1);  // a period that is too long to try
  EXPECT_EQ(solved({"s0 % s1 == 0"}).divisor, 1);   // of two sizes
  EXPECT_EQ(solved({"s0 % 4 == 1"}).divisor, 1);
}

TEST(Equations, ThatNothingSatisfiesAreAnError) {
  EXPECT_THROW(solved({"s0 == 1"}), UserError);
  EXPECT_THROW(solved({"s0//4 == 2", "s0//4 == 3"}), UserError);
}

TEST(Equations, NumbersAtTheEndsOfTheRangeDoNotWrap) {
  const Range range{2, 1000};
  EXPECT_THROW(solved({"s0 - 9223372036854775807 == 9223372036854775807"}, range), UserError);
  EXPECT_THROW(solved({"s0 + 9223372036854775807 == -9223372036854775807"}, range), UserError);
}

TEST(Equations, MalformedTextIsNamed) {
  Pool pool;
  std::string error;
  EXPECT_FALSE(parse_equation(pool, "s0 + 1", &error));
  EXPECT_NE(error.find("no `==`"), std::string::npos);
  EXPECT_FALSE(parse_equation(pool, "s0 == (1", &error));
}

}  // namespace
}  // namespace tandem::sym
