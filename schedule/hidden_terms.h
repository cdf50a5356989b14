// What of the rows of a chain a causal mask hides from a whole block of them.
#pragma once

#include <optional>
#include <vector>

#include "loop/kernel.h"

namespace tandem::schedule {

/// A block of rows of a chain, and the columns of its scores.
struct HiddenColumns {
  const loop::Axis& rows;
  sym::Expr height;
  sym::Expr width;  // of a row
  sym::Expr pitch;  // from row to row in scratch
  sym::Expr end;    // no row of the block sees a column from here on
};

/// The axis of a stage that walks the columns of a row.
struct ColumnAxis {
  bool is_summed = false;  // one of the reduce axes
  size_t number = 0;
};

/// What `value` is but for rows that see nothing, whose maximum is -inf: there it is a number.
struct Guarded {
  loop::Val value = nullptr;
  loop::Val maximum = nullptr;  // null: there is no such choice
};
Guarded without_guard(loop::Val value);

/// Of each stage that does as much if its axis along a row ends there: its reductions would combine
/// nothing else than their identity behind it, or products with zero, and what it stores there is
/// read by such stages alone. Of products only what is finite makes no difference: 0 times what is
/// not is NaN.
std::vector<std::optional<ColumnAxis>> axes_that_end_early(const loop::Kernel& kernel,
                                                           const HiddenColumns& hidden);

}  // namespace tandem::schedule
