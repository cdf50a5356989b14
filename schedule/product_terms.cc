// Problem: instructions for bf16 take packs of two terms, tile registers 16 packs a step, and rows
// of scores have any length, or end where a mask hides the rest. Approach: terms that are not there
// are read as zeros (a masked load), and sums that end early are taken in pieces that are whole
// steps. What is left out is 0 times something: its sums are the same for all rows, and are taken
// once.
#include "schedule/product_terms.h"

#include <algorithm>

#include "loop/matrix.h"
#include "schedule/axes.h"
#include "schedule/matrix_tile.h"
#include "schedule/product_axes.h"

namespace tandem::schedule {

using loop::Axis;
using loop::Stage;
using loop::Val;
using sym::Expr;

bool sums_packs(const Stage& stage, const Target& target) {
  return loop::multiplies_bf16(stage) &&
         (target.multiplies_bf16_tiles() || target.multiplies_bf16());
}

bool sums_packs(const loop::Kernel& kernel, const Target& target) {
  return std::ranges::any_of(kernel.stages,
                             [&](const Stage& stage) { return sums_packs(stage, target); });
}

bool can_fill_packs(const Stage& stage) {
  return std::ranges::all_of(stage.reductions[0].inputs,
                             [](Val input) { return is_plain_load(loop::before_cast(input)); });
}

bool lacks_packs(const Stage& stage, const Target& target) {
  if (!sums_packs(stage, target) || stage.reduce_axes.size() != 1) return false;
  const std::optional<int64_t> length = stage.reduce_axes[0].extent.constant();
  if (length && *length < Tuning::Fixed::kFewestPacks * 2) return false;
  const bool in_tiles = target.multiplies_bf16_tiles();
  const bool is_whole = length && (in_tiles ? fills_tiles(stage.reduce_axes) : *length % 2 == 0);
  return !is_whole && can_fill_packs(stage);
}

void fill_packs(loop::Kernel& kernel, Stage& stage) {
  loop::ScalarPool& pool = *kernel.scalars;
  const Axis terms = stage.reduce_axes[0];
  const bool is_known = terms.extent.is_constant();
  const int64_t step = is_known ? 2 * loop::kMatrixTile : kPieceOfTerms;
  const Expr most = sym::ceil_div(terms.extent, step) * step;
  const Axis filled{pool.symbols().index("r", most), most};
  stage.reduce_axes = {filled};
  loop::substitute(kernel, stage, {{terms.index, filled.index}});
  // Made of the new axis: of the old one it would always hold.
  const Val is_there =
      pool.binary(loop::Opcode::lt, pool.index(filled.index), pool.index(terms.extent));
  for (Val& input : stage.reductions[0].inputs) {
    const Val factor = loop::before_cast(input);
    input =
        pool.cast(pool.load(factor->slot, factor->dtype, factor->index, is_there), input->dtype);
  }
  if (!is_known) in_pieces(kernel, stage);
}

void in_pieces(loop::Kernel& kernel, Stage& stage) {
  sym::Pool& symbols = kernel.scalars->symbols();
  const Axis terms = stage.reduce_axes[0];
  const Expr count = sym::ceil_div(terms.extent, kPieceOfTerms);
  const Axis piece{symbols.index("r", count), count};
  const Axis term{symbols.index("r", kPieceOfTerms), kPieceOfTerms};
  loop::substitute(kernel, stage, {{terms.index, piece.index * kPieceOfTerms + term.index}});
  stage.reduce_axes = {piece, term};
}

Val zeros_times(loop::Kernel& kernel, Val factor, const Axis& terms, const Axis& axis,
                const Target& target, std::vector<Stage>& stages) {
  loop::ScalarPool& pool = *kernel.scalars;
  const Axis place{pool.symbols().index("y", axis.extent), axis.extent};
  const Val value = loop::substituted(pool, factor, {{axis.index, place.index}});
  const int32_t local = kernel.locals++;
  const int32_t kept = static_cast<int32_t>(kernel.buffers.size());
  kernel.buffers.push_back({value->dtype, loop::Access::scratch, axis.extent, true, ""});
  Stage made;
  made.axes = {place};
  made.reduce_axes = {terms};
  made.reductions = {{loop::Combiner::sum, {pool.binary(loop::Opcode::sub, value, value)}, local}};
  made.after = {{kept, place.index, pool.local(local, value->dtype), false}};
  make_vector(made.axes.back(), made, target, false);
  // An addition waits for the one before it: of four registers, that is as long as their loads.
  const int four = 4 * target.lanes();
  if (sym::known_divisible(axis.extent, four)) made.axes.back().lanes = four;
  stages.push_back(std::move(made));
  return pool.load(kept, value->dtype, axis.index);
}

}  // namespace tandem::schedule
