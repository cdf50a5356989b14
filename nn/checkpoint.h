// Regions of a model whose values backward computes again instead of keeping them.
#pragma once

#include <functional>
#include <string_view>

#include "nn/module.h"

namespace tandem::nn {

using ir::RecomputePolicy;

/// What backward does with an operator of a region, by its name as it is traced ("aten.linear").
/// must_recompute and prefer_recompute: computed again; must_save: kept; prefer_save: kept, unless
/// a memory budget leaves no room; none: as outside of regions.
using RegionPolicy = std::function<RecomputePolicy(std::string_view op)>;
RecomputePolicy recompute_all(std::string_view op);

using RegionFunction = std::function<Tensors(Trace&, const Tensors&)>;
/// The function as a region: the same results and gradients, in less memory and more time. What a
/// later region starts from is kept, and so is what a second run could change (operators with
/// checks on data); dropout draws the same numbers again. Regions may be nested and repeated, in
/// forward and backward apart (aot_function) and in training steps alike.
RegionFunction checkpoint(RegionFunction region, RegionPolicy policy = recompute_all);

/// The function as a region with a memory budget of its own: of the bytes that forward would save
/// of it for backward beyond the fewest possible it saves this share (0 … 1), with the least work
/// computed again, whatever the partition of the whole. Regions of one share are one part, which
/// shares it; a region inside of another has its own. UserError for other numbers.
RegionFunction with_memory_budget(RegionFunction region, double share);

}  // namespace tandem::nn
