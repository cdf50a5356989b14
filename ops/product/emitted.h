// Products that are as fast as loops as by the library, or faster.
#pragma once

#include "base/target.h"
#include "sym/sym.h"

namespace tandem::ops {

/// A right factor [terms, columns] that meets so many rows. Unknown numbers count as large.
/// Of f32.
bool is_as_fast_emitted(sym::Expr rows, sym::Expr terms, const Tuning::Routes& tuning);

/// Whether tile registers sum such a product of bf16 in loops, faster than the library.
bool is_summed_by_tiles(sym::Expr rows, sym::Expr terms, const Target& target);

}  // namespace tandem::ops
