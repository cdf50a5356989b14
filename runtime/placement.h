// Where memory that is wanted at known times lies in one block.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tandem::runtime {

/// One temporary: alive in instructions [first_use, last_use], both included; or a block, alive
/// between two events of an allocator.
struct Lifetime {
  int64_t bytes = 0;
  uint32_t first_use = 0;
  uint32_t last_use = 0;
  bool operator==(const Lifetime&) const = default;
};

struct Placement {
  std::vector<int64_t> offsets;  // bytes, multiples of 64; buffers of zero bytes get 0
  int64_t bytes = 0;             // of the arena
};

/// The most bytes alive at once, of whole multiples of 64: no placement has fewer.
int64_t peak_of(std::span<const Lifetime> lifetimes);

/// Buffers alive at once never overlap. The same input gives the same plan.
Placement place(std::span<const Lifetime> lifetimes);

/// With hardly more than the peak where that can be found: for what is placed once and used for
/// long. Takes tens of milliseconds.
Placement place_tightly(std::span<const Lifetime> lifetimes);

}  // namespace tandem::runtime
