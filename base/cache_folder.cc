// The cache holds object code that is linked into the process, in a place that the user names,
// among files that are not ours, and its writers may be killed. So it is a folder of our own, and
// the folder is opened once and then used by descriptor: what was checked is what is used. A file
// begins with a magic line, by which trimming knows it, then size and sum of the content. It is
// written under a random name and renamed. Renaming and trimming hold a lock on the folder, shared
// and exclusive, so that the file that is removed is the old one that was looked at.
#include "base/cache_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "base/hash.h"

namespace tandem {
namespace {

constexpr std::string_view kMagic = "tandem cache 1\n";
constexpr const char* kTrimmed = "trimmed";  // a file as old as the last trimming
constexpr time_t kDay = 24 * 60 * 60;
constexpr time_t kLongestWrite = 60 * 60;  // a temporary that is older has no writer any more

struct Header {
  std::array<char, 16> magic{};
  uint64_t size = 0;
  uint64_t sum = 0;
};
static_assert(sizeof(Header) == 32 && kMagic.size() <= sizeof(Header::magic));

Header header_of(std::string_view content) {
  Header header;
  std::ranges::copy(kMagic, header.magic.begin());
  header.size = content.size();
  header.sum = hash_bytes(content);
  return header;
}

class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (number_ >= 0) close(number_);
  }
  int get() const { return number_; }
  explicit operator bool() const { return number_ >= 0; }

 private:
  int number_;
};

/// Held on an opening of the folder of its own: locks belong to openings, not to threads. A file
/// system without locks gets none; then a new file may be trimmed for the old one of its name. Who
/// holds one may have been stopped (Ctrl-Z, a debugger), for as long as anyone likes: then there is
/// none either, and what wants one is left undone.
class FolderLock {
 public:
  FolderLock(int folder, int kind)
      : opening_(openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
    const Clock::time_point end = Clock::now() + kLongestWait;
    while (opening_ && flock(opening_.get(), kind | LOCK_NB) != 0) {
      if (errno == EINTR) continue;
      is_taken_ = errno == EWOULDBLOCK;
      if (!is_taken_ || Clock::now() > end) return;
      std::this_thread::sleep_for(kBetweenTries);
    }
    is_taken_ = false;
  }
  /// By someone else, who does not give it back.
  bool is_taken() const { return is_taken_; }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds kLongestWait{2};
  static constexpr std::chrono::milliseconds kBetweenTries{1};
  Descriptor opening_;
  bool is_taken_ = false;
};

/// A file beyond the limit of the process (ulimit -f) raises SIGXFSZ, which ends it. A cache must
/// not: blocked for this thread, and taken away where it came.
class WithoutSizeSignal {
 public:
  WithoutSizeSignal() {
    sigemptyset(&signal_);
    sigaddset(&signal_, SIGXFSZ);
    pthread_sigmask(SIG_BLOCK, &signal_, &before_);
  }
  WithoutSizeSignal(const WithoutSizeSignal&) = delete;
  WithoutSizeSignal& operator=(const WithoutSizeSignal&) = delete;
  ~WithoutSizeSignal() {
    const timespec now{};
    while (sigtimedwait(&signal_, nullptr, &now) < 0 && errno == EINTR) continue;
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }

 private:
  sigset_t signal_{};
  sigset_t before_{};
};

/// Once for each path in a process: a compilation opens the folder many times.
void warn_once(const std::string& path, const char* why) {
  static std::mutex mutex;
  static std::set<std::string> warned;
  const std::lock_guard<std::mutex> lock(mutex);
  if (!warned.insert(path).second) return;
  fmt::print(stderr, "tandem: warning: the cache {} is not used: {}\n", path, why);
}

bool is_hexadecimal(std::string_view text) {
  return std::ranges::all_of(
      text, [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

bool is_temporary_name(std::string_view name) {
  return name.size() == 36 && is_hexadecimal(name.substr(0, 32)) && name.substr(32) == ".tmp";
}

/// Not to be foreseen: nobody can have put something in its place. Empty where the system has no
/// random bytes.
std::string temporary_name() {
  std::array<uint64_t, 2> random{};
  if (getrandom(random.data(), sizeof(random), 0) != sizeof(random)) return "";
  return fmt::format("{:016x}{:016x}.tmp", random[0], random[1]);
}

bool read_all(int file, void* data, size_t size) {
  for (char* at = static_cast<char*>(data); size > 0;) {
    const ssize_t count = ::read(file, at, size);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    at += count;
    size -= static_cast<size_t>(count);
  }
  return true;
}

bool write_all(int file, const void* data, size_t size) {
  for (const char* at = static_cast<const char*>(data); size > 0;) {
    const ssize_t count = ::write(file, at, size);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    at += count;
    size -= static_cast<size_t>(count);
  }
  return true;
}

/// By its first bytes. A writer that was killed, or a power cut, leaves fewer of them.
bool is_ours(int folder, const std::string& name, const struct stat& facts) {
  if (!S_ISREG(facts.st_mode)) return false;
  const Descriptor file(openat(folder, name.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  std::array<char, kMagic.size()> begin{};
  const size_t size = std::min(begin.size(), static_cast<size_t>(facts.st_size));
  return file && read_all(file.get(), begin.data(), size) &&
         kMagic.starts_with(std::string_view(begin.data(), size));
}

struct File {
  timespec time;
  std::string name;
  uint64_t size;
};

bool is_older(const File& a, const File& b) {
  return a.time.tv_sec != b.time.tv_sec ? a.time.tv_sec < b.time.tv_sec
                                        : a.time.tv_nsec < b.time.tv_nsec;
}

/// Files of ours whose name `is_wanted`.
std::vector<File> list(int folder, bool (*is_wanted)(std::string_view)) {
  std::vector<File> entries;
  const int opening = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* stream = opening < 0 ? nullptr : fdopendir(opening);
  if (stream == nullptr) return entries;
  while (const dirent* at = readdir(stream)) {
    struct stat facts{};
    if (!is_wanted(at->d_name)) continue;
    if (fstatat(folder, at->d_name, &facts, AT_SYMLINK_NOFOLLOW) != 0) continue;
    if (!is_ours(folder, at->d_name, facts)) continue;
    entries.push_back({facts.st_mtim, at->d_name, static_cast<uint64_t>(facts.st_size)});
  }
  closedir(stream);
  return entries;
}

void remove_stale(int folder) {
  const time_t now = time(nullptr);
  for (const File& entry : list(folder, is_temporary_name))
    if (now - entry.time.tv_sec > kLongestWrite) unlinkat(folder, entry.name.c_str(), 0);
}

void remove_oldest(int folder, const CacheLimits& most) {
  std::vector<File> entries = list(folder, CacheFolder::is_entry_name);
  uint64_t bytes = 0;
  for (const File& entry : entries) bytes += entry.size;
  uint64_t files = entries.size();
  if (bytes <= most.bytes && files <= most.files) return;
  std::ranges::sort(entries, is_older);
  for (const File& entry : entries) {
    if (bytes <= most.bytes * 3 / 4 && files <= most.files * 3 / 4) return;
    if (unlinkat(folder, entry.name.c_str(), 0) != 0) continue;
    bytes -= entry.size;
    --files;
  }
}

bool fill(int file, std::string_view content) {
  const WithoutSizeSignal blocked;
  const Header header = header_of(content);
  return write_all(file, &header, sizeof(header)) &&
         write_all(file, content.data(), content.size());
}

bool put(int folder, const std::string& temporary, const std::string& name) {
  const FolderLock lock(folder, LOCK_SH);
  return !lock.is_taken() && renameat(folder, temporary.c_str(), folder, name.c_str()) == 0;
}

}  // namespace

const char* distrust(uid_t owner, mode_t mode) {
  if (owner != geteuid()) return "it belongs to another user";
  if ((mode & (S_IWGRP | S_IWOTH)) != 0) return "others may write to it";
  return nullptr;
}

CacheFolder::CacheFolder(const std::string& parent) {
  if (!parent.empty()) open_below(parent);
}

CacheFolder::~CacheFolder() {
  if (descriptor_ >= 0) close(descriptor_);
}

void CacheFolder::open_below(const std::string& parent) {
  std::error_code error;  // what cannot be made cannot be opened
  std::filesystem::create_directories(parent, error);
  path_ = fmt::format("{}/{}", parent, kName);
  mkdir(path_.c_str(), 0700);
  const int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
  const int folder = open(path_.c_str(), flags);
  if (folder < 0) {
    if (errno == ENOTDIR || errno == ELOOP) warn_once(path_, "it is no folder");
    return;
  }
  struct stat facts{};
  const char* why = fstat(folder, &facts) == 0 ? distrust(facts.st_uid, facts.st_mode)
                                               : "its owner cannot be read";
  if (why == nullptr) {
    descriptor_ = folder;
    return;
  }
  close(folder);
  warn_once(path_, why);
}

bool CacheFolder::is_entry_name(std::string_view name) {
  return name.size() > 17 && is_hexadecimal(name.substr(0, 16)) && name[16] == '.' &&
         std::ranges::all_of(name.substr(17), [](char c) { return c >= 'a' && c <= 'z'; });
}

std::vector<CacheFolder::Entry> CacheFolder::entries() const {
  std::vector<Entry> found;
  for (const File& file : list(descriptor_, is_entry_name))
    found.push_back({file.name, file.size, file.time.tv_sec});
  std::ranges::sort(found, {}, &Entry::name);
  return found;
}

std::vector<std::string> CacheFolder::names(std::string_view beginning) const {
  std::vector<std::string> found;
  const int opening = openat(descriptor_, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* stream = opening < 0 ? nullptr : fdopendir(opening);
  if (stream == nullptr) return found;
  while (const dirent* at = readdir(stream))
    if (std::string_view(at->d_name).starts_with(beginning) && is_entry_name(at->d_name))
      found.emplace_back(at->d_name);
  closedir(stream);
  std::ranges::sort(found);
  return found;
}

void CacheFolder::remove(const std::string& name) const {
  const FolderLock lock(descriptor_, LOCK_EX);
  unlinkat(descriptor_, name.c_str(), 0);
}

std::optional<std::string> CacheFolder::read(const std::string& name) const {
  std::optional<std::string> content = peek(name);
  const timespec now[] = {{0, UTIME_NOW}, {0, UTIME_NOW}};
  if (content)  // or, read-only, its age stays
    utimensat(descriptor_, name.c_str(), now, AT_SYMLINK_NOFOLLOW);
  return content;
}

std::optional<std::string> CacheFolder::peek(const std::string& name) const {
  const int flags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;  // a pipe would wait
  const Descriptor file(openat(descriptor_, name.c_str(), flags));
  struct stat facts{};
  if (!file || fstat(file.get(), &facts) != 0 || !S_ISREG(facts.st_mode)) return std::nullopt;
  if (const char* why = distrust(facts.st_uid, facts.st_mode)) {
    warn_once(path_ + "/" + name, why);
    return std::nullopt;
  }
  Header header;
  if (!read_all(file.get(), &header, sizeof(header)) ||
      header.size != static_cast<uint64_t>(facts.st_size) - sizeof(header))
    return std::nullopt;
  std::string content(header.size, '\0');
  if (!read_all(file.get(), content.data(), content.size())) return std::nullopt;
  const Header expected = header_of(content);
  if (std::memcmp(&header, &expected, sizeof(header)) != 0) return std::nullopt;
  return content;
}

void CacheFolder::write(const std::string& name, std::string_view content) const {
  const std::string temporary = temporary_name();
  if (temporary.empty()) return;
  const int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
  const Descriptor file(openat(descriptor_, temporary.c_str(), flags, 0600));
  if (!file) return;
  if (!fill(file.get(), content) || !put(descriptor_, temporary, name))
    unlinkat(descriptor_, temporary.c_str(), 0);
}

void CacheFolder::trim(const CacheLimits& most) const {
  const FolderLock lock(descriptor_, LOCK_EX);
  if (lock.is_taken()) return;
  remove_stale(descriptor_);
  remove_oldest(descriptor_, most);
}

void CacheFolder::trim_daily(const CacheLimits& most) const {
  struct stat stamp{};
  const bool exists = fstatat(descriptor_, kTrimmed, &stamp, AT_SYMLINK_NOFOLLOW) == 0;
  const time_t age = time(nullptr) - stamp.st_mtim.tv_sec;
  if (exists && age >= 0 && age < kDay) return;
  // First, so that processes that start together do it once.
  const int flags = O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
  const Descriptor made(openat(descriptor_, kTrimmed, flags, 0600));
  if (made) futimens(made.get(), nullptr);
  trim(most);
}

}  // namespace tandem
