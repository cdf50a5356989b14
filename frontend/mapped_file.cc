// Weights are mapped, not read: loading a gigabyte costs nothing until an element is touched, and
// two processes share the pages. The descriptor is closed at once, as the mapping keeps the file.
#include "frontend/mapped_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cerrno>

#include "base/diagnostic.h"

namespace tandem::frontend {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers in files are read as they are");

class Descriptor {
 public:
  explicit Descriptor(const std::string& path)
      : number_(open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (number_ >= 0) close(number_);
  }
  int number() const { return number_; }

 private:
  int number_;
};

[[noreturn]] void fail(const std::string& path) {
  throw UserError(fmt::format("[file] cannot read {}: {}", path, std::strerror(errno)));
}

}  // namespace

MappedFile::MappedFile(std::string path) : path_(std::move(path)) {
  Descriptor file(path_);
  struct stat status{};
  if (file.number() < 0 || fstat(file.number(), &status) != 0) fail(path_);
  if (!S_ISREG(status.st_mode)) throw UserError(fmt::format("[file] {} is no regular file", path_));
  size_ = static_cast<size_t>(status.st_size);
  if (size_ == 0) return;  // an empty mapping is an error of mmap
  void* data = mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.number(), 0);
  if (data == MAP_FAILED) fail(path_);
  data_ = static_cast<const std::byte*>(data);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(const_cast<std::byte*>(data_), size_);
}

}  // namespace tandem::frontend
