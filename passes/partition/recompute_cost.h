// What it takes to compute a node again.
#pragma once

#include "base/target.h"
#include "ir/graph.h"

namespace tandem::passes {

/// Operations of a call: two for each step of a product's sums. A symbolic size counts as a typical
/// one.
double operations_of(const ir::Node& node, const Tuning::Rates& rates);

/// The same of products alone; 0 of other nodes.
double product_flops(const ir::Node& node);

/// Microseconds by the machine's rates, to tell which of two choices takes less. What is light runs
/// inside the kernel of its reader and costs its operations; the rest passes through memory.
double microseconds_again(const ir::Node& node, const Target& target);

}  // namespace tandem::passes
