// A cut as data, and in words.
#pragma once

#include "passes/partition/budget.h"
#include "passes/partition/cut_table.h"

namespace tandem::passes {

/// `saved`: values of the joint graph, before set_saved, by `ctx.partition`. Bytes are those that
/// keeping them takes.
CutTable cut_table(const ir::Graph& joint, const GraphCtx& ctx, const ir::Values& saved);

/// What is saved, what is computed again, why, bytes and microseconds, a line each; the first line
/// has the sums.
std::string cut_text(const CutTable& table);

/// The choices of a frontier: bytes saved, a bar for them, microseconds computed again.
std::string pareto_text(const Frontier& frontier);

}  // namespace tandem::passes
