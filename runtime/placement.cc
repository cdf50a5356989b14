// Offline placement is strip packing (NP-hard); greedy by size is within a few percent of the peak
// on training graphs. Large buffers are placed first; each goes into the smallest gap that holds it
// among the buffers already placed whose life meets its own, or after the last of them.
#include "runtime/placement.h"

#include <algorithm>
#include <numeric>

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

// `placed` is sorted by offset.
int64_t best_offset(const std::vector<Block>& placed, const Lifetime& wanted, int64_t bytes) {
  int64_t best = -1;
  int64_t best_gap = INT64_MAX;
  int64_t reached = 0;  // everything below is taken or already looked at
  for (const Block& block : placed) {
    if (block.first_use > wanted.last_use || block.last_use < wanted.first_use) continue;
    const int64_t gap = block.offset - reached;
    if (gap >= bytes && gap < best_gap) {
      best = reached;
      best_gap = gap;
    }
    reached = std::max(reached, block.end);
  }
  return best >= 0 ? best : reached;
}

std::vector<uint32_t> largest_first(std::span<const Lifetime> lifetimes) {
  std::vector<uint32_t> order(lifetimes.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return lifetimes[a].bytes > lifetimes[b].bytes; });
  return order;
}

}  // namespace

Placement place(std::span<const Lifetime> lifetimes) {
  Placement placement;
  placement.offsets.resize(lifetimes.size());
  std::vector<Block> placed;
  for (const uint32_t number : largest_first(lifetimes)) {
    const Lifetime& wanted = lifetimes[number];
    if (wanted.bytes <= 0) continue;
    const int64_t bytes = align(wanted.bytes);
    const int64_t offset = best_offset(placed, wanted, bytes);
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

}  // namespace tandem::runtime
