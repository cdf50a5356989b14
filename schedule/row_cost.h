// What kernels cost apart, and computed at common rows.
#pragma once

#include "schedule/cost.h"
#include "schedule/own_row.h"

namespace tandem::schedule {

Cost cost_apart(const Joining& joining, uint32_t group);
Cost cost_apart(const Joining& joining, GroupNumbers groups);
/// As map_chain will map it, on a CPU.
Cost cost_together(const Joining& joining, const RowChain& chain);

/// On a GPU rows are worth it while all that stays inside is in a block's shared memory: its
/// products read their right factors from where they lie.
bool fits_shared_memory(const Joining& joining, const RowChain& chain);

}  // namespace tandem::schedule
