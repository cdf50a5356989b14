// The gradient of a loop that data end, as loops.
#pragma once

#include "ir/graph.h"

namespace tandem::passes {

/// Replaces a tandem::while_loop_backward node by while_loop nodes that compute the same, and have
/// gradients: one that counts the steps, and one that goes back over them, whose body computes what
/// was carried to its step once more. So n steps take n * n / 2. Gives the latter node: it carries
/// a number, then the tangents; its operands are what the loop carried at first, then its operands.
/// Unsupported where a step draws random numbers, which belong to its number.
ir::Node* nested_loops(ir::Graph& graph, ir::Node* node);

}  // namespace tandem::passes
