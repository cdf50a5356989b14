// What it costs that an item shares the loops of a group, beside a kernel of its own.
#pragma once

#include "schedule/decision.h"
#include "schedule/kernel_graph.h"
#include "schedule/reads.h"

namespace tandem::schedule {

/// Of one pass over a value that was used not long ago.
Cost cost_of_reading(const ir::Value& value, const Target& target);

/// Both ways counted alike: each value that a kernel reads once, what the group makes for the item
/// stored and read where they are apart, the elements that are computed, and the cores that have no
/// task. `joined`: the group's space with the item in it.
Comparison compare_join(const KernelGraph& graph, const Group& group, const Space& joined,
                        const Item& item, const PlacedReads& reads);

/// Microseconds that apart costs more.
double gain_of(const Comparison& cost, const Target& target);

}  // namespace tandem::schedule
