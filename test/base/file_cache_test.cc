// A cache must give back exactly what was stored under the same key, or nothing: entries are
// damaged by hand here, and read by caches of other kinds and contexts.
#include "base/file_cache.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace tandem {
namespace {

namespace fs = std::filesystem;

class FileCacheTest : public testing::Test {
 protected:
  ~FileCacheTest() override { fs::remove_all(folder_); }
  std::vector<fs::path> files() const {
    std::vector<fs::path> found;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder_))
      if (entry.path().has_extension()) found.push_back(entry.path());
    return found;
  }
  std::string folder_ =
      fs::temp_directory_path() / ("tandem_file_cache_test." + std::to_string(getpid()));
};

TEST_F(FileCacheTest, GivesBackWhatWasStored) {
  FileCache cache(folder_, "o", "context");
  EXPECT_EQ(cache.find("key"), std::nullopt);
  cache.store("key", "content");
  cache.store("empty", "");
  EXPECT_EQ(cache.find("key"), "content");
  EXPECT_EQ(cache.find("empty"), "");
  EXPECT_EQ(FileCache(folder_, "o", "context").find("key"), "content");
}

TEST_F(FileCacheTest, KeepsKindsAndContextsApart) {
  FileCache(folder_, "o", "context").store("key", "content");
  EXPECT_EQ(FileCache(folder_, "o", "other").find("key"), std::nullopt);
  EXPECT_EQ(FileCache(folder_, "p", "context").find("key"), std::nullopt);
}

TEST_F(FileCacheTest, DamagedEntriesAreMisses) {
  FileCache cache(folder_, "o", "context");
  cache.store("key", "content");
  ASSERT_EQ(files().size(), 1);
  const fs::path file = files()[0];
  const uintmax_t size = fs::file_size(file);
  std::fstream(file, std::ios::in | std::ios::out | std::ios::binary)
      .seekp(static_cast<std::streamoff>(size) - 1)
      .put('X');
  EXPECT_EQ(cache.find("key"), std::nullopt);
  fs::resize_file(file, size - 3);
  EXPECT_EQ(cache.find("key"), std::nullopt);
  fs::resize_file(file, 0);
  EXPECT_EQ(cache.find("key"), std::nullopt);
  cache.store("key", "content");
  EXPECT_EQ(cache.find("key"), "content");
}

TEST_F(FileCacheTest, IsOffWithoutAFolder) {
  FileCache cache("", "o", "context");
  EXPECT_FALSE(cache.is_on());
  cache.store("key", "content");
  EXPECT_EQ(cache.find("key"), std::nullopt);
  EXPECT_FALSE(FileCache("/proc/no/such", "o", "context").is_on());
}

TEST_F(FileCacheTest, TrimDropsWhatWasNotReadForLongest) {
  FileCache cache(folder_, "o", "context");
  const std::string content(1000, 'c');
  for (const char* key : {"a", "b", "c", "d"}) {
    cache.store(key, content);
    const fs::file_time_type now = fs::file_time_type::clock::now();
    for (const fs::path& file : files())
      fs::last_write_time(file, fs::last_write_time(file) - std::chrono::hours(1));
    ASSERT_LE(fs::last_write_time(files()[0]), now);
  }
  ASSERT_EQ(cache.find("a"), content);  // the oldest, read again
  const uint64_t all = 4 * fs::file_size(files()[0]);
  trim_folder(folder_, {all, 4});
  EXPECT_EQ(files().size(), 4);
  trim_folder(folder_, {all, 3});
  EXPECT_EQ(files().size(), 2);
  EXPECT_EQ(cache.find("a"), content);
  EXPECT_EQ(cache.find("b"), std::nullopt);
  EXPECT_EQ(cache.find("d"), content);
  trim_folder(folder_, {all / 2 - 1, 4});
  EXPECT_EQ(files().size(), 1);
  trim_folder(folder_ + "/none", {0, 0});
}

TEST_F(FileCacheTest, TrimsOnceADay) {
  FileCache cache(folder_, "o", "context");
  const CacheLimits most = {.bytes = 1 << 20, .files = 1};
  const fs::path stamp = fs::path(folder_) / "trimmed";
  fs::remove(stamp);  // where this was the first store of the process
  const auto count_after = [&] {
    cache.store("a", "");
    cache.store("b", "");
    trim_daily(folder_, most);
    return files().size();
  };
  EXPECT_EQ(count_after(), 0);
  EXPECT_EQ(count_after(), 2);
  fs::last_write_time(stamp, fs::last_write_time(stamp) - std::chrono::hours(25));
  EXPECT_EQ(count_after(), 0);
  fs::last_write_time(stamp, fs::last_write_time(stamp) + std::chrono::hours(48));
  EXPECT_EQ(count_after(), 0);  // a clock that was wrong
}

}  // namespace
}  // namespace tandem
