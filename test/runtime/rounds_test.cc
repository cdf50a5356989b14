// Requests that come again, and what that spares.
#include "runtime/rounds.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "runtime/poison.h"
#include "runtime/regions.h"

namespace tandem::runtime {
namespace {

constexpr int64_t kPage = 4096;

std::byte* block(int64_t number) { return reinterpret_cast<std::byte*>(number * kPage); }

/// Takes blocks 1, 2, … of these bytes; gives what was expected of each, -1 for nothing.
std::vector<int64_t> take_all(Rounds& rounds, const std::vector<int64_t>& sizes) {
  std::vector<int64_t> offsets;
  for (const int64_t bytes : sizes) {
    offsets.push_back(rounds.expect(bytes).value_or(-1));
    rounds.took(block(static_cast<int64_t>(offsets.size())), bytes);
  }
  return offsets;
}

std::vector<int64_t> round_of(Rounds& rounds, const std::vector<int64_t>& sizes) {
  rounds.begin_call(false);
  const std::vector<int64_t> offsets = take_all(rounds, sizes);
  rounds.begin_call(true);
  for (size_t i = 1; i <= sizes.size(); ++i) rounds.released(block(static_cast<int64_t>(i)));
  return offsets;
}

TEST(RoundsTest, TheNextRoundIsExpectedAsTheLastOneWas) {
  Rounds rounds;
  EXPECT_EQ(round_of(rounds, {1 * kPage, 4 * kPage, 2 * kPage}), std::vector<int64_t>(3, -1));
  EXPECT_EQ(round_of(rounds, {1 * kPage, 4 * kPage, 2 * kPage}),
            (std::vector<int64_t>{6 * kPage, 0, 4 * kPage}));
}

TEST(RoundsTest, StepsOverWhatIsNewAndWhatDoesNotCome) {
  Rounds rounds;
  round_of(rounds, {1 * kPage, 4 * kPage, 2 * kPage});
  EXPECT_EQ(round_of(rounds, {1 * kPage, 8 * kPage, 2 * kPage, 4 * kPage}),
            (std::vector<int64_t>{6 * kPage, -1, 4 * kPage, -1}));
}

TEST(RoundsTest, AnotherFirstRequestIsAnotherPlan) {
  Rounds rounds;
  round_of(rounds, {1 * kPage, 4 * kPage});
  round_of(rounds, {3 * kPage, 5 * kPage});
  EXPECT_EQ(round_of(rounds, {1 * kPage, 4 * kPage}), (std::vector<int64_t>{4 * kPage, 0}));
  EXPECT_EQ(round_of(rounds, {3 * kPage, 5 * kPage}), (std::vector<int64_t>{5 * kPage, 0}));
}

TEST(RoundsTest, APlanIsReplacedByWhatCameTwice) {
  Rounds rounds;
  const std::vector<int64_t> other{1 * kPage, 6 * kPage};
  round_of(rounds, {1 * kPage, 4 * kPage});
  EXPECT_EQ(round_of(rounds, other)[1], -1);
  EXPECT_EQ(round_of(rounds, other)[1], -1);
  EXPECT_EQ(round_of(rounds, other)[1], 0);
  EXPECT_EQ(round_of(rounds, {1 * kPage})[0], 6 * kPage);  // stops early
  EXPECT_EQ(round_of(rounds, other)[1], 0);
}

// Two compiled models whose steps begin alike, each a few times in turn.
TEST(RoundsTest, PlansThatReplaceOneAnotherAreMadeOnce) {
  Rounds rounds;
  const std::vector<int64_t> one{1 * kPage, 4 * kPage};
  const std::vector<int64_t> other{1 * kPage, 6 * kPage};
  for (int turn = 0; turn < 5; ++turn) {
    for (const std::vector<int64_t>& sizes : {one, other})
      for (int step = 0; step < 3; ++step) round_of(rounds, sizes);
  }
  EXPECT_EQ(round_of(rounds, other), (std::vector<int64_t>{6 * kPage, 0}));
  EXPECT_EQ(rounds.placements(), 2);
}

// A forward alone, all of which is released, is a round; two before a backward are one.
TEST(RoundsTest, ARoundBeginsBehindABackwardOrWithNothingAlive) {
  Rounds rounds;
  rounds.begin_call(false);
  take_all(rounds, {2 * kPage});
  rounds.begin_call(false);
  EXPECT_FALSE(rounds.is_first());
  rounds.released(block(1));
  rounds.begin_call(false);
  EXPECT_TRUE(rounds.is_first());
}

/// A step's requests: forward keeps most of what it makes, backward lets go of it from the end and
/// makes gradients, which go when the step is over.
class TrainingStep {
 public:
  explicit TrainingStep(uint32_t seed) {
    std::mt19937 random(seed);
    for (int i = 0; i < 60; ++i) saved_.push_back(kPage * (300 << random() % 3));
    for (int i = 0; i < 60; ++i) gradients_.push_back(kPage * (1 + 144 * (1 << random() % 4)));
  }

  /// The page faults that it takes.
  int64_t run(Regions& regions) {
    const int64_t before = faults();
    regions.begin_call(false);
    for (const int64_t bytes : saved_) {
      take(regions, bytes);
      release(regions, take(regions, bytes / 2 / kPage * kPage));
    }
    regions.begin_call(true);
    for (size_t i = 0; i < saved_.size(); ++i) {
      release(regions, saved_.size() - 1 - i);
      take(regions, gradients_[i]);
    }
    const int64_t taken = faults() - before;
    while (!blocks_.empty()) release(regions, 0);
    return taken;
  }

  int64_t most() const { return most_; }

 private:
  struct Block {
    void* start;
    int64_t bytes;
  };

  static int64_t faults() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_minflt;
  }

  size_t take(Regions& regions, int64_t bytes) {
    void* const start = regions.allocate(bytes);
    std::memset(start, 1, static_cast<size_t>(bytes));
    blocks_.push_back({start, bytes});
    live_ += bytes;
    most_ = std::max(most_, live_);
    return blocks_.size() - 1;
  }

  void release(Regions& regions, size_t number) {
    const Block gone = blocks_[number];
    blocks_.erase(blocks_.begin() + static_cast<std::ptrdiff_t>(number));
    regions.release(gone.start, gone.bytes);
    live_ -= gone.bytes;
  }

  std::vector<int64_t> saved_;
  std::vector<int64_t> gradients_;
  std::vector<Block> blocks_;
  int64_t live_ = 0;
  int64_t most_ = 0;
};

// The system counts pages of the whole process: a test's own vectors and ThreadSanitizer take a few
// a step. AddressSanitizer gives the shadow of large blocks back when they are handed out, and
// takes it anew: some 30 a step. Where steps are not told apart the allocator takes thousands a
// step.
constexpr int64_t kPagesOfEightSteps = 8 * (kGap > 0 ? 64 : 8);

TEST(RegionsTest, StepsThatAreAlikeTakeNoPages) {
  for (uint32_t seed = 0; seed < 4; ++seed) {
    Regions regions;
    TrainingStep step(seed);
    EXPECT_GT(step.run(regions), 10);
    for (int i = 0; i < 3; ++i) step.run(regions);
    int64_t taken = 0;
    for (int i = 0; i < 8; ++i) taken += step.run(regions);
    EXPECT_LE(taken, kPagesOfEightSteps) << seed;
    EXPECT_LE(regions.free_bytes(), step.most() + step.most() / 8 + (4 << 20)) << seed;
  }
}

// What somebody holds lies where the plan would have a block: that block goes elsewhere.
TEST(RegionsTest, APlaceThatIsTakenIsLeftAlone) {
  Regions regions;
  std::vector<char*> held;
  for (int round = 0; round < 5; ++round) {
    regions.begin_call(false);
    char* const first = static_cast<char*>(regions.allocate(3 << 20));
    char* const second = static_cast<char*>(regions.allocate(5 << 20));
    std::memset(first, round, 3 << 20);
    std::memset(second, round, 5 << 20);
    regions.begin_call(true);
    regions.release(first, 3 << 20);
    held.push_back(second);
  }
  for (size_t i = 0; i < held.size(); ++i)
    EXPECT_EQ(std::count(held[i], held[i] + (5 << 20), static_cast<char>(i)), 5 << 20);
}

}  // namespace
}  // namespace tandem::runtime
