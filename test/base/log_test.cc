// Logging by room and level.
#include "base/log.h"

#include <gtest/gtest.h>

#include "base/diagnostic.h"
#include "base/flags.h"

namespace tandem {
namespace {

std::string logged(std::string_view room, int level, std::string_view text) {
  testing::internal::CaptureStderr();
  log(room, level, text);
  return testing::internal::GetCapturedStderr();
}

TEST(Log, SilentUnlessAsked) {
  const FlagOverride over(Flag::log, std::nullopt);
  EXPECT_FALSE(log_enabled("schedule", 1));
  EXPECT_EQ(logged("schedule", 1, "fused"), "");
}

TEST(Log, LevelsPerRoom) {
  const FlagOverride over(Flag::log, "schedule:2,ir:1");
  EXPECT_TRUE(log_enabled("schedule", 2));
  EXPECT_FALSE(log_enabled("schedule", 3));
  EXPECT_TRUE(log_enabled("ir", 1));
  EXPECT_FALSE(log_enabled("ir", 2));
  EXPECT_FALSE(log_enabled("loop", 1));
}

TEST(Log, LastEntryCounts) {
  const FlagOverride over(Flag::log, "all:3,ir:0");
  EXPECT_TRUE(log_enabled("loop", 3));
  EXPECT_FALSE(log_enabled("ir", 1));
}

TEST(Log, FollowsOverrides) {
  const FlagOverride outer(Flag::log, "ir:1");
  EXPECT_TRUE(log_enabled("ir", 1));
  {
    const FlagOverride inner(Flag::log, "loop:1");
    EXPECT_FALSE(log_enabled("ir", 1));
  }
  EXPECT_TRUE(log_enabled("ir", 1));
}

TEST(Log, PrefixesEveryLine) {
  const FlagOverride over(Flag::log, "ir:1");
  EXPECT_EQ(logged("ir", 1, "one\ntwo\n"), "[ir] one\n[ir] two\n");
  EXPECT_EQ(logged("ir", 1, ""), "[ir] \n");
}

TEST(Log, MalformedFlagIsAUserError) {
  const FlagOverride over(Flag::log, "ir");
  EXPECT_THROW(log_enabled("ir", 1), UserError);
}

}  // namespace
}  // namespace tandem
