// A file holds the full key, a sum over the content, then the content. Its name is a hash of the
// key; the key inside is compared, so a collision is a miss and never another key's content.
// Written beside its place and renamed.
#include "base/file_cache.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <vector>

namespace tandem {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTrimmed = "trimmed";  // a file as old as the last trimming

/// Place, size and time of the file that this code was loaded from.
std::string compiler_build() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<void*>(&compiler_build), &info) == 0) return "";
  std::error_code error;
  fs::path path = fs::canonical(info.dli_fname, error);
  if (error) path = fs::read_symlink("/proc/self/exe", error);
  if (error) return "";
  uintmax_t size = fs::file_size(path, error);
  int64_t time = error ? 0 : fs::last_write_time(path, error).time_since_epoch().count();
  return error ? "" : fmt::format("{} {} {}", path.string(), size, time);
}

/// Eight bytes a step: a program's entry has megabytes.
uint64_t hash_of(std::string_view text) {
  constexpr uint64_t kPrime = 0x9E3779B97F4A7C15;
  uint64_t hash = 0xCBF29CE484222325 ^ text.size();
  while (!text.empty()) {
    uint64_t word = 0;
    size_t count = std::min(text.size(), sizeof(word));
    std::memcpy(&word, text.data(), count);
    hash = (hash ^ word) * kPrime;
    hash ^= hash >> 29;
    text.remove_prefix(count);
  }
  return hash;
}

std::optional<std::string> read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return std::nullopt;
  std::string text(static_cast<size_t>(file.tellg()), '\0');
  file.seekg(0);
  if (!file.read(text.data(), static_cast<std::streamsize>(text.size()))) return std::nullopt;
  return text;
}

}  // namespace

FileCache::FileCache(std::string folder, std::string_view kind, std::string_view context)
    : folder_(std::move(folder)), kind_(kind) {
  static const std::string kBuild = compiler_build();
  std::error_code error;
  if (!folder_.empty()) fs::create_directories(folder_, error);
  if (kBuild.empty() || error) folder_.clear();
  context_ = fmt::format("{}\n{}\n", kBuild, context);
}

std::string FileCache::path_of(const std::string& key) const {
  return fmt::format("{}/{:016x}.{}", folder_, hash_of(key), kind_);
}

std::optional<std::string> FileCache::find(std::string_view key) const {
  if (!is_on()) return std::nullopt;
  const std::string whole = context_ + std::string(key);
  const std::string path = path_of(whole);
  std::optional<std::string> text = read_file(path);
  uint64_t sum = 0;
  const size_t head = whole.size() + sizeof(sum);
  if (!text || text->size() < head || text->compare(0, whole.size(), whole) != 0)
    return std::nullopt;
  std::memcpy(&sum, text->data() + whole.size(), sizeof(sum));
  text->erase(0, head);
  if (hash_of(*text) != sum) return std::nullopt;  // cut off or damaged
  std::error_code error;  // of a folder that is only read: then its age is that of writing
  fs::last_write_time(path, fs::file_time_type::clock::now(), error);
  return text;
}

void FileCache::store(std::string_view key, std::string_view content) const {
  if (!is_on()) return;
  static std::once_flag trimmed;
  std::call_once(trimmed, [this] { trim_daily(folder_, CacheLimits()); });
  static std::atomic<uint64_t> number = 0;
  const std::string whole = context_ + std::string(key);
  const std::string temporary = fmt::format("{}/{}.{}.tmp", folder_, getpid(), number++);
  const uint64_t sum = hash_of(content);
  std::ofstream file(temporary, std::ios::binary);
  file << whole;
  file.write(reinterpret_cast<const char*>(&sum), sizeof(sum));
  file << content;
  file.close();
  std::error_code error;
  if (file) fs::rename(temporary, path_of(whole), error);
  if (!file || error) fs::remove(temporary, error);
}

void trim_folder(const std::string& folder, const CacheLimits& most) {
  struct Entry {
    fs::file_time_type time;
    fs::path path;
    uintmax_t size;
  };
  std::vector<Entry> entries;
  uintmax_t bytes = 0;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    if (at->path().filename() == kTrimmed) continue;
    const uintmax_t size = at->file_size(error);
    if (!error) entries.push_back({at->last_write_time(error), at->path(), size});
    if (!error) bytes += size;
    error.clear();
  }
  uint64_t files = entries.size();
  if (bytes <= most.bytes && files <= most.files) return;
  std::ranges::sort(entries, {}, &Entry::time);
  for (const Entry& entry : entries) {
    if (bytes <= most.bytes * 3 / 4 && files <= most.files * 3 / 4) return;
    if (!fs::remove(entry.path, error)) continue;
    bytes -= entry.size;
    --files;
  }
}

void trim_daily(const std::string& folder, const CacheLimits& most) {
  const fs::path stamp = fs::path(folder) / kTrimmed;
  std::error_code error;
  const fs::file_time_type time = fs::last_write_time(stamp, error);
  const fs::file_time_type now = fs::file_time_type::clock::now();
  if (!error && time <= now && now - time < std::chrono::hours(24)) return;
  std::ofstream(stamp).put('\n');  // first, so that processes that start together do it once
  trim_folder(folder, most);
}

}  // namespace tandem
