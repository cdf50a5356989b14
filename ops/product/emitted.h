// Products that are as fast as loops as by the library, or faster.
#pragma once

#include "base/target.h"
#include "sym/sym.h"

namespace tandem::ops {

/// Of f32, a right factor [terms, columns] that meets so many rows. Unknown numbers count as large.
bool is_as_fast_emitted(sym::Expr rows, sym::Expr terms, const Tuning::Routes& tuning);

/// Of bf16: whether tile registers sum it in loops, faster than the library. An unknown number of
/// rows counts by its least, unknown terms fill no tiles.
bool is_summed_by_tiles(sym::Expr rows, sym::Expr terms, const Target& target);

}  // namespace tandem::ops
