// A file that appears whole or not at all.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace tandem::frontend {

/// Writes beside `path`; `commit` puts the file in its place, without it the destructor removes
/// what was written. Throws UserError when the disk fails.
class AtomicFile {
 public:
  explicit AtomicFile(std::string path);
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile();

  void write(std::span<const std::byte> bytes);
  void commit();

 private:
  [[noreturn]] void fail() const;
  std::string path_;
  std::string temporary_;
  int descriptor_ = -1;
};

}  // namespace tandem::frontend
