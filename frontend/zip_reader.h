// Entries of a zip archive in place: .pt2, .npz and .tdm files store theirs uncompressed.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "frontend/mapped_file.h"

namespace tandem::frontend {

/// Reads the central directory when made; throws UserError `[zip] PATH: …` for a file that is cut
/// off or is no archive. Sums over the data are not checked: that would read all of it. Zip64 is
/// read, encryption and archives of several files are refused.
class ZipReader {
 public:
  explicit ZipReader(std::shared_ptr<const MappedFile> file);

  /// Folder entries ("a/") are left out; names in order.
  struct Entry {
    uint16_t method = 0;  // 0: stored
    uint16_t flags = 0;
    uint64_t header = 0;  // offset of the local header
    uint64_t packed = 0;  // bytes in the file
    uint64_t size = 0;    // bytes once unpacked
  };
  const std::map<std::string, Entry, std::less<>>& entries() const { return entries_; }
  bool contains(std::string_view name) const { return entries_.find(name) != entries_.end(); }

  /// The data of an entry, valid while the file is mapped, aligned as the archive has it (PyTorch
  /// aligns to 64 bytes, numpy does not). UserError when there is none of that name, or it is
  /// compressed or cut off.
  std::span<const std::byte> bytes(std::string_view name) const;

 private:
  struct Directory {
    uint64_t offset = 0;
    uint64_t size = 0;
    uint64_t count = 0;
  };
  [[noreturn]] void fail(const std::string& what) const;
  uint64_t find_end() const;
  Directory find_directory() const;
  Directory find_directory64(uint64_t end) const;
  void read_directory(const Directory& directory);
  uint64_t read_record(uint64_t at, uint64_t end);
  void read_sizes64(const std::string& name, std::span<const std::byte> extra, Entry& entry) const;

  std::shared_ptr<const MappedFile> file_;
  std::span<const std::byte> bytes_;
  std::map<std::string, Entry, std::less<>> entries_;
};

}  // namespace tandem::frontend
