// A cache must give back exactly what was stored under the same key, or nothing: entries are
// damaged by hand here, and read by caches of other kinds and contexts.
#include "base/file_cache.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace tandem {
namespace {

namespace fs = std::filesystem;

const CacheKey kContext = {{"mode", "fast"}};

class FileCacheTest : public testing::Test {
 protected:
  ~FileCacheTest() override { fs::remove_all(folder_); }
  std::vector<fs::path> files() const {
    std::vector<fs::path> found;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder_ + "/tandem-cache"))
      if (entry.path().has_extension()) found.push_back(entry.path());
    return found;
  }
  std::string folder_ =
      fs::temp_directory_path() / ("tandem_file_cache_test." + std::to_string(getpid()));
};

TEST_F(FileCacheTest, GivesBackWhatWasStored) {
  FileCache cache(folder_, "o", kContext);
  EXPECT_EQ(cache.find("key"), std::nullopt);
  cache.store("key", "content");
  cache.store("empty", "");
  EXPECT_EQ(cache.find("key"), "content");
  EXPECT_EQ(cache.find("empty"), "");
  EXPECT_EQ(FileCache(folder_, "o", kContext).find("key"), "content");
}

TEST_F(FileCacheTest, KeepsKindsAndContextsApart) {
  FileCache(folder_, "o", kContext).store("key", "content");
  EXPECT_EQ(FileCache(folder_, "o", {{"mode", "slow"}}).find("key"), std::nullopt);
  EXPECT_EQ(FileCache(folder_, "p", kContext).find("key"), std::nullopt);
}

TEST_F(FileCacheTest, DamagedEntriesAreMisses) {
  FileCache cache(folder_, "o", kContext);
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

TEST_F(FileCacheTest, OneKeyIsNotTheBeginningOfAnother) {
  FileCache(folder_, "o", kContext).store("key", "content");
  fs::create_directories(folder_ + "/other/tandem-cache");
  ASSERT_EQ(files().size(), 1);
  FileCache other(folder_ + "/other", "o", kContext);
  other.store("keycon", "tent");
  const fs::path name = fs::directory_iterator(folder_ + "/other/tandem-cache")->path().filename();
  fs::copy_file(files()[0], folder_ + "/other/tandem-cache/" + name.string(),
                fs::copy_options::overwrite_existing);  // as if both names were one hash
  EXPECT_EQ(other.find("keycon"), std::nullopt);
}

TEST_F(FileCacheTest, SaysInWhatTheNearestEntryOfOneTextDiffers) {
  const CacheKey slow = {{"mode", "slow"}};
  FileCache(folder_, "o", slow).store("one\ntwo", "content");
  FileCache(folder_, "p", kContext).store("one\ntwo", "content");
  EXPECT_EQ(FileCache(folder_, "o", kContext).explain_miss("one\ntwo"),
            "mode: 'fast' here, 'slow' there");
  EXPECT_EQ(FileCache(folder_, "o", kContext).explain_miss("one\nthree"), "");
}

/// However many entries are stored in a day, by whichever process.
TEST_F(FileCacheTest, IsTrimmedOnTheWay) {
  FileCache cache(folder_, "o", kContext);
  for (const char* text : {"one", "two", "three"}) cache.store(text, "content");
  const std::vector<fs::path> stored = files();  // a file may have 65,000 names
  ASSERT_EQ(stored.size(), 3);
  const CacheLimits most;
  for (uint64_t i = 0; i < most.files + 100; ++i)
    fs::create_hard_link(stored[i % 3], folder_ + "/tandem-cache/" + fmt::format("{:016x}.o", i));
  ASSERT_GT(files().size(), most.files);
  for (int i = 0; i < 20'000; ++i) cache.store(std::to_string(i), "");
  EXPECT_LE(files().size(), most.files);
}

TEST_F(FileCacheTest, IsOffWithoutAFolder) {
  FileCache cache("", "o", kContext);
  EXPECT_FALSE(cache.is_on());
  cache.store("key", "content");
  EXPECT_EQ(cache.find("key"), std::nullopt);
  EXPECT_FALSE(FileCache("/proc/no/such", "o", kContext).is_on());
}

}  // namespace
}  // namespace tandem
