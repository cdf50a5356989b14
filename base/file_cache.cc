// A file holds the full key and its length, then the content. Its name is a hash of the key; the
// key inside is compared, so a collision is a miss and never another key's content.
#include "base/file_cache.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstring>
#include <filesystem>
#include <mutex>

#include "base/hash.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

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

}  // namespace

FileCache::FileCache(const std::string& folder, std::string_view kind, std::string_view context)
    : folder_(folder), kind_(kind) {
  static const std::string kBuild = compiler_build();
  if (!kBuild.empty()) context_ = fmt::format("{}\n{}\n", kBuild, context);
}

std::string FileCache::whole(std::string_view key) const {
  const uint64_t size = context_.size() + key.size();
  std::string text(sizeof(size), '\0');
  std::memcpy(text.data(), &size, sizeof(size));
  return text.append(context_).append(key);
}

std::string FileCache::name_of(std::string_view whole) const {
  return fmt::format("{:016x}.{}", hash_bytes(whole), kind_);
}

std::optional<std::string> FileCache::find(std::string_view key) const {
  if (!is_on()) return std::nullopt;
  const std::string begin = whole(key);
  std::optional<std::string> text = folder_.read(name_of(begin));
  if (!text || !text->starts_with(begin)) return std::nullopt;
  text->erase(0, begin.size());
  return text;
}

void FileCache::store(std::string_view key, std::string_view content) const {
  if (!is_on()) return;
  static std::once_flag trimmed;
  std::call_once(trimmed, [this] { folder_.trim_daily(CacheLimits()); });
  const std::string begin = whole(key);
  folder_.write(name_of(begin), begin + std::string(content));
}

}  // namespace tandem
