// Long work says how far it is. On a terminal one line is drawn over and over; a log or a pipe gets
// few whole lines, as carriage returns would make one endless line of it. Updates may come a
// thousand times a second, so most return after one look at the clock.
#include "base/progress.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>

namespace tandem {
namespace {

constexpr std::chrono::milliseconds kTerminalPause{100};
constexpr std::chrono::milliseconds kPlainPause{5000};
constexpr int kBarWidth = 24;

std::string duration(double seconds) {
  if (seconds < 60) return fmt::format("{:.1f}s", seconds);
  int64_t whole = static_cast<int64_t>(seconds + 0.5);
  if (whole < 3600) return fmt::format("{}m{:02}s", whole / 60, whole % 60);
  return fmt::format("{}h{:02}m", whole / 3600, whole / 60 % 60);
}

}  // namespace

std::string progress_line(std::string_view what, int64_t done, int64_t total, double seconds,
                          std::string_view text, int bar_width) {
  // Nothing to do is all done.
  double fraction =
      total <= 0 ? 1.0
                 : std::clamp(static_cast<double>(done) / static_cast<double>(total), 0.0, 1.0);
  std::string line(what);
  if (bar_width > 0) {
    int full = static_cast<int>(fraction * bar_width);
    line += fmt::format(" [{}{}]", std::string(static_cast<size_t>(full), '#'),
                        std::string(static_cast<size_t>(bar_width - full), '.'));
  }
  line += fmt::format(" {}/{} {:.0f}% {}", done, total, fraction * 100, duration(seconds));
  if (fraction > 0 && fraction < 1)
    line += fmt::format(", {} left", duration(seconds * (1 - fraction) / fraction));
  if (!text.empty()) line += fmt::format("  {}", text);
  return line;
}

Progress::Progress(std::string what, int64_t total, std::FILE* stream)
    : what_(std::move(what)),
      total_(total),
      stream_(stream),
      terminal_(isatty(fileno(stream)) == 1) {}

Progress::~Progress() {
  if (line_open_) std::fputs("\n", stream_);
  std::fflush(stream_);
}

void Progress::update(int64_t done, std::string_view text) {
  Clock::time_point now = Clock::now();
  if (now < next_ && done < total_) return;
  next_ = now + (terminal_ ? kTerminalPause : kPlainPause);
  draw(done, text);
}

double Progress::seconds() const {
  return std::chrono::duration<double>(Clock::now() - start_).count();
}

void Progress::draw(int64_t done, std::string_view text) {
  std::string line = progress_line(what_, done, total_, seconds(), text, terminal_ ? kBarWidth : 0);
  if (terminal_) {
    // Spaces cover what a longer line before left.
    size_t length = line.size();
    line.append(drawn_ > length ? drawn_ - length : 0, ' ');
    drawn_ = length;
    fmt::print(stream_, "\r{}", line);
    line_open_ = true;
  } else {
    fmt::print(stream_, "{}\n", line);
  }
  std::fflush(stream_);
}

double peak_rss_mib() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;  // Linux counts in KiB
}

}  // namespace tandem
