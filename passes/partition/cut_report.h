// A cut in words.
#pragma once

#include "passes/partition/budget.h"

namespace tandem::passes {

/// What is saved, what is computed again, why, bytes and microseconds, a line each; the first line
/// has the sums. `saved`: values of the joint graph, before set_saved.
std::string cut_text(const ir::Graph& joint, const Target& target, const ir::Values& saved);

/// The choices of a frontier: bytes saved, a bar for them, microseconds computed again.
std::string pareto_text(const Frontier& frontier);

}  // namespace tandem::passes
