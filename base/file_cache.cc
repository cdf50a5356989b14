// A file holds the full key, which tells its length, then the content. Its name is made of sums
// over the text that was asked for and over the whole key; the key inside is compared, so a
// collision is a miss and never another key's content. A day of tests can write a million entries,
// so the daily trim is not enough: one name in a thousand trims as well, whichever process writes
// it.
#include "base/file_cache.h"

#include <dlfcn.h>
#include <elf.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <link.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <span>

#include "base/hash.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

/// The note that the linker left in the binary that `address` lies in, as hexadecimal digits.
struct BuildNote {
  uintptr_t address = 0;
  std::string digits;
};

void take_note(const std::byte* at, size_t size, BuildNote& found) {
  const auto padded = [](size_t bytes) { return (bytes + 3) / 4 * 4; };
  while (size >= sizeof(ElfW(Nhdr))) {
    ElfW(Nhdr) note;
    std::memcpy(&note, at, sizeof(note));
    const size_t name = sizeof(note);
    const size_t content = name + padded(note.n_namesz);
    const size_t end = content + padded(note.n_descsz);
    if (end > size) return;
    if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 &&
        std::memcmp(at + name, "GNU", 4) == 0)
      for (size_t i = 0; i < note.n_descsz; ++i)
        found.digits += fmt::format("{:02x}", static_cast<unsigned>(at[content + i]));
    at += end;
    size -= end;
  }
}

int visit_binary(dl_phdr_info* binary, size_t, void* data) {
  BuildNote& found = *static_cast<BuildNote*>(data);
  const std::span headers(binary->dlpi_phdr, binary->dlpi_phnum);
  const bool is_own = std::ranges::any_of(headers, [&](const ElfW(Phdr) & header) {
    const uintptr_t begin = binary->dlpi_addr + header.p_vaddr;
    return header.p_type == PT_LOAD && found.address >= begin &&
           found.address < begin + header.p_memsz;
  });
  if (!is_own) return 0;
  for (const ElfW(Phdr) & header : headers)
    if (header.p_type == PT_NOTE)
      take_note(reinterpret_cast<const std::byte*>(binary->dlpi_addr + header.p_vaddr),
                header.p_memsz, found);
  return 1;
}

std::string place_of_binary(void* address) {
  Dl_info info{};
  if (dladdr(address, &info) == 0) return "";
  std::error_code error;
  fs::path path = fs::canonical(info.dli_fname, error);
  if (error) path = fs::read_symlink("/proc/self/exe", error);
  if (error) return "";
  uintmax_t size = fs::file_size(path, error);
  int64_t time = error ? 0 : fs::last_write_time(path, error).time_since_epoch().count();
  return error ? "" : fmt::format("{} {} {}", path.string(), size, time);
}

std::string build_of_binary() {
  void* const here = reinterpret_cast<void*>(&build_of_binary);
  BuildNote note{reinterpret_cast<uintptr_t>(here), ""};
  dl_iterate_phdr(visit_binary, &note);
  return note.digits.empty() ? place_of_binary(here) : note.digits;
}

constexpr uint64_t kStoresForTrim = 1024;

/// A name tells the text from all else, so that entries of one text are found by name.
std::string digits_of(std::string_view bytes) {
  return fmt::format("{:08x}", static_cast<uint32_t>(hash_bytes(bytes) >> 32));
}
std::string beginning_of(std::string_view text) { return digits_of(text); }
std::string ending_of(std::string_view whole) { return digits_of(whole); }

}  // namespace

const std::string& compiler_build() {
  static const std::string kBuild = build_of_binary();
  return kBuild;
}

FileCache::FileCache(const std::string& folder, std::string_view kind, CacheKey context)
    : folder_(folder), kind_(kind) {
  if (compiler_build().empty()) return;
  context_ = std::move(context);
  context_.insert(context_.begin(), {std::string(kCompiler), compiler_build()});
}

CacheKey FileCache::key(std::string_view text) const {
  CacheKey key = context_;
  key.push_back({std::string(kText), std::string(text)});
  return key;
}

std::string FileCache::name_of(std::string_view text, std::string_view whole) const {
  return beginning_of(text) + ending_of(whole) + "." + kind_;
}

std::optional<std::string> FileCache::find(std::string_view text) const {
  if (!is_on()) return std::nullopt;
  const std::string begin = to_bytes(key(text));
  std::optional<std::string> entry = folder_.read(name_of(text, begin));
  if (!entry || !entry->starts_with(begin)) return std::nullopt;
  entry->erase(0, begin.size());
  return entry;
}

void FileCache::store(std::string_view text, std::string_view content) const {
  if (!is_on()) return;
  static std::once_flag trimmed;
  std::call_once(trimmed, [this] { folder_.trim_daily(CacheLimits()); });
  const std::string begin = to_bytes(key(text));
  if (hash_bytes(begin) % kStoresForTrim == 0) folder_.trim(CacheLimits());
  folder_.write(name_of(text, begin), begin + std::string(content));
}

std::string FileCache::explain_miss(std::string_view text) const {
  if (!is_on()) return "";
  const CacheKey own = key(text);
  std::vector<std::string> nearest;
  for (const std::string& name : folder_.names(beginning_of(text))) {
    if (!name.ends_with("." + kind_)) continue;
    const std::optional<std::string> bytes = folder_.peek(name);
    const std::optional<CacheKey> there = bytes ? key_of_entry(name, *bytes) : std::nullopt;
    if (!there || part_of(*there, kText) != text) continue;
    std::vector<std::string> found = differences(own, *there);
    if (nearest.empty() || (!found.empty() && found.size() < nearest.size()))
      nearest = std::move(found);
  }
  return fmt::format("{}", fmt::join(nearest, "; "));
}

std::optional<CacheKey> key_of_entry(std::string_view name, std::string_view entry) {
  std::string_view rest = entry;
  std::optional<CacheKey> key = take_key(rest);
  if (!key || !CacheFolder::is_entry_name(name)) return std::nullopt;
  const std::string_view whole = entry.substr(0, entry.size() - rest.size());
  const std::string digits = beginning_of(part_of(*key, FileCache::kText)) + ending_of(whole);
  return name.starts_with(digits + ".") ? key : std::nullopt;
}

}  // namespace tandem
