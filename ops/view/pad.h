// What a constant pad makes of sizes, for the ops that pad.
#pragma once

#include "ops/families.h"

namespace tandem::ops {

/// Sizes of `self` with `pad` around it: pairs from the last dimension on, of which negative ones
/// cut.
Sizes padded_sizes(const Call& call);

}  // namespace tandem::ops
