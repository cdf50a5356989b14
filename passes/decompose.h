// Calls replaced by what they are made of, where some pass wants that.
#pragma once

#include <functional>

#include "ir/graph.h"

namespace tandem::passes {

/// All that have a decomposition and are wanted so, and in turn what they are made of.
void decompose_where(ir::Graph& graph, const std::function<bool(const ir::Node&)>& wanted);

}  // namespace tandem::passes
