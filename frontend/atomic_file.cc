// The temporary stands in the same folder, as rename is atomic within a file system only, and is
// flushed before the rename, so that a power cut cannot leave a name without its content. mkstemp
// picks a free name, so two writers of one path do not mix; the later rename wins.
#include "frontend/atomic_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/diagnostic.h"

namespace tandem::frontend {

AtomicFile::AtomicFile(std::string path) : path_(std::move(path)), temporary_(path_ + ".XXXXXX") {
  descriptor_ = mkstemp(temporary_.data());
  if (descriptor_ < 0) fail();
}

AtomicFile::~AtomicFile() {
  if (descriptor_ < 0) return;
  close(descriptor_);
  unlink(temporary_.c_str());
}

void AtomicFile::fail() const {
  throw UserError(fmt::format("[file] cannot write {}: {}", path_, std::strerror(errno)));
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    ssize_t count = ::write(descriptor_, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail();
    bytes = bytes.subspan(static_cast<size_t>(count));
  }
}

void AtomicFile::commit() {
  // mkstemp makes files private; give what an ordinary new file has. umask can only be read by
  // setting it.
  mode_t mask = umask(0);
  umask(mask);
  if (fchmod(descriptor_, 0666 & ~mask) != 0 || fsync(descriptor_) != 0) fail();
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0) fail();
  close(std::exchange(descriptor_, -1));
}

}  // namespace tandem::frontend
