// Knapsacks against all choices there are.
#include "passes/partition/knapsack.h"

#include <gtest/gtest.h>

#include <random>

#include "base/diagnostic.h"

namespace tandem::passes {
namespace {

using Items = std::vector<KnapsackItem>;

Items random_items(std::mt19937& random, size_t count) {
  Items items;
  for (size_t i = 0; i < count; ++i)
    items.push_back(
        {static_cast<int64_t>(random() % 50) * 4, static_cast<double>(random() % 1000) / 8});
  return items;
}

double best_of_all(const Items& items, int64_t room) {
  double best = 0;
  for (size_t choice = 0; choice < (size_t{1} << items.size()); ++choice) {
    int64_t bytes = 0;
    double worth = 0;
    for (size_t i = 0; i < items.size(); ++i) {
      if ((choice >> i & 1) == 0) continue;
      bytes += items[i].bytes;
      worth += items[i].worth;
    }
    if (bytes <= room) best = std::max(best, worth);
  }
  return best;
}

int64_t bytes_of(const Items& items, const Knapsack& packed) {
  int64_t bytes = 0;
  for (size_t i = 0; i < items.size(); ++i) bytes += packed.kept[i] ? items[i].bytes : 0;
  return bytes;
}

TEST(Knapsack, ExactIsTheBestAndNoneTakesMoreThanTheRoom) {
  std::mt19937 random(1);
  for (int number = 0; number < 500; ++number) {
    const Items items = random_items(random, random() % 11);
    const int64_t room = static_cast<int64_t>(random() % 1000);
    const double best = best_of_all(items, room);
    for (const char* name : {"dp", "greedy", "exact"}) {
      const Knapsack packed = pack(items, room, knapsack_solver_named(name));
      EXPECT_LE(bytes_of(items, packed), room) << name;
      EXPECT_LE(packed.worth, best + 1e-9) << name;
      EXPECT_GE(packed.bound, best - 1e-9) << name;
    }
    // Rooms below 10,000 are not rounded by the table either.
    EXPECT_NEAR(pack(items, room, KnapsackSolver::dp).worth, best, 1e-9) << number;
    const Knapsack exact = pack(items, room, KnapsackSolver::exact);
    EXPECT_NEAR(exact.worth, best, 1e-9) << number;
    EXPECT_EQ(exact.bound, exact.worth);
  }
}

TEST(Knapsack, GreedyMissesWhatExactFinds) {
  const Items items{{6, 7}, {5, 5}, {5, 5}};
  EXPECT_EQ(pack(items, 10, KnapsackSolver::greedy).worth, 7);
  EXPECT_EQ(pack(items, 10, KnapsackSolver::exact).worth, 10);
  EXPECT_EQ(pack(items, 10, KnapsackSolver::dp).worth, 10);
}

TEST(Knapsack, LargeSizesDoNotOverflow) {
  const int64_t huge = int64_t{1} << 50;
  const Items items{{huge, 3}, {huge, 2}, {huge / 4, 2}, {0, 1}};
  for (const char* name : {"dp", "greedy", "exact"})
    EXPECT_EQ(pack(items, huge + huge / 4, knapsack_solver_named(name)).worth, 6) << name;
}

TEST(Knapsack, HundredsOfEqualItemsEndAtOnce) {
  const Items items(600, KnapsackItem{48, 3.5});
  const Knapsack packed = pack(items, 48 * 250 + 40, KnapsackSolver::exact);
  EXPECT_EQ(packed.worth, 250 * 3.5);
  EXPECT_EQ(packed.bound, packed.worth);  // and is proven the best
}

TEST(Knapsack, OtherNamesAreErrors) { EXPECT_THROW(knapsack_solver_named("ilp"), UserError); }

}  // namespace
}  // namespace tandem::passes
