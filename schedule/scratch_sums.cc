// Problem: a heavy epilogue has no registers left beside a tile of sums, or lanes that lie
// otherwise, and sums taken in parts are complete behind the last one only. Approach: the sums of a
// task go to scratch, and the epilogue is a stage of its own behind them.
#include "schedule/scratch_sums.h"

#include "schedule/axes.h"
#include "schedule/product_packs.h"

namespace tandem::schedule {

using loop::Kernel;
using loop::Stage;
using loop::Val;
using sym::Expr;

Stage split_epilogue(Kernel& kernel, Stage& sums, const BlockOfSums& block, const Target& target) {
  loop::ScalarPool& pool = *kernel.scalars;
  const loop::Reduction& reduction = sums.reductions[0];
  const DType dtype = reduction.inputs[0]->dtype;
  const Expr place = block.rows.index * block.width + block.columns.index;
  const int32_t number = static_cast<int32_t>(kernel.buffers.size());
  kernel.buffers.push_back({dtype, loop::Access::scratch, block.height * block.width, true, ""});
  Stage finish;
  finish.body = std::move(sums.after);
  replace_locals(pool, finish.body, {{reduction.first_local, pool.load(number, dtype, place)}});
  finish.axes = {block.rows, block.columns};
  make_vector(finish.axes.back(), finish, target, false);
  sums.after = {{number, place, pool.local(reduction.first_local, dtype), false}};
  return finish;
}

Stage add_up_sums(Kernel& kernel, Stage& sums, const loop::Axis& rows, const loop::Axis& columns,
                  const Target& target) {
  loop::Store& sum = sums.after[0];
  sum.accumulate = true;
  Stage clear;
  sym::Substitution map;
  clear.axes = fresh_axes(kernel.scalars->symbols(), {rows, columns}, map);
  const Val zero = loop::identity_of(*kernel.scalars, loop::Combiner::sum, sum.value->dtype);
  clear.body = {{sum.buffer, sym::substitute(sum.index, map), zero, false}};
  make_vector(clear.axes.back(), clear, target, false);
  return clear;
}

}  // namespace tandem::schedule
