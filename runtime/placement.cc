// Offline placement is strip packing (NP-hard); greedy is within a few percent of the peak on
// training graphs. Buffers are placed in an order: each goes into a gap that holds it among those
// already placed whose life meets its own, or after the last of them. Which order packs best
// differs from graph to graph, so several are tried until one needs no more than the peak. What is
// placed once for many steps is worth more tries: buffers that reached beyond the peak come first
// in the next one, as those that are hardest to place.
#include "runtime/placement.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace tandem::runtime {
namespace {

constexpr int64_t kAlignment = 64;

int64_t align(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

struct Block {
  int64_t offset;
  int64_t end;
  uint32_t first_use;
  uint32_t last_use;
};

enum class Gap : uint8_t { smallest, lowest };

// `placed` is sorted by offset.
int64_t best_offset(const std::vector<Block>& placed, const Lifetime& wanted, int64_t bytes,
                    Gap rule) {
  int64_t best = -1;
  int64_t best_gap = INT64_MAX;
  int64_t reached = 0;  // everything below is taken or already looked at
  for (const Block& block : placed) {
    if (block.first_use > wanted.last_use || block.last_use < wanted.first_use) continue;
    const int64_t gap = block.offset - reached;
    if (gap >= bytes && gap < best_gap) {
      best = reached;
      best_gap = gap;
      if (rule == Gap::lowest) return best;
    }
    reached = std::max(reached, block.end);
  }
  return best >= 0 ? best : reached;
}

/// How soon buffers are placed: by bytes, and by a power of how long they live.
struct Rule {
  double power;
  Gap gap;
};

// From graph to graph another power packs best.
constexpr Rule kRules[] = {{0, Gap::smallest},  {0, Gap::lowest},   {0.3, Gap::lowest},
                           {0.45, Gap::lowest}, {0.5, Gap::lowest}, {0.7, Gap::lowest}};
constexpr size_t kMostTried = 2048;  // placing takes the square of them; of more, the first rule

std::vector<uint32_t> heaviest_first(std::span<const Lifetime> lifetimes, double power) {
  std::vector<double> weights;
  for (const Lifetime& life : lifetimes)
    weights.push_back(static_cast<double>(life.bytes) *
                      std::pow(1.0 + life.last_use - life.first_use, power));
  std::vector<uint32_t> order(lifetimes.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return weights[a] > weights[b]; });
  return order;
}

Placement placed_in(const std::vector<uint32_t>& order, Gap gap,
                    std::span<const Lifetime> lifetimes) {
  Placement placement;
  placement.offsets.resize(lifetimes.size());
  std::vector<Block> placed;
  for (const uint32_t number : order) {
    const Lifetime& wanted = lifetimes[number];
    if (wanted.bytes <= 0) continue;
    const int64_t bytes = align(wanted.bytes);
    const int64_t offset = best_offset(placed, wanted, bytes, gap);
    const Block block{offset, offset + bytes, wanted.first_use, wanted.last_use};
    const std::vector<Block>::iterator after =
        std::upper_bound(placed.begin(), placed.end(), block,
                         [](const Block& a, const Block& b) { return a.offset < b.offset; });
    placed.insert(after, block);
    placement.offsets[number] = offset;
    placement.bytes = std::max(placement.bytes, block.end);
  }
  return placement;
}

Placement placed_by(const Rule& rule, std::span<const Lifetime> lifetimes) {
  return placed_in(heaviest_first(lifetimes, rule.power), rule.gap, lifetimes);
}

constexpr double kFirstPowers[] = {0.5, 0.4, 0.3, 0.2, 0};
constexpr size_t kMostLooks = 10'000'000;  // at placed buffers, for each power: some 10 ms

/// How often all may be placed: each looks at about half of the others.
size_t tries_of(size_t buffers) { return kMostLooks / std::max<size_t>(1, buffers * buffers / 2); }

void better(Placement& best, double power, std::span<const Lifetime> lifetimes, int64_t peak) {
  std::vector<uint32_t> order = heaviest_first(lifetimes, power);
  for (size_t left = tries_of(lifetimes.size()); left > 0 && best.bytes > peak; --left) {
    Placement other = placed_in(order, Gap::lowest, lifetimes);
    std::ranges::stable_partition(order, [&](uint32_t number) {
      return other.offsets[number] + align(lifetimes[number].bytes) > peak;
    });
    if (other.bytes < best.bytes) best = std::move(other);
  }
}

}  // namespace

int64_t peak_of(std::span<const Lifetime> lifetimes) {
  std::vector<std::pair<int64_t, int64_t>> changes;  // when, by how much; what ends goes first
  for (const Lifetime& life : lifetimes) {
    changes.emplace_back(life.first_use, align(life.bytes));
    changes.emplace_back(int64_t{life.last_use} + 1, -align(life.bytes));
  }
  std::ranges::sort(changes);
  int64_t live = 0;
  int64_t peak = 0;
  for (const auto& [when, change] : changes) peak = std::max(peak, live += change);
  return peak;
}

Placement place(std::span<const Lifetime> lifetimes) {
  const int64_t peak = peak_of(lifetimes);
  Placement best = placed_by(kRules[0], lifetimes);
  for (const Rule& rule : std::span(kRules).subspan(1)) {
    if (best.bytes == peak || lifetimes.size() > kMostTried) break;
    Placement other = placed_by(rule, lifetimes);
    if (other.bytes < best.bytes) best = std::move(other);
  }
  return best;
}

Placement place_tightly(std::span<const Lifetime> lifetimes) {
  Placement best = place(lifetimes);
  for (const double power : kFirstPowers) better(best, power, lifetimes, peak_of(lifetimes));
  return best;
}

}  // namespace tandem::runtime
