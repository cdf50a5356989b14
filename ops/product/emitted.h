// Products that are as fast as loops as by the library, or faster.
#pragma once

#include "base/target.h"
#include "sym/sym.h"

namespace tandem::ops {

/// Of f32, a right factor [terms, columns] that meets so many rows. Unknown numbers count as large,
/// within what is known of them.
bool is_as_fast_emitted(sym::Expr rows, sym::Expr terms, const Tuning::Routes& tuning);

/// Of bf16: whether loops sum it in packs of two terms, by tile registers or by vector registers,
/// faster than the library. An unknown number of rows counts as large, unknown terms fill no packs.
bool is_summed_in_packs(sym::Expr rows, sym::Expr terms, const Target& target);

}  // namespace tandem::ops
