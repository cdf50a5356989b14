// Which launches run together.
#pragma once

#include <cstddef>
#include <vector>

#include "schedule/kernel_graph.h"

namespace tandem::schedule {

/// What a group does to memory, by any unique address for each place.
struct GroupUse {
  std::vector<const void*> reads;
  std::vector<const void*> writes;
  bool is_pointwise = false;  // no reduction, no checks: its cost is known by its size
  bool is_free = false;       // it may run earlier without holding memory for longer
  bool can_fail = false;
};

GroupUse use_of(const Group& group, const KernelGraph& graph);

/// The groups in the order they run, those that run at the same time together. Each one keeps its
/// place after whatever it depends on.
LaunchOrder order_of(const std::vector<GroupUse>& groups);

/// Why the second of two groups does not run beside the first one, of which order_of has not made
/// one step.
const char* why_apart(const std::vector<GroupUse>& groups, size_t first, size_t second);

}  // namespace tandem::schedule
