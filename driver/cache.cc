// Entries tell their own keys (base/cache_key), so all of this needs no compiler. A file of
// exported entries is an archive with a sum; the name of an entry is made of sums over its key,
// which are counted again before it is believed.
#include "driver/cache.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <ctime>
#include <span>

#include "base/archive.h"
#include "base/diagnostic.h"
#include "base/file_cache.h"
#include "base/flags.h"
#include "base/hash.h"
#include "frontend/atomic_file.h"
#include "frontend/mapped_file.h"

namespace tandem::driver {
namespace {

struct Carried {
  std::string name;
  std::string content;
};
template <class A>
void fields(A& archive, Carried& entry) {
  auto& [name, content] = entry;
  archive(name, content);
}

struct CacheExport {
  std::string magic;
  std::vector<Carried> entries;
  uint64_t sum = 0;  // of the contents
};
template <class A>
void fields(A& archive, CacheExport& all) {
  auto& [magic, entries, sum] = all;
  archive(magic, entries, sum);
}

constexpr std::string_view kMagic = "tandem cache export 1";

uint64_t sum_of(const std::vector<Carried>& entries) {
  uint64_t sum = 0;
  for (const Carried& entry : entries) sum = sum * 31 + hash_bytes(entry.content);
  return sum;
}

std::optional<CacheKey> key_in(const CacheFolder& folder, const std::string& name) {
  const std::optional<std::string> content = folder.peek(name);
  return content ? key_of_entry(name, *content) : std::nullopt;
}

std::string age_of(int64_t seconds) {
  const int64_t age = std::max<int64_t>(0, std::time(nullptr) - seconds);
  if (age < 3600) return fmt::format("{} min", age / 60);
  return age < 48 * 3600 ? fmt::format("{} h", age / 3600) : fmt::format("{} d", age / 86400);
}

std::string_view first_line(std::string_view text) {
  return text.substr(0, std::min({text.find('\n'), text.size(), size_t{60}}));
}

CacheKey asked_key(const CacheFolder& folder, const std::string& name) {
  const std::optional<CacheKey> key =
      CacheFolder::is_entry_name(name) ? key_in(folder, name) : std::nullopt;
  if (!key) throw UserError("[cache] there is no whole entry '" + name + "'");
  return *key;
}

}  // namespace

std::string list_cache(const CacheFolder& folder) {
  std::string text;
  uint64_t bytes = 0;
  const std::vector<CacheFolder::Entry> entries = folder.entries();
  for (const CacheFolder::Entry& entry : entries) {
    const std::optional<CacheKey> key = key_in(folder, entry.name);
    bytes += entry.bytes;
    text += fmt::format("{:<26} {:>9} {:>7}  {}\n", entry.name, entry.bytes, age_of(entry.seconds),
                        !key ? "damaged"
                             : fmt::format("{:.8} {} {}", part_of(*key, FileCache::kCompiler),
                                           part_of(*key, "processor"),
                                           first_line(part_of(*key, FileCache::kText))));
  }
  return text + fmt::format("{} entries, {} bytes\n", entries.size(), bytes);
}

CacheCheck verify_cache(const CacheFolder& folder) {
  CacheCheck check;
  for (const CacheFolder::Entry& entry : folder.entries()) {
    const std::optional<CacheKey> key = key_in(folder, entry.name);
    if (key)
      ++check.whole;
    else
      check.damaged.push_back(entry.name);
  }
  return check;
}

std::string explain_cache(const CacheFolder& folder, const std::string& name,
                          const std::string& other) {
  const std::vector<std::string> lines =
      differences(asked_key(folder, name), asked_key(folder, other));
  return lines.empty() ? "the keys are equal\n" : fmt::format("{}\n", fmt::join(lines, "\n"));
}

size_t clear_cache(const CacheFolder& folder) {
  const std::vector<CacheFolder::Entry> entries = folder.entries();
  for (const CacheFolder::Entry& entry : entries) folder.remove(entry.name);
  const size_t left = folder.entries().size();
  if (left > 0) throw UserError(fmt::format("[cache] {} entries cannot be removed", left));
  return entries.size();
}

size_t export_cache(const CacheFolder& folder, const std::string& file) {
  CacheExport all{std::string(kMagic), {}, 0};
  for (const CacheFolder::Entry& entry : folder.entries()) {
    std::optional<std::string> content = folder.peek(entry.name);
    if (content && key_of_entry(entry.name, *content))
      all.entries.push_back({entry.name, std::move(*content)});
  }
  all.sum = sum_of(all.entries);
  ArchiveWriter archive;
  fields(archive, all);
  const std::string bytes = archive.take();
  frontend::AtomicFile out(file);
  out.write(std::as_bytes(std::span(bytes)));
  out.commit();
  return all.entries.size();
}

size_t import_cache(const CacheFolder& folder, const std::string& file) {
  const frontend::MappedFile in(file);
  const std::span<const std::byte> bytes = in.bytes();
  ArchiveReader archive({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  CacheExport all;
  fields(archive, all);
  if (!archive.is_complete() || all.magic != kMagic || all.sum != sum_of(all.entries))
    throw UserError("[cache] '" + file + "' holds no exported cache, or is damaged");
  for (const Carried& entry : all.entries)
    if (!key_of_entry(entry.name, entry.content))
      throw UserError("[cache] '" + file + "': entry '" + entry.name + "' is damaged");
  for (const Carried& entry : all.entries) {
    folder.write(entry.name, entry.content);
    if (folder.peek(entry.name) != entry.content)
      throw UserError("[cache] entry '" + entry.name + "' cannot be stored: is the disk full?");
  }
  return all.entries.size();
}

std::string cache_command(const std::vector<std::string>& words) {
  const CacheFolder folder(flag_cache_dir());
  if (!folder.is_open())
    throw UserError("[cache] there is no folder: TANDEM_CACHE_DIR is '" + flag_cache_dir() + "'");
  const std::string word = words.empty() ? "" : words[0];
  if (words.size() == 1 && word == "list") return list_cache(folder);
  if (words.size() == 1 && word == "clear")
    return fmt::format("{} entries removed\n", clear_cache(folder));
  if (words.size() == 1 && word == "verify") {
    const CacheCheck check = verify_cache(folder);
    if (check.damaged.empty()) return fmt::format("{} entries, none damaged\n", check.whole);
    throw UserError(fmt::format(
        "[cache] {} of {} entries are damaged, and will be written again: {}", check.damaged.size(),
        check.damaged.size() + static_cast<size_t>(check.whole), fmt::join(check.damaged, " ")));
  }
  if (words.size() == 3 && word == "explain") return explain_cache(folder, words[1], words[2]);
  if (words.size() == 2 && word == "export")
    return fmt::format("{} entries exported\n", export_cache(folder, words[1]));
  if (words.size() == 2 && word == "import")
    return fmt::format("{} entries imported\n", import_cache(folder, words[1]));
  throw UserError("[cache] takes list, verify, clear, explain A B, export FILE or import FILE");
}

}  // namespace tandem::driver
