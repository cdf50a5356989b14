// Rewrites that change arithmetic. Each pass is one file of its name.
#pragma once

#include "passes/passes.h"

namespace tandem::quant {

/// Products of floats with a weight of bytes, cast and scaled for each result column, read the
/// bytes.
void weight_only_products(ir::Graph& graph, passes::GraphCtx& ctx);

/// Products of one row with a weight of 4 bits become sums of products of integers, group by group.
void one_row_products(ir::Graph& graph, passes::GraphCtx& ctx);

/// Products of two dequantized factors become sums of products of integers, scaled once. Where a
/// factor is dequantized and the product stays in floats, a note says why.
void integer_products(ir::Graph& graph, passes::GraphCtx& ctx);

}  // namespace tandem::quant
