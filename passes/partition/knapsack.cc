// The knapsack problem, three ways. All look at items by worth for a byte, greatest first: filling
// in that order and cutting the item that no longer fits gives more than any choice can be worth,
// which is the bound that branch and bound prunes by.
#include "passes/partition/knapsack.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

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
/// One table serves all rooms up to the largest: a smaller one begins to be read at fewer steps.
class Table {
 public:
  Table(const Items& items, const std::vector<size_t>& order, int64_t largest)
      : order_(order), largest_(largest), steps_(std::min(largest, kSteps)) {
    for (const size_t number : order) sizes_.push_back(steps_of(items[number].bytes));
    takes_.assign(order.size() * row(), 0);
    best_.assign(row(), 0);
    next_ = best_;
    for (size_t k = 0; k < order.size(); ++k) add(k, items[order[k]].worth);
  }

  void pack(int64_t room, std::vector<char>& kept) const {
    size_t left = static_cast<size_t>(std::floor(share(room) + 1e-9));
    for (size_t k = order_.size(); k-- > 0;) {
      if (takes_[k * row() + left] == 0) continue;
      kept[order_[k]] = true;
      left -= sizes_[k];
    }
  }

 private:
  static constexpr int64_t kSteps = 10'000;

  size_t row() const { return static_cast<size_t>(steps_) + 1; }
  double share(int64_t bytes) const {  // in numbers that do not overflow
    return static_cast<double>(bytes) / static_cast<double>(largest_) * static_cast<double>(steps_);
  }
  /// Rounded up; what does not fit takes a step more than there are.
  size_t steps_of(int64_t bytes) const {
    if (bytes > largest_) return row();
    return std::max<size_t>(1, static_cast<size_t>(std::ceil(share(bytes) - 1e-9)));
  }

  /// No branch inside: this is where the time goes.
  void add(size_t k, double worth) {
    const size_t size = sizes_[k];
    if (size >= row()) return;
    char* const takes = &takes_[k * row()];
    std::copy_n(best_.begin(), size, next_.begin());
    for (size_t j = size; j < row(); ++j) {
      const double with = best_[j - size] + worth;
      takes[j] = with > best_[j];
      next_[j] = with > best_[j] ? with : best_[j];
    }
    best_.swap(next_);
  }

  const std::vector<size_t>& order_;
  int64_t largest_;
  int64_t steps_;
  std::vector<size_t> sizes_;  // in steps, by place in the order
  std::vector<char> takes_;    // a row for each item
  std::vector<double> best_;
  std::vector<double> next_;
};

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

namespace {

class Packer {
 public:
  Packer(const Items& items, int64_t largest, KnapsackSolver solver)
      : items_(items), solver_(solver), order_(in_order(items)) {
    if (solver == KnapsackSolver::dp && largest > 0) table_.emplace(items, order_, largest);
    for (const KnapsackItem& item : items) free_ += item.bytes > 0 ? 0 : item.worth;
  }

  Knapsack pack(int64_t room) const {
    Knapsack packed;
    for (const KnapsackItem& item : items_) packed.kept.push_back(item.bytes > 0 ? 0 : 1);
    packed.bound = free_ + bound_of(items_, order_, 0, room);
    if (solver_ != KnapsackSolver::dp) {
      pack_greedily(items_, order_, room, packed.kept);
    } else if (table_) {
      table_->pack(room, packed.kept);
    }
    const bool is_best = solver_ == KnapsackSolver::exact && improve(room, packed.kept);
    packed.worth = worth_of(items_, packed.kept);
    if (is_best) packed.bound = packed.worth;
    return packed;
  }

 private:
  /// To the best there is, unless it stops before.
  bool improve(int64_t room, std::vector<char>& kept) const {
    BranchAndBound search(items_, order_, room, kept);
    search.start_from(worth_of(items_, kept) - free_);
    return search.run();
  }

  const Items& items_;
  KnapsackSolver solver_;
  std::vector<size_t> order_;
  std::optional<Table> table_;
  double free_ = 0;  // worth of what takes nothing
};

}  // namespace

Knapsack pack(const Items& items, int64_t room, KnapsackSolver solver) {
  return Packer(items, room, solver).pack(room);
}

std::vector<Knapsack> pack_each(const Items& items, const std::vector<int64_t>& rooms,
                                KnapsackSolver solver) {
  std::vector<Knapsack> packed;
  if (rooms.empty()) return packed;
  const Packer packer(items, rooms.back(), solver);
  for (const int64_t room : rooms) packed.push_back(packer.pack(room));
  return packed;
}

}  // namespace tandem::passes
