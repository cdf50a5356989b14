// Parts of the road that more than one traveller takes.
#pragma once

#include "driver/compiler.h"

namespace tandem::driver {

/// From a graph as it was written to where reverse mode may begin, bodies of loops, branches and
/// custom functions included. No constants are frozen, and nothing says what results share.
void run_until_joint(ir::Graph& graph, Gradients gradients, GraphCtx& ctx);

}  // namespace tandem::driver
