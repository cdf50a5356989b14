// Emitted products pack the columns of a block over the whole sum, which pays for 32 rows or more,
// and for a long sum for 64; with many rows and a long sum the left factor falls out of the cache.
// Measured: 0.97 to 1.7 of the library's speed inside of these bounds (docs/measured.md).
#include "ops/product/emitted.h"

namespace tandem::ops {

bool is_as_fast_emitted(sym::Expr rows, sym::Expr terms, const Tuning::Routes& tuning) {
  const std::optional<int64_t> count = rows.constant();
  if (sym::known_le(terms, tuning.emitted_terms)) return !count || *count >= tuning.emitted_rows;
  return sym::known_le(terms, tuning.long_terms) && count && *count >= tuning.fewest_long_rows &&
         *count <= tuning.most_long_rows;
}

}  // namespace tandem::ops
