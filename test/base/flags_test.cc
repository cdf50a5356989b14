// Flags: grammar, error texts, overrides, help, and what enters the cache key.
#include "base/flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/diagnostic.h"

namespace tandem {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::string error_of(Flag flag, const std::string& value) {
  const FlagOverride over(flag, value);
  try {
    check_flags();
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

TEST(Flags, DefaultsWhenUnset) {
  const FlagOverride fusion(Flag::fusion, std::nullopt);
  const FlagOverride library(Flag::library, std::nullopt);
  const FlagOverride opt(Flag::opt, std::nullopt);
  const FlagOverride isa(Flag::isa, std::nullopt);
  const FlagOverride openmp(Flag::openmp, std::nullopt);
  EXPECT_TRUE(flag_fusion());
  EXPECT_TRUE(flag_library());
  EXPECT_TRUE(flag_openmp());
  EXPECT_EQ(flag_opt(), 2);
  EXPECT_EQ(flag_isa(), std::nullopt);
}

TEST(Flags, DumpHasFiveForms) {
  for (const auto& [text, when, argument] :
       std::vector<std::tuple<std::string, DumpFlag::When, std::string>>{
           {"", DumpFlag::When::never, ""},
           {"changed", DumpFlag::When::changed, ""},
           {"pareto", DumpFlag::When::pareto, ""},
           {"joint", DumpFlag::When::joint, ""},
           {"after:min_cut", DumpFlag::When::after, "min_cut"},
           {"before:schedule", DumpFlag::When::before, "schedule"},
           {"all:/tmp/a:b", DumpFlag::When::all, "/tmp/a:b"}}) {
    const FlagOverride over(Flag::dump, text);
    EXPECT_EQ(flag_dump().when, when) << text;
    EXPECT_EQ(flag_dump().argument, argument) << text;
  }
}

TEST(Flags, ListsSplitAtCommas) {
  const FlagOverride over(Flag::disable, "cse,fold");
  EXPECT_THAT(flag_disable(), ElementsAre("cse", "fold"));
  const FlagOverride none(Flag::disable, "");
  EXPECT_THAT(flag_disable(), IsEmpty());
}

TEST(Flags, ErrorPrintsNameValueAndGrammar) {
  EXPECT_EQ(error_of(Flag::isa, "sse2"), "[TANDEM_ISA] value \"sse2\": expected avx2 | avx512");
  EXPECT_EQ(error_of(Flag::opt, "4"), "[TANDEM_OPT] value \"4\": expected 0 | 1 | 2 | 3");
}

TEST(Flags, MalformedValuesAreUserErrors) {
  const std::vector<std::pair<Flag, std::string>> malformed = {
      {Flag::dump, "after:"},      {Flag::dump, "before:cse"},
      {Flag::dump, "always"},      {Flag::log, "schedule"},
      {Flag::log, ":2"},           {Flag::log, "schedule:x"},
      {Flag::log, "schedule:1,"},  {Flag::verify, "yes"},
      {Flag::disable, "a,,b"},     {Flag::bisect, "-1"},
      {Flag::bisect, "1e3"},       {Flag::bisect, "99999999999999999999"},
      {Flag::bisect, "schedule:"}, {Flag::bisect, "schedule:-1"},
      {Flag::threads, "0"},        {Flag::threads, "1025"},
      {Flag::fusion, ""}};
  for (const auto& [flag, value] : malformed)
    EXPECT_THAT(error_of(flag, value), HasSubstr(info_of(flag).grammar))
        << info_of(flag).name << "=" << value;
}

TEST(Flags, CheckCollectsAllProblems) {
  const FlagOverride isa(Flag::isa, "x");
  const FlagOverride time(Flag::time, "2");
  try {
    check_flags();
    FAIL();
  } catch (const UserError& error) {
    EXPECT_EQ(error.problems().size(), 2u);
  }
}

TEST(Flags, OverridesNestAndEnd) {
  const FlagOverride outer(Flag::threads, "3");
  {
    const FlagOverride inner(Flag::threads, "7");
    EXPECT_EQ(flag_threads(), 7);
  }
  EXPECT_EQ(flag_threads(), 3);
}

TEST(Flags, EveryOneIsInHelp) {
  for (int i = 0; i < kFlagCount; ++i) EXPECT_THAT(flags_help(), HasSubstr(info_of(Flag(i)).name));
}

TEST(Flags, CacheKeyHoldsOnlyWhatChangesCode) {
  const FlagOverride log(Flag::log, "all:1");
  const std::string before = flags_cache_key();
  const FlagOverride fusion(Flag::fusion, "0");
  EXPECT_THAT(before, testing::Not(HasSubstr("TANDEM_LOG")));
  EXPECT_THAT(flags_cache_key(), HasSubstr("TANDEM_FUSION=0\n"));
}

TEST(Flags, UnknownNamesAreFound) {
  EXPECT_THAT(
      internal::unknown_flags(std::vector<std::string>{"TANDEM_DUMPS=1", "TANDEM_DUMP=changed",
                                                       "HOME=/", "TANDEM_VENV=/v", "TANDEM_=2"}),
      ElementsAre("TANDEM_DUMPS", "TANDEM_"));
}

}  // namespace
}  // namespace tandem
