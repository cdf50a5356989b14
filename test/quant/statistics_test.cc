// The file of ranges: what is written reads back to the bit, and what an editor breaks is told with
// its line.
#include "quant/statistics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "base/diagnostic.h"

namespace tandem::quant {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Statistics example() {
  Statistics statistics{"x86_default", 0x0123456789abcdef, 0xfedcba9876543210, {}};
  statistics.groups["conv1.input"] = {"histogram", 3200, {{-0.1F}, {3.0F}}};
  GroupStatistics weights{"min_max", 288, {}};
  for (int i = 0; i < 40; ++i) {
    weights.range.low.push_back(-1.0F / static_cast<float>(i + 3));
    weights.range.high.push_back(1e-20F * static_cast<float>(i));
  }
  statistics.groups["conv1.\"weight\\"] = weights;
  return statistics;
}

std::vector<std::string> problems_of(const std::string& text) {
  std::vector<std::string> problems;
  try {
    parse_statistics(text, "ranges.toml");
  } catch (const UserError& error) {
    for (const Diagnostic& problem : error.problems()) problems.push_back(problem.render());
  }
  return problems;
}

TEST(Statistics, ComeBackAsTheyWere) {
  const Statistics statistics = example();
  const std::string text = to_text(statistics);
  const Statistics again = parse_statistics(text, "ranges.toml");
  EXPECT_EQ(to_text(again), text);
  EXPECT_EQ(again.model_hash, statistics.model_hash);
  const Range& range = again.groups.at("conv1.\"weight\\").range;
  EXPECT_EQ(range.low, statistics.groups.at("conv1.\"weight\\").range.low);
  EXPECT_EQ(range.high, statistics.groups.at("conv1.\"weight\\").range.high);
}

TEST(Statistics, LinesStayShort) {
  const std::string text = to_text(example());
  size_t begin = 0;
  for (size_t end = text.find('\n'); end != std::string::npos; end = text.find('\n', begin)) {
    EXPECT_LE(end - begin, 100U) << text.substr(begin, end - begin);
    begin = end + 1;
  }
}

std::string with_head(std::string_view fields) {
  std::string text = "recipe = \"r\"\nrecipe_hash = \"1\"\nmodel_hash = \"2\"\n[groups.\"a\"]\n";
  return text.append(fields);
}

TEST(Statistics, MayBeEditedWithIntegers) {
  const Statistics statistics = parse_statistics(with_head("low = -1\nhigh = 2\n"), "ranges.toml");
  EXPECT_THAT(statistics.groups.at("a").range.low, ElementsAre(-1));
  EXPECT_THAT(statistics.groups.at("a").range.high, ElementsAre(2));
}

TEST(Statistics, BrokenRangesAreToldAtTheirLine) {
  EXPECT_THAT(problems_of(with_head("low = 3\nhigh = 2\n")),
              ElementsAre("group 'a': low 3 and high 2 must be finite, and low not above high "
                          "(ranges.toml:5)"));
  EXPECT_THAT(problems_of(with_head("low = nan\nhigh = 2\n")),
              ElementsAre(HasSubstr("must be finite")));
  EXPECT_THAT(problems_of(with_head("low = [1, 2]\nhigh = 2\n")),
              ElementsAre(HasSubstr("with as many numbers each")));
  EXPECT_THAT(problems_of(with_head("low = \"x\"\nhigh = 2\nlw = 3\n")),
              ElementsAre("group 'a': 'low' must be a number, or numbers (ranges.toml:5)",
                          "group 'a': there is no field 'lw' (ranges.toml:7)"));
}

TEST(Statistics, DamagedFilesAreErrorsOfTheUser) {
  EXPECT_FALSE(problems_of("").empty());
  EXPECT_FALSE(problems_of("recipe = ").empty());
  EXPECT_FALSE(problems_of("recipe = 1\nmodel_hash = 2\ngroups = 3").empty());
  EXPECT_FALSE(problems_of(with_head("")).empty());
  const std::string text = to_text(example());
  for (size_t length = 0; length < text.size(); length += 7) try {
      parse_statistics(text.substr(0, length), "ranges.toml");
    } catch (const UserError&) {
    }
}

}  // namespace
}  // namespace tandem::quant
