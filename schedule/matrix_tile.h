// Products of bytes, and of bf16, for tile registers: which are worth them, and their marks.
#pragma once

#include <vector>

#include "base/target.h"
#include "loop/kernel.h"

namespace tandem::schedule {

/// Whether the machine has tile registers and the stage, which sums products over `height` rows,
/// would fill them: by its combiner, its rows and the length of its sums.
bool suits_matrix(const loop::Stage& stage, int64_t height, const Target& target);

/// Whether the last of the axes of such a sum fills tiles of bf16, by packs of two terms.
bool fills_tiles(const std::vector<loop::Axis>& terms);
/// The same of a sum of products of bf16 in f32.
bool suits_bf16_matrix(const loop::Stage& stage, int64_t height, const Target& target);

/// Whether vector registers can sum it, two terms a step.
bool comes_in_bf16_packs(const loop::Stage& stage, const Target& target);
/// The same where both factors lie so in memory: two terms are one word, which begins at an even
/// place.
bool comes_in_bf16_words(const loop::Stage& stage, const Target& target);
/// Packs of it, and tile registers do not do it better.
bool suits_bf16_packs(const loop::Stage& stage, const Target& target);

/// Such a sum, whose factors lie in packs, over words of two bf16: the packs of
///   sum over k of a[k] b[k] = sum over p of a[2 p + 1] b[2 p + 1] + a[2 p] b[2 p].
void sum_packs(loop::Kernel& kernel, loop::Stage& stage);

/// Marks a stage {…, lanes, rows} of one sum for them, where its factors lie so (loop/matrix.h);
/// else it stays a tile of vector registers. Axes of its sums that both factors walk as one become
/// one; that of bf16 becomes one of the numbers of a pack and one of packs.
void mark_matrix(loop::Kernel& kernel, loop::Stage& stage);

/// Of a marked stage with an axis of lines before its rows: tiles run over the ends of lines, where
/// that takes fewer of them.
void mark_lines(loop::Kernel& kernel, loop::Stage& stage);

/// While a marked stage multiplies by a panel of columns, it asks for the next one, whose number is
/// one more: panels of weights come from beyond the second-level cache. `height`: of its rows.
void ask_for_next_panel(loop::Kernel& kernel, loop::Stage& stage, sym::Expr number, int64_t height,
                        const Tuning::Products& tuning);

/// What a marked stage's right factor is before it is copied, and where its blocks lie.
struct BlockOfColumns {
  loop::Val right = nullptr;  // loaded
  sym::Expr column;           // of the block
  sym::Expr term;
  bool crosses = false;  // memory runs along the terms
  int64_t width = 0;
  int64_t height = 0;  // of the rows
};
/// While it multiplies by one block of columns, it asks for the next one, which is copied then.
void ask_for_next_block(loop::Stage& stage, const BlockOfColumns& block, sym::Expr number,
                        const Tuning::Products& tuning);

/// Scratch that a marked stage reads rows of gets as many more as a tile has, so that the last
/// tiles are like all others.
void add_spare_rows(loop::Kernel& kernel, const loop::Stage& stage);

}  // namespace tandem::schedule
