// Which of many things to keep in so much memory.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace tandem::passes {

struct KnapsackItem {
  int64_t bytes = 0;  // that keeping it takes
  double worth = 0;   // what not keeping it costs
};

/// How good a choice is looked for.
enum class KnapsackSolver : uint8_t {
  dp,      // the best choice of sizes rounded up to 1/10,000 of the room
  greedy,  // by worth for a byte, the first that fit
  exact,   // the best, by branch and bound
};
/// "dp", "greedy", "exact"; UserError for others.
KnapsackSolver knapsack_solver_named(std::string_view name);

struct Knapsack {
  std::vector<char> kept;  // by item
  double worth = 0;        // of what is kept
  /// No choice is worth more. `exact`: equal to `worth`, unless it stopped after some steps.
  double bound = 0;
};

/// Items of no bytes are always kept. The bytes of what is kept never exceed `room`; the same input
/// gives the same choice, and equal items are kept from the front.
Knapsack pack(const std::vector<KnapsackItem>& items, int64_t room, KnapsackSolver solver);
/// The same of several rooms, smallest first. `dp` fills one table for all: sizes are rounded up to
/// 1/10,000 of the largest.
std::vector<Knapsack> pack_each(const std::vector<KnapsackItem>& items,
                                const std::vector<int64_t>& rooms, KnapsackSolver solver);

}  // namespace tandem::passes
