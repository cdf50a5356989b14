// Nodes of one graph written into another one of its module.
#pragma once

#include <map>

#include "ir/builder.h"

namespace tandem::passes {

/// What stands for the values of the graph that is copied.
using Moved = std::map<const ir::Value*, ir::Value*>;

ir::Value* at(const Moved& moved, const ir::Value* value);

/// Writes them before `before`, or at the end of `to`. `moved` has all inputs that they read, and
/// gets their results.
void copy_nodes(const ir::Graph& from, ir::Graph& to, Moved& moved, ir::Node* before = nullptr);

/// What a body takes from the node that runs it: tensors; numbers are sizes and the seed.
ir::Values tensors_of(const ir::Graph& body);

}  // namespace tandem::passes
