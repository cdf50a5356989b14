// Results of earlier processes on disk, by key.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tandem {

/// One file an entry. Keys hold, beside what is asked for, the binary that this code is part of
/// (its place, size and time), so another build never reads them. A damaged or unreadable entry is
/// a miss; a folder that cannot be written turns the cache off. Safe for threads and processes:
/// entries appear whole. Once a day the first store of a process trims the folder.
class FileCache {
 public:
  /// `kind` is the files' ending ("o"); an empty folder is no cache.
  FileCache(std::string folder, std::string_view kind, std::string_view context);
  bool is_on() const { return !folder_.empty(); }
  std::optional<std::string> find(std::string_view key) const;
  void store(std::string_view key, std::string_view content) const;

 private:
  std::string path_of(const std::string& key) const;
  std::string folder_;  // empty: off
  std::string kind_;
  std::string context_;
};

struct CacheLimits {
  uint64_t bytes = uint64_t{2} << 30;
  uint64_t files = 1 << 16;  // the time to look at all of them: some 0.2 s
};

/// Where the folder has more than `most`, removes files, longest unread first, until it has at most
/// three quarters of that. Files that others remove meanwhile are no error.
void trim_folder(const std::string& folder, const CacheLimits& most);

/// The same, unless this or another process did so in the 24 hours before.
void trim_daily(const std::string& folder, const CacheLimits& most);

}  // namespace tandem
