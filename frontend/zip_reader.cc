// A zip file is read from its end: an end record, found by its signature behind a comment of at
// most 64 KiB, names the place of the central directory, whose records name the local headers that
// stand before the data. Sizes come from the directory, as local headers may leave them to a
// trailing descriptor. Every offset is checked before it is followed: the file may be cut off, or
// be no archive at all.
#include "frontend/zip_reader.h"

#include <fmt/format.h>

#include <utility>

#include "base/diagnostic.h"

namespace tandem::frontend {
namespace {

constexpr uint32_t kEndSignature = 0x06054b50;
constexpr uint32_t kEnd64Signature = 0x06064b50;
constexpr uint32_t kLocator64Signature = 0x07064b50;
constexpr uint32_t kRecordSignature = 0x02014b50;
constexpr uint32_t kHeaderSignature = 0x04034b50;
constexpr uint64_t kEndBytes = 22;
constexpr uint64_t kEnd64Bytes = 56;
constexpr uint64_t kLocator64Bytes = 20;
constexpr uint64_t kRecordBytes = 46;
constexpr uint64_t kHeaderBytes = 30;
constexpr uint64_t kLongestComment = 0xffff;
constexpr uint32_t kIn64 = 0xffffffff;  // the number stands in the zip64 part
constexpr uint16_t kSizes64 = 1;        // kind of an extra field
constexpr uint16_t kEncrypted = 1;      // flag

}  // namespace

ZipReader::ZipReader(std::shared_ptr<const MappedFile> file)
    : file_(std::move(file)), bytes_(file_->bytes()) {
  read_directory(find_directory());
}

void ZipReader::fail(const std::string& what) const {
  throw UserError(fmt::format("[zip] {}: {}", file_->path(), what));
}

uint64_t ZipReader::find_end() const {
  if (bytes_.size() < kEndBytes)
    fail(fmt::format("{} bytes are too few for a zip archive", bytes_.size()));
  uint64_t last = bytes_.size() - kEndBytes;
  uint64_t first = last - std::min(last, kLongestComment);
  for (uint64_t at = last + 1; at-- > first;) {
    // The comment must reach to the end, else the signature is chance.
    if (load_number<uint32_t>(bytes_, at) == kEndSignature &&
        at + kEndBytes + load_number<uint16_t>(bytes_, at + 20) == bytes_.size())
      return at;
  }
  bool begins = load_number<uint32_t>(bytes_, 0) == kHeaderSignature;
  fail(begins ? "the end record of the archive is missing: the file is cut off"
              : "is no zip archive");
}

ZipReader::Directory ZipReader::find_directory() const {
  uint64_t end = find_end();
  if (load_number<uint16_t>(bytes_, end + 4) != load_number<uint16_t>(bytes_, end + 6))
    fail("archives of several files are not read");
  Directory directory{load_number<uint32_t>(bytes_, end + 16),
                      load_number<uint32_t>(bytes_, end + 12),
                      load_number<uint16_t>(bytes_, end + 10)};
  bool in64 = directory.offset == kIn64 || directory.size == kIn64 || directory.count == 0xffff;
  if (in64) directory = find_directory64(end);
  if (!fits(directory.offset, directory.size, end))
    fail(fmt::format("the directory of {} bytes at {} ends beyond the file's {} bytes",
                     directory.size, directory.offset, bytes_.size()));
  return directory;
}

ZipReader::Directory ZipReader::find_directory64(uint64_t end) const {
  if (end < kLocator64Bytes ||
      load_number<uint32_t>(bytes_, end - kLocator64Bytes) != kLocator64Signature)
    fail("the zip64 end record is missing");
  uint64_t at = load_number<uint64_t>(bytes_, end - kLocator64Bytes + 8);
  if (!fits(at, kEnd64Bytes, end) || load_number<uint32_t>(bytes_, at) != kEnd64Signature)
    fail("the zip64 end record is missing");
  return {load_number<uint64_t>(bytes_, at + 48), load_number<uint64_t>(bytes_, at + 40),
          load_number<uint64_t>(bytes_, at + 32)};
}

void ZipReader::read_directory(const Directory& directory) {
  uint64_t at = directory.offset;
  uint64_t end = directory.offset + directory.size;
  for (uint64_t i = 0; i < directory.count; ++i) at = read_record(at, end);
}

/// Adds the entry of the record at `at`; returns where the next one starts.
uint64_t ZipReader::read_record(uint64_t at, uint64_t end) {
  if (!fits(at, kRecordBytes, end) || load_number<uint32_t>(bytes_, at) != kRecordSignature)
    fail(fmt::format("the directory is damaged at byte {}", at));
  uint64_t name_bytes = load_number<uint16_t>(bytes_, at + 28);
  uint64_t extra_bytes = load_number<uint16_t>(bytes_, at + 30);
  uint64_t size = kRecordBytes + name_bytes + extra_bytes + load_number<uint16_t>(bytes_, at + 32);
  if (!fits(at, size, end)) fail(fmt::format("the directory is damaged at byte {}", at));
  std::string name(as_text(bytes_.subspan(at + kRecordBytes, name_bytes)));
  Entry entry{load_number<uint16_t>(bytes_, at + 10), load_number<uint16_t>(bytes_, at + 8),
              load_number<uint32_t>(bytes_, at + 42), load_number<uint32_t>(bytes_, at + 20),
              load_number<uint32_t>(bytes_, at + 24)};
  read_sizes64(name, bytes_.subspan(at + kRecordBytes + name_bytes, extra_bytes), entry);
  if (!name.ends_with('/') && !entries_.emplace(name, entry).second)
    fail(fmt::format("entry \"{}\" is there twice", name));
  return at + size;
}

/// Numbers that do not fit 32 bits stand in an extra field, in this order, and only those.
void ZipReader::read_sizes64(const std::string& name, std::span<const std::byte> extra,
                             Entry& entry) const {
  uint64_t* const numbers[] = {&entry.size, &entry.packed, &entry.header};
  if (entry.size != kIn64 && entry.packed != kIn64 && entry.header != kIn64) return;
  for (uint64_t at = 0; fits(at, 4, extra.size());) {
    uint16_t kind = load_number<uint16_t>(extra, at);
    uint64_t end = at + 4 + load_number<uint16_t>(extra, at + 2);
    if (end > extra.size()) break;
    at += 4;
    for (uint64_t* number : numbers) {
      if (kind != kSizes64 || *number != kIn64 || !fits(at, 8, end)) continue;
      *number = load_number<uint64_t>(extra, at);
      at += 8;
    }
    if (kind == kSizes64) return;
    at = end;
  }
  fail(fmt::format("entry \"{}\" has no zip64 sizes", name));
}

std::span<const std::byte> ZipReader::bytes(std::string_view name) const {
  std::map<std::string, Entry, std::less<>>::const_iterator it = entries_.find(name);
  if (it == entries_.end()) fail(fmt::format("there is no entry \"{}\"", name));
  const Entry& entry = it->second;
  if ((entry.flags & kEncrypted) != 0) fail(fmt::format("entry \"{}\" is encrypted", name));
  if (entry.method != 0)
    fail(fmt::format("entry \"{}\" is compressed (method {}); only stored entries are read", name,
                     entry.method));
  if (entry.packed != entry.size)
    fail(fmt::format("entry \"{}\" is stored, but {} bytes are to become {}", name, entry.packed,
                     entry.size));
  if (!fits(entry.header, kHeaderBytes, bytes_.size()) ||
      load_number<uint32_t>(bytes_, entry.header) != kHeaderSignature)
    fail(fmt::format("entry \"{}\" has no header at byte {}", name, entry.header));
  uint64_t start = entry.header + kHeaderBytes + load_number<uint16_t>(bytes_, entry.header + 26) +
                   load_number<uint16_t>(bytes_, entry.header + 28);
  if (!fits(start, entry.size, bytes_.size()))
    fail(fmt::format("entry \"{}\" of {} bytes ends beyond the file's {} bytes", name, entry.size,
                     bytes_.size()));
  return bytes_.subspan(start, entry.size);
}

}  // namespace tandem::frontend
