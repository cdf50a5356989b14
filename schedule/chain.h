// Products, and what stands between them row by row, as one kernel.
#pragma once

#include "schedule/kernel_graph.h"

namespace tandem::schedule {

constexpr int64_t kAssumedLength = 512;   // of a symbolic size
constexpr int64_t kFewestChainRows = 32;  // of a block: copying the right factors must pay
constexpr int64_t kNarrowFactor = 128;    // columns of keys and values, at most

/// Whether map_chain knows the kernel: several stages, products with columns of their own.
bool is_chain(const loop::Kernel& kernel);
/// Tasks are blocks of rows. Rows of scratch and locals of a row become those of a block; each
/// stage walks the block's rows. map_chain.cc
void map_chain(loop::Kernel& kernel, const Target& target);
/// Where the columns end that the stages after a product read of its result, for a block of rows in
/// hand; nothing where all are read. visible_columns.cc
std::optional<sym::Expr> visible_columns(const loop::Kernel& kernel, size_t product,
                                         sym::Expr width, const loop::Axis& rows, sym::Expr height);
/// The same of what the product's own epilogue reads of its sums.
std::optional<sym::Expr> visible_sums(const loop::Stage& stage, sym::Expr width,
                                      const loop::Axis& rows, sym::Expr height);
}  // namespace tandem::schedule
