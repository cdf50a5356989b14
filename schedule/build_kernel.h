// One group as an unmapped kernel of the loop IR.
#pragma once

#include "schedule/kernel_graph.h"

namespace tandem::schedule {

/// Of a group without one that is no library call.
void build_kernel(KernelGraph& graph, Group& group);

}  // namespace tandem::schedule
