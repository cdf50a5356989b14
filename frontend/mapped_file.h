// A file as memory, and reads from it that cannot leave it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

namespace tandem::frontend {

/// The whole file, read-only, mapped privately. A file that another process cuts while it is mapped
/// raises SIGBUS on access: weights are files that nobody edits in place.
class MappedFile {
 public:
  /// Throws UserError when the file cannot be opened or is no regular file.
  explicit MappedFile(std::string path);
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  const std::string& path() const { return path_; }
  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  std::string path_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

/// True when [offset, offset + size) lies within `total` bytes; no sum that could overflow.
inline bool fits(uint64_t offset, uint64_t size, uint64_t total) {
  return offset <= total && size <= total - offset;
}

/// A little-endian number, as zip, npy and safetensors write them. The caller checks that it fits.
template <class T>
T load_number(std::span<const std::byte> bytes, uint64_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

inline std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace tandem::frontend
