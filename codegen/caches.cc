// Linux has a folder for each cache that a processor sees, with its level, type and size ("1024K").
// The size is of one cache, however many processors share it: what one task can count on at most.
// Containers and hypervisors hide the folder, or make sizes up; blocks of a few bytes would be
// far worse than those for a usual machine, so what is out of range is not taken.
#include "codegen/caches.h"

#include <charconv>
#include <filesystem>
#include <fstream>

namespace tandem::codegen {
namespace {

std::string word_of(const std::filesystem::path& file) {
  std::ifstream stream(file);
  std::string word;
  stream >> word;
  return word;
}

/// "48K", "32768K", "1M"; 0 for anything else.
int64_t bytes_of(const std::string& size) {
  int64_t number = 0;
  const char* const end = size.data() + size.size();
  const std::from_chars_result read = std::from_chars(size.data(), end, number);
  if (read.ec != std::errc() || number < 0 || number > (int64_t{1} << 30)) return 0;
  if (read.ptr == end) return number;
  if (read.ptr + 1 != end) return 0;
  if (*read.ptr == 'K') return number << 10;
  return *read.ptr == 'M' ? number << 20 : 0;
}

struct Level {
  int64_t* bytes;
  int64_t least, most;
};

}  // namespace

void take_cache_sizes(const std::string& folder, Target& target) {
  const Level levels[] = {{&target.l1_bytes, 8 << 10, 1 << 20},
                          {&target.l2_bytes, 128 << 10, 64 << 20},
                          {&target.l3_bytes, 1 << 20, int64_t{4} << 30}};
  for (int number = 0;; ++number) {
    const std::filesystem::path cache = folder + "/index" + std::to_string(number);
    std::error_code error;
    if (!std::filesystem::is_directory(cache, error)) return;
    const std::string level = word_of(cache / "level");
    const bool is_known = level == "1" || level == "2" || level == "3";
    if (!is_known || word_of(cache / "type") == "Instruction") continue;
    const Level& known = levels[level[0] - '1'];
    const int64_t bytes = bytes_of(word_of(cache / "size"));
    if (bytes >= known.least && bytes <= known.most) *known.bytes = bytes;
  }
}

}  // namespace tandem::codegen
