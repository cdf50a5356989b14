// A zip writer with no more than the reader's tests need: no checksums, no times.
#include "test/frontend/files.h"

namespace tandem::frontend {
namespace {

constexpr uint32_t kIn64 = 0xffffffff;

std::string sizes_of(const ZipEntry& entry) {
  uint32_t size = entry.zip64 ? kIn64 : static_cast<uint32_t>(entry.content.size());
  return raw(size) + raw(size);
}

std::string extra_of(const ZipEntry& entry) {
  if (!entry.zip64) return "";
  uint64_t size = entry.content.size();
  return raw<uint16_t>(0x4444) + raw<uint16_t>(3) + "abc" + raw<uint16_t>(1) + raw<uint16_t>(16) +
         raw(size) + raw(size);
}

std::string local_header(const ZipEntry& entry) {
  return raw<uint32_t>(0x04034b50) + raw<uint16_t>(20) + raw(entry.flags) + raw(entry.method) +
         std::string(8, '\0') + sizes_of(entry) + raw(static_cast<uint16_t>(entry.name.size())) +
         raw(static_cast<uint16_t>(extra_of(entry).size())) + entry.name + extra_of(entry);
}

std::string record(const ZipEntry& entry, uint32_t offset) {
  return raw<uint32_t>(0x02014b50) + raw<uint16_t>(20) + raw<uint16_t>(20) + raw(entry.flags) +
         raw(entry.method) + std::string(8, '\0') + sizes_of(entry) +
         raw(static_cast<uint16_t>(entry.name.size())) +
         raw(static_cast<uint16_t>(extra_of(entry).size())) + std::string(10, '\0') + raw(offset) +
         entry.name + extra_of(entry);
}

}  // namespace

std::string make_zip(const std::vector<ZipEntry>& entries, const std::string& comment) {
  std::string data;
  std::string directory;
  for (const ZipEntry& entry : entries) {
    directory += record(entry, static_cast<uint32_t>(data.size()));
    data += local_header(entry) + entry.content;
  }
  uint16_t count = static_cast<uint16_t>(entries.size());
  return data + directory + raw<uint32_t>(0x06054b50) + std::string(4, '\0') + raw(count) +
         raw(count) + raw(static_cast<uint32_t>(directory.size())) +
         raw(static_cast<uint32_t>(data.size())) + raw(static_cast<uint16_t>(comment.size())) +
         comment;
}

std::string make_npy(const std::string& header, const std::string& content) {
  return "\x93NUMPY" + std::string("\x01\x00", 2) + raw(static_cast<uint16_t>(header.size())) +
         header + content;
}

}  // namespace tandem::frontend
