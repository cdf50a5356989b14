// The folder of the cache, for people: what is in it, why a program was compiled again, and the way
// to another machine of the same kind.
#pragma once

#include <string>
#include <vector>

#include "base/cache_folder.h"

namespace tandem::driver {

/// A line an entry: its name, kind, size, age, processor, the beginning of its text.
std::string list_cache(const CacheFolder& folder);

struct CacheCheck {
  int whole = 0;
  std::vector<std::string> damaged;
};
/// Reads every entry, and compares its sum and its name with what it holds.
CacheCheck verify_cache(const CacheFolder& folder);

/// How the keys of two entries differ, a line each. UserError where a name has no entry.
std::string explain_cache(const CacheFolder& folder, const std::string& name,
                          const std::string& other);

/// Removes all entries; gives their number.
size_t clear_cache(const CacheFolder& folder);

/// All whole entries in one file. Importing takes them over, and gives their number; UserError for
/// a file that is none, or is damaged. Entries of another build or processor are never read. What
/// is imported is run: take it from whom you would take a program.
size_t export_cache(const CacheFolder& folder, const std::string& file);
size_t import_cache(const CacheFolder& folder, const std::string& file);

/// `list`, `verify`, `clear`, `explain A B`, `export FILE` or `import FILE`, over the folder that
/// TANDEM_CACHE_DIR names; gives what to print. UserError for other words, without a folder, and
/// where `verify` finds damage.
std::string cache_command(const std::vector<std::string>& words);

}  // namespace tandem::driver
