// Files of the formats under test, written byte by byte, so that they can be wrong in one place.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <vector>

namespace tandem::frontend {

/// A folder that goes with the test.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "tandem_XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }

  std::string file(const std::string& name) const { return (path_ / name).string(); }
  std::string write(const std::string& name, const std::string& content) const {
    std::ofstream(path_ / name, std::ios::binary) << content;
    return file(name);
  }
  size_t files() const {
    std::filesystem::directory_iterator all(path_);
    return static_cast<size_t>(std::distance(begin(all), end(all)));
  }

 private:
  std::filesystem::path path_;
};

/// The bytes of numbers as they stand in memory.
template <class T>
std::string raw(const std::vector<T>& numbers) {
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(T)};
}
template <class T>
std::string raw(T number) {
  return {reinterpret_cast<const char*>(&number), sizeof(T)};
}
template <class T>
std::vector<T> numbers(std::span<const std::byte> bytes) {
  std::vector<T> result(bytes.size() / sizeof(T));
  std::memcpy(result.data(), bytes.data(), bytes.size());
  return result;
}

struct ZipEntry {
  std::string name;
  std::string content;
  uint16_t method = 0;
  uint16_t flags = 0;
  bool zip64 = false;
};

/// An archive of stored entries; with zip64, sizes stand in the extra field, as numpy writes local
/// headers.
std::string make_zip(const std::vector<ZipEntry>& entries, const std::string& comment = "");

/// `header` is the dictionary; version 1.
std::string make_npy(const std::string& header, const std::string& content);

}  // namespace tandem::frontend
