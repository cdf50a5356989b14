// The invariants of a graph, checked between passes and after parsing:
//   - every operand is defined before its use, in the same graph, and every use is in its value's
//   use-list;
//   - arguments are as many as the schema has, and of its kinds;
//   - types of results are what the op's type rule infers (sizes compared as expressions);
//   - input names are unique; outputs are values of the graph.
#pragma once

#include <vector>

#include "base/diagnostic.h"
#include "ir/graph.h"

namespace tandem::ir {

/// All violations found; empty when the graph is well formed.
std::vector<Diagnostic> verify(const Graph& graph);

}  // namespace tandem::ir
