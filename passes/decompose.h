// Calls replaced by what they are made of, where some pass wants that.
#pragma once

#include <functional>

#include "ops/opdef.h"

namespace tandem::passes {

/// Whether a call of an op that has a decomposition is always taken apart, or not kept for its
/// loops.
bool is_composite(const ir::Node& node);

/// The node to go on with: the first of what the call is made of, or the one behind it.
ir::Node* decompose(ir::Graph& graph, ir::Node* node);
/// The same by `rule`.
ir::Node* decompose(ir::Graph& graph, ir::Node* node, ops::DecomposeRule rule);

/// All that have a decomposition and are wanted so, and in turn what they are made of.
void decompose_where(ir::Graph& graph, const std::function<bool(const ir::Node&)>& wanted);

}  // namespace tandem::passes
