// The knapsack problem, three ways. All look at items by worth for a byte, greatest first: filling
// in that order and cutting the item that no longer fits gives more than any choice can be worth,
// which is the bound that branch and bound prunes by.
#include "passes/partition/knapsack.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/diagnostic.h"

namespace tandem::passes {
namespace {

using Items = std::vector<KnapsackItem>;

/// Numbers of the items that take room, by worth for a byte.
std::vector<size_t> in_order(const Items& items) {
  std::vector<size_t> order;
  for (size_t i = 0; i < items.size(); ++i)
    if (items[i].bytes > 0) order.push_back(i);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return items[a].worth * static_cast<double>(items[b].bytes) >
           items[b].worth * static_cast<double>(items[a].bytes);
  });
  return order;
}

/// What the items from number `first` of the order on are worth in that room, if they may be cut.
double bound_of(const Items& items, const std::vector<size_t>& order, size_t first, int64_t room) {
  double worth = 0;
  for (size_t k = first; k < order.size(); ++k) {
    const KnapsackItem& item = items[order[k]];
    if (item.bytes > room)
      return worth + item.worth * static_cast<double>(room) / static_cast<double>(item.bytes);
    room -= item.bytes;
    worth += item.worth;
  }
  return worth;
}

void pack_greedily(const Items& items, const std::vector<size_t>& order, int64_t room,
                   std::vector<char>& kept) {
  for (size_t number : order) {
    if (items[number].bytes > room) continue;
    kept[number] = true;
    room -= items[number].bytes;
  }
}

/// best[j]: the most that items so far are worth in j steps of room;
///   best'[j] = max(best[j], best[j - steps] + worth).
void pack_by_table(const Items& items, const std::vector<size_t>& order, int64_t room,
                   std::vector<char>& kept) {
  constexpr int64_t kSteps = 10'000;
  const int64_t steps = std::min(room, kSteps);
  if (steps == 0) return;
  const auto rounded_up = [&](int64_t bytes) {  // in numbers that do not overflow
    return static_cast<int64_t>(
        std::ceil(static_cast<double>(bytes) / static_cast<double>(room) * steps - 1e-9));
  };
  std::vector<double> best(static_cast<size_t>(steps) + 1, 0);
  std::vector<std::vector<bool>> takes(order.size());
  for (size_t k = 0; k < order.size(); ++k) {
    const KnapsackItem& item = items[order[k]];
    takes[k].resize(best.size());
    const int64_t size =
        item.bytes > room ? steps + 1 : std::max<int64_t>(1, rounded_up(item.bytes));
    for (int64_t j = steps; j >= size; --j) {
      const size_t at = static_cast<size_t>(j);
      const double with = best[static_cast<size_t>(j - size)] + item.worth;
      takes[k][at] = with > best[at];
      best[at] = std::max(best[at], with);
    }
  }
  int64_t left = steps;
  for (size_t k = order.size(); k-- > 0;) {
    if (!takes[k][static_cast<size_t>(left)]) continue;
    kept[order[k]] = true;
    left -= std::max<int64_t>(1, rounded_up(items[order[k]].bytes));
  }
}

/// Depth first, keeping before leaving; `path` holds the decisions on the order so far.
class BranchAndBound {
 public:
  BranchAndBound(const Items& items, const std::vector<size_t>& order, int64_t room,
                 std::vector<char>& kept)
      : items_(items), order_(order), room_(room), kept_(kept) {}

  /// False where it stopped before all was looked at; `kept` is the best so far.
  bool run() {
    do {
      if (++steps_ > kMostSteps) return false;
      descend();
    } while (back_up());
    return true;
  }

  void start_from(double worth) { best_ = worth; }

 private:
  static constexpr int64_t kMostSteps = 1'000'000;

  void descend() {
    while (path_.size() < order_.size()) {
      if (bound() <= best_ + kEqual * best_) return;
      const KnapsackItem& item = items_[order_[path_.size()]];
      const bool fits = item.bytes <= room_ && !follows_an_equal_one_left();
      path_.push_back(fits);
      if (!fits) continue;
      room_ -= item.bytes;
      worth_ += item.worth;
    }
    if (worth_ <= best_) return;
    best_ = worth_;
    for (size_t k = 0; k < order_.size(); ++k) kept_[order_[k]] = path_[k];
  }

  /// Of equal items the first ones are kept: other orders are the same choice.
  bool follows_an_equal_one_left() const {
    if (path_.empty() || path_.back() != 0) return false;
    const KnapsackItem& last = items_[order_[path_.size() - 1]];
    const KnapsackItem& next = items_[order_[path_.size()]];
    return last.bytes == next.bytes && last.worth == next.worth;
  }

  double bound() const { return worth_ + bound_of(items_, order_, path_.size(), room_); }

  /// To the last item that was kept, which is left now.
  bool back_up() {
    while (!path_.empty() && path_.back() == 0) path_.pop_back();
    if (path_.empty()) return false;
    const KnapsackItem& item = items_[order_[path_.size() - 1]];
    room_ += item.bytes;
    worth_ -= item.worth;
    path_.back() = 0;
    return true;
  }

  static constexpr double kEqual = 1e-12;  // sums of the same numbers in another order

  const Items& items_;
  const std::vector<size_t>& order_;
  int64_t room_;
  std::vector<char>& kept_;
  std::vector<char> path_;
  double worth_ = 0;
  double best_ = 0;
  int64_t steps_ = 0;
};

double worth_of(const Items& items, const std::vector<char>& kept) {
  double worth = 0;
  for (size_t i = 0; i < items.size(); ++i) worth += kept[i] ? items[i].worth : 0;
  return worth;
}

}  // namespace

KnapsackSolver knapsack_solver_named(std::string_view name) {
  if (name == "dp") return KnapsackSolver::dp;
  if (name == "greedy") return KnapsackSolver::greedy;
  if (name == "exact") return KnapsackSolver::exact;
  throw UserError(
      fmt::format("a memory budget is solved by 'dp', 'greedy' or 'exact', not by '{}'", name));
}

Knapsack pack(const Items& items, int64_t room, KnapsackSolver solver) {
  const std::vector<size_t> order = in_order(items);
  Knapsack packed;
  packed.kept.assign(items.size(), 0);
  double free = 0;
  for (size_t i = 0; i < items.size(); ++i) {
    if (items[i].bytes > 0) continue;
    packed.kept[i] = true;
    free += items[i].worth;
  }
  packed.bound = free + bound_of(items, order, 0, room);
  if (solver == KnapsackSolver::dp) {
    pack_by_table(items, order, room, packed.kept);
  } else {
    pack_greedily(items, order, room, packed.kept);
  }
  bool is_best = false;
  if (solver == KnapsackSolver::exact) {
    BranchAndBound search(items, order, room, packed.kept);
    search.start_from(worth_of(items, packed.kept) - free);
    is_best = search.run();
  }
  packed.worth = worth_of(items, packed.kept);
  if (is_best) packed.bound = packed.worth;
  return packed;
}

}  // namespace tandem::passes
