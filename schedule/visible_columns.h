// How many of a product's columns later stages ask for.
#pragma once

#include <optional>

#include "loop/kernel.h"

namespace tandem::schedule {

/// Where the columns end that the stages after a product read of its result, for a block of rows in
/// hand; nothing where all are read.
std::optional<sym::Expr> visible_columns(const loop::Kernel& kernel, size_t product,
                                         const loop::Axis& rows, sym::Expr height);
/// The same of what the product's own epilogue reads of its sums.
std::optional<sym::Expr> visible_sums(const loop::Stage& stage, const loop::Axis& rows,
                                      sym::Expr height);
/// From a row of a block to the next, where a product stores its result.
sym::Expr pitch_of(const loop::Stage& product, const loop::Axis& rows);

/// Where the columns begin that a condition of row and column hides from all rows of a block: where
/// it is false from some column on. It may lie before the first column and behind the last.
std::optional<sym::Expr> hidden_from(loop::Val condition, sym::Expr column, const loop::Axis& rows,
                                     sym::Expr height);
/// How many of so many columns lie before it; in whole pieces of 64 where they come in such, and
/// `fewest` of these at least where it may lie before the first column.
sym::Expr columns_before(sym::Expr end, sym::Expr width, int64_t fewest = 0);

}  // namespace tandem::schedule
