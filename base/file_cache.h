// Results of earlier processes on disk, by key.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/cache_folder.h"

namespace tandem {

/// One file an entry, in the folder `tandem-cache` of the one that is given. Keys hold, beside what
/// is asked for, the binary that this code is part of (its place, size and time), so another build
/// never reads them. A damaged, unreadable or distrusted entry is a miss; a folder that cannot be
/// made or trusted turns the cache off, and one that cannot be written is only read. Safe for
/// threads and processes: entries appear whole. Once a day the first store of a process trims.
class FileCache {
 public:
  /// `kind` is the files' ending ("o"), of lower-case letters; an empty folder is no cache.
  FileCache(const std::string& folder, std::string_view kind, std::string_view context);
  bool is_on() const { return folder_.is_open() && !context_.empty(); }
  std::optional<std::string> find(std::string_view key) const;
  void store(std::string_view key, std::string_view content) const;

 private:
  std::string whole(std::string_view key) const;
  std::string name_of(std::string_view whole) const;
  CacheFolder folder_;
  std::string kind_;
  std::string context_;  // empty: off
};

}  // namespace tandem
