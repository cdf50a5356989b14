// How far long work has come: one line on a terminal, a line now and then elsewhere.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

namespace tandem {

/// `train [#####.....] 40/80 50% 3.1s, 3.1s left  loss 2.31`; without a bar when `bar_width` is 0.
/// The estimate takes what remains to go as fast as what is done; before the first step there is
/// none.
std::string progress_line(std::string_view what, int64_t done, int64_t total, double seconds,
                          std::string_view text, int bar_width);

/// Drawn in place, ten times a second, where the stream is a terminal; elsewhere a line every five
/// seconds, the first and the last always. The destructor ends the line.
class Progress {
 public:
  Progress(std::string what, int64_t total, std::FILE* stream = stderr);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress();

  /// `done` of `total` steps are done; `text` is free (`loss 2.31`).
  void update(int64_t done, std::string_view text = "");
  double seconds() const;

 private:
  using Clock = std::chrono::steady_clock;
  void draw(int64_t done, std::string_view text);

  std::string what_;
  int64_t total_;
  std::FILE* stream_;
  bool terminal_;
  bool line_open_ = false;
  size_t drawn_ = 0;  // characters of the open line
  Clock::time_point start_ = Clock::now();
  Clock::time_point next_ = start_;
};

/// Most memory that this process ever had in use (resident set), in MiB.
double peak_rss_mib();

}  // namespace tandem
