// A failed check is an exception that says what, where and around what.
#include "base/check.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

TEST(Check, ThrowsWhatFailed) {
  const int sizes = 3;
  try {
    TD_CHECK(sizes == 4) << "of " << sizes;
    FAIL() << "nothing was thrown";
  } catch (const InternalError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("check_test.cc"), std::string::npos) << text;
    EXPECT_NE(text.find("sizes == 4 of 3"), std::string::npos) << text;
    EXPECT_EQ(error.context(), "");
  }
}

}  // namespace
}  // namespace tandem
