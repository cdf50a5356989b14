// A private folder of files that are checked before they are believed.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tandem {

struct CacheLimits {
  uint64_t bytes = uint64_t{2} << 30;
  uint64_t files = 1 << 16;  // the time to look at all of them: under a second
};

/// The folder `tandem-cache` below the one that a user names. What lies beside it, or in it under
/// other names or with other first bytes, is never counted, read or removed. Files are 0600 in a
/// folder that is made 0700; a folder or file of another owner, writable by others or reached
/// through a symbolic link is refused with one warning. Safe for threads and processes.
class CacheFolder {
 public:
  static constexpr std::string_view kName = "tandem-cache";

  /// Makes the folder where it is missing. Without one that can be trusted, `is_open` is false.
  explicit CacheFolder(const std::string& parent);
  CacheFolder(const CacheFolder&) = delete;
  CacheFolder& operator=(const CacheFolder&) = delete;
  ~CacheFolder();
  bool is_open() const { return descriptor_ >= 0; }

  /// Names of entries: 16 hexadecimal digits, a dot and letters. Nothing for a file that is absent,
  /// refused, cut off or changed by a bit. Reading makes it the last that is trimmed.
  std::optional<std::string> read(const std::string& name) const;
  /// The same, and leaves its age.
  std::optional<std::string> peek(const std::string& name) const;
  /// Appears whole or not at all, in the place of what had the name; a full or read-only disk
  /// leaves what was there.
  void write(const std::string& name, std::string_view content) const;

  struct Entry {
    std::string name;
    uint64_t bytes = 0;   // of the file
    int64_t seconds = 0;  // since 1970: when it was stored or read last
  };
  /// Files that begin as entries do, by name; what they hold is not checked.
  std::vector<Entry> entries() const;
  /// Names alone that begin so, in order; no file is opened.
  std::vector<std::string> names(std::string_view beginning) const;
  static bool is_entry_name(std::string_view name);
  void remove(const std::string& name) const;

  /// Removes what writers left that died, and, where there is more than `most`, the files that were
  /// not read for longest, until there are three quarters of it. A file that another process
  /// stores meanwhile is not lost.
  void trim(const CacheLimits& most) const;
  /// The same, unless this or another process did so in the 24 hours before.
  void trim_daily(const CacheLimits& most) const;

 private:
  void open_below(const std::string& parent);

  std::string path_;
  int descriptor_ = -1;  // all files are opened relative to it: the path may change its meaning
};

/// Why a file or folder of this owner and mode may be the work of others; null where it cannot.
const char* distrust(uid_t owner, mode_t mode);

}  // namespace tandem
