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
/// entries appear whole. The first store of a process drops what was not read for longest where the
/// folder holds more than kMostBytes.
class FileCache {
 public:
  static constexpr uint64_t kMostBytes = uint64_t{2} << 30;

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

/// Removes files of the folder, longest unread first, until they take at most three quarters of
/// `most` bytes; nothing where they take no more than `most`. Files that others remove meanwhile
/// are no error.
void trim_folder(const std::string& folder, uint64_t most);

}  // namespace tandem
