// What a partition may not compute again in backward.
#pragma once

#include "passes/partition/partition.h"

namespace tandem::passes {

/// The reason, in words; null for what may be computed again.
DenseMap<ir::Node, const char*> banned_nodes(const ir::Graph& graph, const Halves& halves,
                                             const Tuning::Chains& limits);

/// A reduction runs in one kernel with what it reads; a product reads memory.
bool fuses(const ir::Value& value, const ir::Node& reader);

}  // namespace tandem::passes
