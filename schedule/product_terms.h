// Terms of a product's sums inside of a chain: as many as packs have, in pieces of a known number,
// or left out because a factor is 0.
#pragma once

#include <vector>

#include "base/target.h"
#include "loop/kernel.h"

namespace tandem::schedule {

/// Of the terms of a row: all lanes of the widest loop, and two tile registers of packs.
inline constexpr int64_t kPieceOfTerms = 64;

/// Whether the stage sums products of bf16, and the processor packs of them.
bool sums_packs(const loop::Stage& stage, const Target& target);
/// Any of the kernel's stages.
bool sums_packs(const loop::Kernel& kernel, const Target& target);
/// Whether there may be a few more terms: both factors are loads, of which these can be zero.
bool can_fill_packs(const loop::Stage& stage);
/// Whether it would sum packs, if there were.
bool lacks_packs(const loop::Stage& stage, const Target& target);
/// Sums of unknown length are in pieces then.
void fill_packs(loop::Kernel& kernel, loop::Stage& stage);
/// A sum of unknown length becomes one of pieces, so that the steps of a piece are known.
void in_pieces(loop::Kernel& kernel, loop::Stage& stage);

/// Adds the stage that sums the products of a factor with 0 over `terms`, at each place along
/// `axis`: b - b, which is 0, or NaN where 0 times b is. Returns what to read them by, at the
/// axis' index.
loop::Val zeros_times(loop::Kernel& kernel, loop::Val factor, const loop::Axis& terms,
                      const loop::Axis& axis, const Target& target,
                      std::vector<loop::Stage>& stages);

}  // namespace tandem::schedule
