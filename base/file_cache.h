// Results of earlier processes on disk, by key.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/cache_folder.h"
#include "base/cache_key.h"

namespace tandem {

/// One file an entry, in the folder `tandem-cache` of the one that is given. Keys hold, beside what
/// is asked for, which binary this code is part of, so another build never reads them. A damaged,
/// unreadable or distrusted entry is a miss; a folder that cannot be made or trusted turns the
/// cache off, and one that cannot be written is only read. Safe for threads and processes: entries
/// appear whole. Once a day the first store of a process trims, and so does one in a thousand.
class FileCache {
 public:
  /// The part that every key has, and the one that is asked for.
  static constexpr std::string_view kCompiler = "compiler";
  static constexpr std::string_view kText = "text";

  /// `kind` is the files' ending ("o"), of lower-case letters; an empty folder is no cache.
  FileCache(const std::string& folder, std::string_view kind, CacheKey context);
  bool is_on() const { return folder_.is_open() && !context_.empty(); }
  std::optional<std::string> find(std::string_view text) const;
  void store(std::string_view text, std::string_view content) const;

  /// Why `text` is not found: how the entry of this kind and text that is nearest differs. Empty
  /// where there is none.
  std::string explain_miss(std::string_view text) const;

 private:
  CacheKey key(std::string_view text) const;
  std::string name_of(std::string_view text, std::string_view whole) const;
  CacheFolder folder_;
  std::string kind_;
  CacheKey context_;  // empty: off
};

/// The key of an entry's bytes; nothing where they begin with none, or where one of this name has
/// another.
std::optional<CacheKey> key_of_entry(std::string_view name, std::string_view entry);
/// Names the binary that this code is part of: the linker's sum over it, the same on any machine;
/// or, where there is none, its place, size and time.
const std::string& compiler_build();

}  // namespace tandem
