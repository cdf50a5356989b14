// The folder's promises under what happens to folders: files of others in it, damage, wrong owners
// and modes, writers that are killed, disks that are full or read-only, processes at once. What
// ends or limits a process is tried in a child.
#include "base/cache_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>
#include <thread>

#include "base/flags.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr CacheLimits kNothing = {.bytes = 0, .files = 0};
constexpr uid_t kNobody = 65534;

std::string entry(int number) { return fmt::format("{:016x}.o", number); }

std::string bytes_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write_bytes(const fs::path& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

mode_t mode_of(const fs::path& path) {
  struct stat facts{};
  EXPECT_EQ(lstat(path.c_str(), &facts), 0) << path;
  return facts.st_mode & 07777;
}

void make_older(const fs::path& path, std::chrono::hours age) {
  fs::last_write_time(path, fs::last_write_time(path) - age);
}

pid_t start(const std::function<void()>& work) {
  const pid_t child = fork();
  if (child != 0) return child;
  work();
  _exit(testing::Test::HasFailure() ? 1 : 0);
}

int status_of(pid_t child) {
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return status;
}

/// Nobody is above permissions but root.
void be_no_root() {
  if (geteuid() == 0) ASSERT_EQ(setuid(kNobody), 0);
}

class CacheFolderTest : public testing::Test {
 protected:
  CacheFolderTest() { fs::remove_all(parent_); }
  ~CacheFolderTest() override { fs::remove_all(parent_); }
  std::set<std::string> names() const {
    std::set<std::string> found;
    for (const fs::directory_entry& file : fs::directory_iterator(folder_))
      found.insert(file.path().filename());
    return found;
  }
  std::set<std::string> temporaries() const {
    std::set<std::string> found;
    for (const std::string& name : names())
      if (name.ends_with(".tmp")) found.insert(name);
    return found;
  }

  // A name of its own for each test: a process warns of a path once.
  fs::path parent_ = fs::temp_directory_path() /
                     fmt::format("tandem_cache_folder.{}.{}", getpid(),
                                 testing::UnitTest::GetInstance()->current_test_info()->name());
  fs::path folder_ = parent_ / "tandem-cache";
};

TEST_F(CacheFolderTest, LeavesWhatOthersWrote) {
  fs::create_directories(folder_);
  const std::set<fs::path> theirs = {parent_ / "weights.safetensors",
                                     parent_ / entry(1),
                                     folder_ / "notes.txt",
                                     folder_ / entry(2),
                                     folder_ / "abc.o",
                                     folder_ / "12345.0.tmp",
                                     folder_ / (std::string(32, 'a') + ".tmp"),
                                     folder_ / "0000000000000003.O"};
  for (const fs::path& path : theirs) {
    write_bytes(path, "not a file of a cache, and longer than its first line");
    make_older(path, std::chrono::hours(24 * 365));
  }
  fs::permissions(folder_, fs::perms::owner_all);
  const CacheFolder cache(parent_);
  cache.write(entry(4), "ours");
  cache.trim_daily(kNothing);
  for (const fs::path& path : theirs) EXPECT_TRUE(fs::exists(path)) << path;
  EXPECT_FALSE(fs::exists(folder_ / entry(4)));
}

TEST_F(CacheFolderTest, IsPrivateWhateverTheMaskSays) {
  const mode_t before = umask(0);
  const CacheFolder cache(parent_);
  cache.write(entry(1), "content");
  cache.trim_daily(CacheLimits());
  umask(before);
  EXPECT_EQ(mode_of(folder_), 0700);
  EXPECT_EQ(mode_of(folder_ / entry(1)), 0600);
  EXPECT_EQ(mode_of(folder_ / "trimmed"), 0600);
}

TEST_F(CacheFolderTest, RefusesAFolderThatOthersMayWriteOnce) {
  fs::create_directories(folder_);
  for (const mode_t mode : {0770, 0707}) {
    ASSERT_EQ(chmod(folder_.c_str(), mode), 0);
    testing::internal::CaptureStderr();
    EXPECT_FALSE(CacheFolder(parent_).is_open());
    EXPECT_FALSE(CacheFolder(parent_).is_open());
    const std::string text = testing::internal::GetCapturedStderr();
    if (mode == 0770)
      EXPECT_EQ(text, fmt::format("tandem: warning: the cache {} is not used: others may write to "
                                  "it\n",
                                  folder_.string()));
    else
      EXPECT_EQ(text, "");
  }
  ASSERT_EQ(chmod(folder_.c_str(), 0755), 0);
  EXPECT_TRUE(CacheFolder(parent_).is_open());
}

TEST_F(CacheFolderTest, RefusesAFileThatOthersMayWrite) {
  const CacheFolder cache(parent_);
  cache.write(entry(1), "content");
  ASSERT_EQ(chmod((folder_ / entry(1)).c_str(), 0620), 0);
  testing::internal::CaptureStderr();
  EXPECT_EQ(cache.read(entry(1)), std::nullopt);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("others may write to it"));
  cache.write(entry(1), "again");
  EXPECT_EQ(cache.read(entry(1)), "again");
}

TEST_F(CacheFolderTest, TrustsNobodyElse) {
  EXPECT_EQ(distrust(geteuid(), 0700), nullptr);
  EXPECT_STREQ(distrust(geteuid() + 1, 0700), "it belongs to another user");
  EXPECT_STREQ(distrust(geteuid(), 0720), "others may write to it");
  EXPECT_STREQ(distrust(geteuid(), 0702), "others may write to it");
  CacheFolder(parent_).write(entry(1), "content");
  if (geteuid() != 0) return;  // only root can give its files away
  ASSERT_EQ(chown((folder_ / entry(1)).c_str(), kNobody, kNobody), 0);
  testing::internal::CaptureStderr();
  EXPECT_EQ(CacheFolder(parent_).read(entry(1)), std::nullopt);
  ASSERT_EQ(chown(folder_.c_str(), kNobody, kNobody), 0);
  EXPECT_FALSE(CacheFolder(parent_).is_open());
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("it belongs to another user"));
}

TEST_F(CacheFolderTest, FollowsNoLinksAndWaitsForNoPipe) {
  const CacheFolder cache(parent_);
  cache.write(entry(1), "content");
  fs::create_symlink(entry(1), folder_ / entry(2));
  EXPECT_EQ(cache.read(entry(2)), std::nullopt);
  cache.write(entry(2), "other");  // in place of the link, not through it
  EXPECT_EQ(cache.read(entry(1)), "content");
  EXPECT_EQ(cache.read(entry(2)), "other");
  ASSERT_EQ(mkfifo((folder_ / entry(3)).c_str(), 0600), 0);
  EXPECT_EQ(cache.read(entry(3)), std::nullopt);
  cache.trim(CacheLimits());
  fs::create_directories(parent_ / "linked");
  fs::create_symlink(folder_, parent_ / "linked/tandem-cache");
  testing::internal::CaptureStderr();
  EXPECT_FALSE(CacheFolder(parent_ / "linked").is_open());
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("it is no folder"));
}

TEST_F(CacheFolderTest, AnyChangedBitIsAMiss) {
  const CacheFolder cache(parent_);
  cache.write(entry(1), "some content, 29 bytes of it.");
  const fs::path file = folder_ / entry(1);
  const std::string whole = bytes_of(file);
  ASSERT_EQ(cache.read(entry(1)), "some content, 29 bytes of it.");
  for (size_t bit = 0; bit < whole.size() * 8; ++bit) {
    std::string changed = whole;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << bit % 8));
    write_bytes(file, changed);
    EXPECT_EQ(cache.read(entry(1)), std::nullopt) << bit;
  }
  for (size_t size = 0; size < whole.size(); ++size) {
    write_bytes(file, whole.substr(0, size));
    EXPECT_EQ(cache.read(entry(1)), std::nullopt) << size;
    write_bytes(file, whole + std::string(size + 1, '\0'));
    EXPECT_EQ(cache.read(entry(1)), std::nullopt) << size;
  }
  cache.write(entry(1), "replaced");
  EXPECT_EQ(cache.read(entry(1)), "replaced");
}

TEST_F(CacheFolderTest, TrimDropsWhatWasNotReadForLongest) {
  const CacheFolder cache(parent_);
  const std::string content(1000, 'c');
  for (int i = 0; i < 4; ++i) {
    cache.write(entry(i), content);
    for (int j = 0; j <= i; ++j) make_older(folder_ / entry(j), std::chrono::hours(1));
  }
  ASSERT_EQ(cache.read(entry(0)), content);  // the oldest, read again
  const uint64_t all = 4 * fs::file_size(folder_ / entry(0));
  cache.trim({all, 4});
  EXPECT_EQ(names().size(), 4);
  cache.trim({all, 3});
  EXPECT_EQ(names(), (std::set<std::string>{entry(0), entry(3)}));
  cache.trim({all / 2 - 1, 4});
  EXPECT_EQ(names(), std::set<std::string>{entry(0)});
}

TEST_F(CacheFolderTest, TrimsOnceADay) {
  const CacheFolder cache(parent_);
  const auto count_after = [&] {
    cache.write(entry(1), "");
    cache.write(entry(2), "");
    cache.trim_daily({.bytes = 1 << 20, .files = 1});
    return names().size() - 1;  // without the stamp
  };
  const fs::path stamp = folder_ / "trimmed";
  EXPECT_EQ(count_after(), 0);
  EXPECT_EQ(count_after(), 2);
  make_older(stamp, std::chrono::hours(25));
  EXPECT_EQ(count_after(), 0);
  make_older(stamp, std::chrono::hours(-48));
  EXPECT_EQ(count_after(), 0);  // a clock that was wrong
}

TEST_F(CacheFolderTest, AKilledWriterLeavesTheFileWhole) {
  const CacheFolder cache(parent_);
  const std::array<std::string, 2> contents = {std::string(3 << 20, 'a'),
                                               std::string(5 << 20, 'b')};
  cache.write(entry(1), contents[0]);
  size_t left = 0;
  for (int round = 0; round < 20 || (left == 0 && round < 200); ++round) {
    const pid_t writer = start([&] {
      for (size_t i = 0;; ++i) cache.write(entry(1), contents[i % 2]);
    });
    std::this_thread::sleep_for(std::chrono::microseconds(3000 + 700 * (round % 20)));
    ASSERT_EQ(kill(writer, SIGKILL), 0);
    EXPECT_TRUE(WIFSIGNALED(status_of(writer)));
    const std::optional<std::string> found = cache.read(entry(1));
    ASSERT_TRUE(found == contents[0] || found == contents[1]) << round;
    left = temporaries().size();
  }
  EXPECT_GT(left, 0) << "no writer was killed on its way: the test shows nothing";
  cache.trim(CacheLimits());
  EXPECT_EQ(temporaries().size(), left);  // they could have a writer
  for (const std::string& name : temporaries()) make_older(folder_ / name, std::chrono::hours(2));
  cache.trim(CacheLimits());
  EXPECT_THAT(temporaries(), IsEmpty());
  EXPECT_NE(cache.read(entry(1)), std::nullopt);
}

TEST_F(CacheFolderTest, AFullDiskLeavesWhatWasThere) {
  const CacheFolder cache(parent_);
  cache.write(entry(1), "before");
  const pid_t child = start([&] {
    const rlimit limit = {.rlim_cur = 1 << 16, .rlim_max = 1 << 16};
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
    cache.write(entry(1), std::string(1 << 20, 'x'));  // ends by SIGXFSZ where nobody minds
    cache.write(entry(2), "small");
  });
  EXPECT_EQ(status_of(child), 0);
  EXPECT_EQ(cache.read(entry(1)), "before");
  EXPECT_EQ(cache.read(entry(2)), "small");
  EXPECT_THAT(temporaries(), IsEmpty());
}

TEST_F(CacheFolderTest, AReadOnlyFolderIsRead) {
  const pid_t child = start([&] {
    fs::create_directories(parent_);
    fs::permissions(parent_, fs::perms::all);
    be_no_root();
    const CacheFolder cache(parent_);
    cache.write(entry(1), "content");
    ASSERT_EQ(chmod(folder_.c_str(), 0500), 0);
    const CacheFolder again(parent_);
    EXPECT_EQ(again.read(entry(1)), "content");
    again.write(entry(1), "other");
    again.write(entry(2), "new");
    again.trim_daily(kNothing);
    EXPECT_EQ(again.read(entry(1)), "content");
    EXPECT_EQ(again.read(entry(2)), std::nullopt);
    EXPECT_EQ(names(), std::set<std::string>{entry(1)});
    ASSERT_EQ(chmod(folder_.c_str(), 0700), 0);
  });
  EXPECT_EQ(status_of(child), 0);
}

TEST_F(CacheFolderTest, NoHomeIsNoCache) {
  const pid_t child = start([&] {
    const FlagOverride unset(Flag::cache_dir, std::nullopt);
    unsetenv("XDG_CACHE_HOME");
    unsetenv("HOME");
    EXPECT_EQ(flag_cache_dir(), "");
    EXPECT_FALSE(CacheFolder(flag_cache_dir()).is_open());
    setenv("HOME", "/proc/nobody", 1);  // where nothing can be made
    EXPECT_FALSE(CacheFolder(flag_cache_dir()).is_open());
  });
  EXPECT_EQ(status_of(child), 0);
}

// The next name to be written is always the oldest, so what is listed for removal is about to be
// replaced. A trim keeps the newest 60 files, so what was just written must be there: the clock of
// files goes in steps of up to 10 ms, in which fewer than 60 are written.
TEST_F(CacheFolderTest, StoringAndTrimmingAtOnceLosesNothing) {
  const CacheFolder cache(parent_);
  const std::chrono::steady_clock::time_point end =
      std::chrono::steady_clock::now() + std::chrono::seconds(2);
  const auto goes_on = [&] { return std::chrono::steady_clock::now() < end; };
  const pid_t trimmer = start([&] {
    const CacheFolder own(parent_);
    while (goes_on()) own.trim({.bytes = 1 << 30, .files = 80});
  });
  const pid_t writer = start([&] {
    const CacheFolder own(parent_);
    const std::string content(5000, 'w');
    for (int i = 0; goes_on(); ++i) {
      own.write(entry(i % 100), content);
      ASSERT_TRUE(fs::exists(folder_ / entry(i % 100))) << i;
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  });
  EXPECT_EQ(status_of(writer), 0);
  EXPECT_EQ(status_of(trimmer), 0);
  EXPECT_THAT(temporaries(), IsEmpty());
}

// A process that was stopped while it trimmed holds the lock until it goes on. Others store nothing
// then, and wait for it a few seconds at most; what is there is read.
TEST_F(CacheFolderTest, AStoppedProcessStopsNobody) {
  const CacheFolder cache(parent_);
  cache.write(entry(0), "first");
  const int opening = open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  ASSERT_EQ(flock(opening, LOCK_EX), 0);
  const std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
  cache.write(entry(1), "second");
  cache.trim({.bytes = 0, .files = 0});
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
  EXPECT_EQ(cache.read(entry(0)), "first");
  EXPECT_FALSE(fs::exists(folder_ / entry(1)));
  EXPECT_THAT(temporaries(), IsEmpty());
  close(opening);
  cache.write(entry(1), "second");
  EXPECT_EQ(cache.read(entry(1)), "second");
}

}  // namespace
}  // namespace tandem
