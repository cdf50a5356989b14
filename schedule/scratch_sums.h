// Sums of products that go to scratch before anything is computed of them.
#pragma once

#include "base/target.h"
#include "loop/kernel.h"

namespace tandem::schedule {

/// A block of sums {rows, columns}, and how many of each there are at most.
struct BlockOfSums {
  loop::Axis rows;
  loop::Axis columns;
  sym::Expr height;
  sym::Expr width;
};

/// Stores the sums in scratch of their own. What was stored of them is the stage returned, with
/// lanes along the columns.
loop::Stage split_epilogue(loop::Kernel& kernel, loop::Stage& sums, const BlockOfSums& block,
                           const Target& target);

/// Makes the one store of the sums add to what is there, for they are taken in parts. The stage
/// returned clears it before the first one.
loop::Stage add_up_sums(loop::Kernel& kernel, loop::Stage& sums, const loop::Axis& rows,
                        const loop::Axis& columns, const Target& target);

}  // namespace tandem::schedule
