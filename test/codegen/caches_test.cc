// Cache sizes as Linux tells them, and what is left alone where it tells nothing or nonsense.
#include "codegen/caches.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "codegen/codegen.h"

namespace tandem::codegen {
namespace {

struct Cache {
  const char* level;
  const char* type;
  const char* size;
};

Target taken(const std::vector<Cache>& caches) {
  const std::filesystem::path folder = ::testing::TempDir() + "tandem-caches-test";
  std::filesystem::remove_all(folder);
  for (size_t i = 0; i < caches.size(); ++i) {
    const std::filesystem::path cache = folder / ("index" + std::to_string(i));
    std::filesystem::create_directories(cache);
    std::ofstream(cache / "level") << caches[i].level << "\n";
    std::ofstream(cache / "type") << caches[i].type << "\n";
    std::ofstream(cache / "size") << caches[i].size << "\n";
  }
  Target target;
  take_cache_sizes(folder.string(), target);
  std::filesystem::remove_all(folder);
  return target;
}

TEST(Caches, AreThoseOfData) {
  const Target target = taken({{"1", "Data", "48K"},
                               {"1", "Instruction", "64K"},
                               {"2", "Unified", "2048K"},
                               {"3", "Unified", "105M"}});
  EXPECT_EQ(target.l1_bytes, 48 << 10);
  EXPECT_EQ(target.l2_bytes, 2 << 20);
  EXPECT_EQ(target.l3_bytes, 105 << 20);
}

TEST(Caches, StayWhereNothingCanBeRead) {
  EXPECT_EQ(taken({}), Target());
  EXPECT_EQ(taken({{"4", "Unified", "64M"}, {"", "", ""}, {"-1", "Unified", "1M"}}), Target());
}

TEST(Caches, StayWhereSizesCannotBeTrue) {
  for (const char* size : {"0K", "-1K", "K", "", "12", "99999999999999999999K", "1024T", "900G"})
    EXPECT_EQ(taken({{"2", "Unified", size}}), Target()) << size;
}

TEST(Caches, OfThisMachineAreInItsTarget) {
  Target own = host_target(std::nullopt);
  const Target as_probed = own;
  take_cache_sizes(kCacheFolder, own);
  EXPECT_EQ(own, as_probed);
}

}  // namespace
}  // namespace tandem::codegen
