// One file an entry: the full key, then the object. The name is a hash of the key; the key inside
// is compared, so a collision is a miss and never another kernel's code. Written beside its place
// and renamed.
#include "codegen/object_cache.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace tandem::codegen {
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

uint64_t hash_of(const std::string& text) {
  uint64_t hash = 0xCBF29CE484222325;
  for (char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3;
  return hash;
}

}  // namespace

ObjectCache::ObjectCache(std::string folder, const Target& target, int level)
    : folder_(std::move(folder)) {
  std::string build = compiler_build();
  std::error_code error;
  if (!folder_.empty()) fs::create_directories(folder_, error);
  if (build.empty() || error) folder_.clear();
  context_ = fmt::format("{}\n{} {} {}\n", build, target.cpu, target.features, level);
}

std::string ObjectCache::key_of(const loop::Kernel& kernel) const {
  return context_ + loop::to_string(kernel);
}

std::string ObjectCache::path_of(const std::string& key) const {
  return fmt::format("{}/{:016x}.o", folder_, hash_of(key));
}

std::optional<std::string> ObjectCache::find(const loop::Kernel& kernel) const {
  if (folder_.empty()) return std::nullopt;
  std::string key = key_of(kernel);
  std::ifstream file(path_of(key), std::ios::binary);
  std::ostringstream content;
  if (!file || !(content << file.rdbuf())) return std::nullopt;
  std::string text = std::move(content).str();
  uint64_t size = 0;
  size_t head = key.size() + sizeof(size);
  if (text.size() < head || text.compare(0, key.size(), key) != 0) return std::nullopt;
  text.copy(reinterpret_cast<char*>(&size), sizeof(size), key.size());
  if (text.size() - head != size) return std::nullopt;  // cut off
  return text.substr(head);
}

void ObjectCache::store(const loop::Kernel& kernel, const std::string& object) const {
  if (folder_.empty()) return;
  static std::atomic<uint64_t> number = 0;
  std::string key = key_of(kernel);
  std::string temporary = fmt::format("{}/{}.{}.tmp", folder_, getpid(), number++);
  uint64_t size = object.size();
  std::ofstream file(temporary, std::ios::binary);
  file << key;
  file.write(reinterpret_cast<const char*>(&size), sizeof(size));
  file << object;
  file.close();
  std::error_code error;
  if (file) fs::rename(temporary, path_of(key), error);
  if (!file || error) fs::remove(temporary, error);
}

}  // namespace tandem::codegen
