// Products of f32 that are as fast as loops as by the library.
#pragma once

#include "base/target.h"
#include "sym/sym.h"

namespace tandem::ops {

/// A right factor [terms, columns] that meets so many rows. Unknown numbers count as large.
bool is_as_fast_emitted(sym::Expr rows, sym::Expr terms, const Tuning::Routes& tuning);

}  // namespace tandem::ops
