// Regions, and when an execution takes and lets go of blocks.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <random>
#include <vector>

#include "runtime/allocator.h"
#include "runtime/regions.h"
#include "test/runtime/programs.h"

namespace tandem::runtime {
namespace {

/// The request behind each live block, and its content as it was written.
class RandomRequests {
 public:
  explicit RandomRequests(uint32_t seed) : random_(seed) {}

  void allocate(Regions& regions) {
    const int64_t bytes = 4096 * (1 + static_cast<int64_t>(random_() % (random_() % 8 ? 40 : 900)));
    Block block{static_cast<char*>(regions.allocate(bytes)), bytes, next_++};
    ASSERT_NE(block.start, nullptr);
    live_ += bytes;
    peak_ = std::max(peak_, live_);
    for (int64_t at = 0; at < bytes; at += 4096) block.start[at] = static_cast<char>(block.number);
    blocks_.push_back(block);
  }

  void release_one(Regions& regions) {
    if (blocks_.empty()) return;
    std::swap(blocks_[random_() % blocks_.size()], blocks_.back());
    const Block block = blocks_.back();
    blocks_.pop_back();
    int64_t wrong = 0;
    for (int64_t at = 0; at < block.bytes; at += 4096)
      wrong += block.start[at] != static_cast<char>(block.number);
    EXPECT_EQ(wrong, 0);  // nobody else has this memory
    regions.release(block.start, block.bytes);
    live_ -= block.bytes;
  }

  bool is_empty() const { return blocks_.empty(); }
  uint32_t draw(uint32_t limit) { return static_cast<uint32_t>(random_()) % limit; }
  int64_t live() const { return live_; }
  int64_t peak() const { return peak_; }

 private:
  struct Block {
    char* start;
    int64_t bytes;
    int number;
  };
  std::mt19937 random_;
  std::vector<Block> blocks_;
  int next_ = 0;
  int64_t live_ = 0;
  int64_t peak_ = 0;
};

TEST(RegionsTest, BlocksNeverOverlapAndLittleIsLost) {
  for (uint32_t seed = 0; seed < 5; ++seed) {
    Regions regions;
    RandomRequests requests(seed);
    for (int i = 0; i < 3000; ++i) {
      const uint32_t drawn = requests.draw(1000);
      if (drawn == 0) regions.trim();
      drawn < 520 ? requests.allocate(regions) : requests.release_one(regions);
      // All that has pages: a little more than was in use at once.
      EXPECT_LE(regions.free_bytes() + requests.live(),
                requests.peak() + std::max<int64_t>(2 << 20, requests.peak() / 128));
    }
    while (!requests.is_empty()) requests.release_one(regions);
    EXPECT_GT(regions.free_bytes(), 0);
    regions.trim();
    EXPECT_EQ(regions.free_bytes(), 0);
  }
}

TEST(RegionsTest, NeighboursMakeRoomForALargeOne) {
  Regions regions;
  std::vector<void*> small(64);
  for (void*& block : small) block = regions.allocate(1 << 20);
  for (size_t i = 0; i < small.size(); i += 2) regions.release(small[i], 1 << 20);
  for (size_t i = 1; i < small.size(); i += 2) regions.release(small[i], 1 << 20);
  EXPECT_EQ(regions.allocate(64 << 20), small[0]);
  EXPECT_EQ(regions.free_bytes(), 0);
}

TEST(RegionsTest, WhatWasNeverTouchedIsTakenLast) {
  Regions regions;
  void* const large = regions.allocate(100 << 20);
  void* const last = regions.allocate(2 << 20);
  regions.release(large, 100 << 20);
  EXPECT_EQ(regions.allocate(2 << 20), large);  // not behind `last`
  regions.release(last, 2 << 20);
  // 98 MiB before `last`, `last` and as much as it takes behind it.
  EXPECT_EQ(regions.allocate(120 << 20), static_cast<char*>(large) + (2 << 20));
  EXPECT_EQ(regions.free_bytes(), 0);
}

// What the system says is resident of these pages.
int64_t resident_bytes(const void* start, int64_t bytes) {
  std::vector<unsigned char> pages(static_cast<size_t>(bytes / 4096));
  EXPECT_EQ(mincore(const_cast<void*>(start), static_cast<size_t>(bytes), pages.data()), 0);
  return 4096 * std::ranges::count_if(pages, [](unsigned char page) { return (page & 1) != 0; });
}

// Every other block of 1 MiB is free, and one of 3 MiB does not fit: it gets fresh pages, and as
// many of the free ones go.
TEST(RegionsTest, PiecesThatServeNobodyGoBack) {
  constexpr int64_t kMiB = 1 << 20;
  constexpr int64_t kCount = 128;
  Regions regions;
  std::vector<char*> small;
  for (int64_t i = 0; i < kCount; ++i) {
    small.push_back(static_cast<char*>(regions.allocate(kMiB)));
    std::memset(small.back(), static_cast<int>(i), kMiB);
  }
  for (size_t i = 0; i < small.size(); i += 2) regions.release(small[i], kMiB);
  int64_t live = kCount / 2 * kMiB;
  for (; live + 3 * kMiB <= kCount * kMiB; live += 3 * kMiB)
    std::memset(regions.allocate(3 * kMiB), 1, 3 * kMiB);
  EXPECT_LE(live + regions.free_bytes(), (kCount + 2) * kMiB);
  EXPECT_LE(resident_bytes(small[0], 256 * kMiB), (kCount + 4) * kMiB);
  for (size_t i = 1; i < small.size(); i += 2) {
    EXPECT_EQ(small[i][0], static_cast<char>(i));
    EXPECT_EQ(small[i][kMiB - 1], static_cast<char>(i));
  }
}

TEST(RegionsTest, LargerThanARegion) {
  Regions regions;
  void* const first = regions.allocate(int64_t{300} << 20);
  void* const second = regions.allocate(int64_t{300} << 20);
  regions.release(first, int64_t{300} << 20);
  regions.release(second, int64_t{300} << 20);
  void* const again = regions.allocate(int64_t{300} << 20);
  EXPECT_TRUE(again == first || again == second);
  EXPECT_EQ(regions.allocate(int64_t{1} << 56), nullptr);
}

int64_t peak_of(const std::function<void()>& run) {
  allocator().reset_peak();
  const int64_t before = allocator().counters().live_bytes;
  run();
  return allocator().counters().peak_live_bytes - before;
}

// x, two temporaries and out, 4 MB each, of which two are in use at a time.
TEST(ExecutorTest, MemoryIsLetGoAfterItsLastUse) {
  constexpr int64_t kBytes = 4 << 20;
  abi::Program program = chain();
  program.guards.clear();
  LoadedProgram loaded(program, {double_kernel});
  loaded.set_memory(ProgramMemory::blocks);
  std::vector<Result> dropped;
  const int64_t peak = peak_of([&] {
    std::vector<Argument> arguments{vector_of(Floats(kBytes / 4, 3))};
    dropped = loaded.run_and_drop(std::move(arguments));
  });
  EXPECT_EQ(values_of(dropped[0]), Floats(kBytes / 4, 24));
  EXPECT_GE(peak, 2 * kBytes);
  EXPECT_LT(peak, 2 * kBytes + 4096);
  const Array held = vector_of(Floats(kBytes / 4, 5));
  std::vector<Result> results;
  EXPECT_LT(peak_of([&] { results = loaded.run_and_drop({held}); }), 2 * kBytes + 4096);
  EXPECT_EQ(values_of(results[0]), Floats(kBytes / 4, 40));
  EXPECT_EQ(values_of(held), Floats(kBytes / 4, 5));  // somebody else has it
}

// A write-back reads its source after the last instruction, and an input that is written is not let
// go.
TEST(ExecutorTest, WhatTheEpilogueReadsIsKept) {
  abi::Program program = chain();
  program.guards.clear();
  program.inputs[0].mutated = true;
  program.write_backs = {{0, vector_ref(1, slot(0))}};
  LoadedProgram loaded(program, {double_kernel});
  loaded.set_memory(ProgramMemory::blocks);
  const Array x = vector_of(Floats(100000, 3));
  const std::vector<Result> results = loaded.run_and_drop({x});
  EXPECT_EQ(values_of(results[0]), Floats(100000, 24));
  EXPECT_EQ(values_of(x), Floats(100000, 6));
}

}  // namespace
}  // namespace tandem::runtime
