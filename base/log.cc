// Logging is asked for in inner places (every declined fusion), so the parsed TANDEM_LOG is kept
// for as long as the flags do not change (their epoch), and a disabled level costs one relaxed
// load. A block of lines is written by one call, so that lines of several threads do not mix.
#include "base/log.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/flags.h"

namespace tandem {
namespace {

constexpr uint64_t kNeverRead = ~uint64_t{0};

struct Levels {
  std::mutex mutex;
  std::vector<LogLevel> entries;
  std::atomic<uint64_t> read_epoch{kNeverRead};
  std::atomic<int> highest{0};  // of any room: a level above it needs no lock
};

Levels& levels() {
  static Levels the_levels;
  return the_levels;
}

void read_again(Levels& known, uint64_t epoch) {
  std::vector<LogLevel> entries = flag_log();
  int highest = 0;
  for (const LogLevel& entry : entries) highest = std::max(highest, entry.level);
  const std::lock_guard lock(known.mutex);
  known.entries = std::move(entries);
  known.highest = highest;
  known.read_epoch = epoch;
}

}  // namespace

bool log_enabled(std::string_view room, int level) {
  Levels& known = levels();
  const uint64_t epoch = flags_epoch();
  if (known.read_epoch.load() != epoch) read_again(known, epoch);
  if (level > known.highest.load(std::memory_order_relaxed)) return false;
  const std::lock_guard lock(known.mutex);
  int enabled = 0;
  for (const LogLevel& entry : known.entries)  // the last one that names the room counts
    if (entry.room == room || entry.room == "all") enabled = entry.level;
  return level <= enabled;
}

void log(std::string_view room, int level, std::string_view text) {
  if (!log_enabled(room, level)) return;
  if (text.ends_with('\n')) text.remove_suffix(1);
  const std::string prefix = "[" + std::string(room) + "] ";
  std::string block = prefix;
  for (const char c : text) {
    block += c;
    if (c == '\n') block += prefix;
  }
  block += '\n';
  std::fwrite(block.data(), 1, block.size(), stderr);
}

}  // namespace tandem
