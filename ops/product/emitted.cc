// Emitted products pack the columns of a block over the whole sum, which pays for 32 rows or more,
// and for a long sum for 64, or for 8 where that was measured (base/tuning.h); with many rows and a
// long sum the left factor falls out of the cache.
// Measured: 0.97 to 1.7 of the library's speed inside of these bounds (docs/measured.md).
// Of bf16 with tile registers, the library copies the columns in a pass of its own: 1.4 to 1.8 of
// its speed from 32 rows on. A step of tile registers takes packs of two terms, four packs or more.
#include "ops/product/emitted.h"

namespace tandem::ops {

bool is_as_fast_emitted(sym::Expr rows, sym::Expr terms, const Tuning::Routes& tuning) {
  if (sym::known_le(terms, tuning.emitted_terms)) return !sym::known_lt(rows, tuning.emitted_rows);
  const bool is_bounded = tuning.most_long_rows != INT64_MAX;
  return sym::known_le(terms, tuning.long_terms) && !sym::known_lt(rows, tuning.fewest_long_rows) &&
         (!is_bounded || sym::known_le(rows, tuning.most_long_rows));
}

bool is_summed_in_packs(sym::Expr rows, sym::Expr terms, const Target& target) {
  constexpr int64_t kTerms = 8;
  const std::optional<int64_t> length = terms.constant();
  return (target.multiplies_bf16_tiles() || target.multiplies_bf16()) && length && *length > 0 &&
         *length % kTerms == 0 && !sym::known_lt(rows, target.tuning.routes.tile_rows);
}

}  // namespace tandem::ops
