// How many of a product's columns later stages ask for.
#pragma once

#include <optional>

#include "loop/kernel.h"

namespace tandem::schedule {

/// Where the columns end that the stages after a product read of its result, for a block of rows in
/// hand; nothing where all are read.
std::optional<sym::Expr> visible_columns(const loop::Kernel& kernel, size_t product,
                                         sym::Expr width, const loop::Axis& rows, sym::Expr height);
/// The same of what the product's own epilogue reads of its sums.
std::optional<sym::Expr> visible_sums(const loop::Stage& stage, sym::Expr width,
                                      const loop::Axis& rows, sym::Expr height);

/// Where the columns begin that a condition of row and column hides from all rows of a block: where
/// it is false from some column on.
std::optional<sym::Expr> hidden_from(loop::Val condition, sym::Expr column, const loop::Axis& rows,
                                     sym::Expr height);

}  // namespace tandem::schedule
