// What the progress line says, and that a stream that is no terminal gets whole lines, few of them.
#include "base/progress.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

std::string contents(std::FILE* file) {
  std::string text;
  std::rewind(file);
  for (int c = std::fgetc(file); c != EOF; c = std::fgetc(file)) text += static_cast<char>(c);
  return text;
}

TEST(Progress, LineOfABar) {
  EXPECT_EQ(progress_line("train", 40, 80, 3.12, "loss 2.31", 10),
            "train [#####.....] 40/80 50% 3.1s, 3.1s left  loss 2.31");
  EXPECT_EQ(progress_line("train", 0, 80, 0, "", 0), "train 0/80 0% 0.0s");
  EXPECT_EQ(progress_line("train", 80, 80, 125, "", 4), "train [####] 80/80 100% 2m05s");
}

TEST(Progress, LongWorkAndNothingToDo) {
  EXPECT_EQ(progress_line("a", 1, 100, 100, "", 0), "a 1/100 1% 1m40s, 2h45m left");
  EXPECT_EQ(progress_line("a", 0, 0, 1, "", 4), "a [####] 0/0 100% 1.0s");
}

TEST(Progress, PlainStreamGetsFirstAndLastLine) {
  std::FILE* file = std::tmpfile();
  {
    Progress progress("work", 1000, file);
    for (int64_t i = 1; i <= 1000; ++i) progress.update(i, "x");
  }
  std::string text = contents(file);
  std::fclose(file);
  EXPECT_EQ(text.find('\r'), std::string::npos);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2);
  EXPECT_EQ(text.rfind("work 1/1000", 0), 0U);
  EXPECT_NE(text.find("work 1000/1000 100%"), std::string::npos);
}

TEST(Progress, PeakMemoryGrowsWithUse) {
  double before = peak_rss_mib();
  std::string block(64 << 20, 'x');
  EXPECT_GE(peak_rss_mib() + static_cast<double>(block.back() - 'x'), 64);
  EXPECT_GE(peak_rss_mib(), before);
}

}  // namespace
}  // namespace tandem
