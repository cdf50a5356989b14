// What a product costs by the library and as loops, as far as the cost model counts it.
#pragma once

#include "schedule/decision.h"
#include "schedule/kernel_graph.h"

namespace tandem::schedule {

/// Apart: the library's call and a kernel of what is computed of its results. Together: loops,
/// which take that along. That both do the same operations at the same rate is the model's
/// assumption, and not the machine's: how well the library's code suits a shape is in
/// Tuning::Routes.
Comparison compare_routes(KernelGraph& graph, const ir::Node& product);

}  // namespace tandem::schedule
