// Everything decided, written down.
#pragma once

#include "schedule/kernel_graph.h"
#include "schedule/schedule.h"

namespace tandem::schedule {

/// Buffers, size code, instructions in the order given, epilogue. The graph is used up.
Scheduled emit_program(KernelGraph& graph);

}  // namespace tandem::schedule
