// Register tiles. A reduction under a vector axis and an unrolled one keeps an accumulator for
// every unrolled row: a step of the reduction reads what the rows share once (a vector of the right
// factor of a product) and combines it with what each row brings (an element of the left factor,
// spread over the lanes). loop/row_tiles.h says how many rows each tile has.
#include <algorithm>

#include "codegen/emit.h"
#include "loop/row_tiles.h"

namespace tandem::codegen {

using llvm::Value;
using loop::Axis;
using loop::Stage;

namespace {

/// Whether an operand may lie where a result goes: read at its place.
bool may_be_in_place(const Stage& stage) {
  std::vector<loop::Val> roots;
  for (const loop::Store& store : stage.after) roots.push_back(store.value);
  const std::vector<loop::Val> read = loop::reachable(roots);
  return std::ranges::any_of(stage.after, [&](const loop::Store& store) {
    return std::ranges::any_of(read, [&](loop::Val each) {
      return each->opcode == loop::Opcode::load && each->index == store.index;
    });
  });
}

/// Those up to the last one that its index depends on.
size_t loops_around(const loop::Prefetch& hint, const Stage& stage) {
  size_t loops = stage.reduce_axes.size();
  while (loops > 0 && !sym::depends_on(hint.index, stage.reduce_axes[loops - 1].index)) --loops;
  return loops;
}

}  // namespace

void Emitter::emit_row_tiles(const Stage& stage) {
  const Axis& axis = stage.axes.back();
  const loop::RowTiles tiles = loop::row_tiles(axis);
  const auto number = [&](int n) { return ir_.getInt64(static_cast<uint64_t>(n)); };
  Value* extent = index_value(axis.extent);
  Value* begin = number(0);
  const auto emit_until = [&](Value* end, int height) {
    const bool asks = height == tiles.height || tiles.shares_last;
    emit_loop(begin, end, number(height),
              [&](Value* first) { emit_rows(stage, first, height, asks); });
    begin = end;
  };
  Value* shared = number(tiles.shares_last ? tiles.height : 0);
  Value* rest = ir_.CreateURem(extent, number(tiles.height));
  emit_until(ir_.CreateSub(ir_.CreateSub(extent, rest), shared), tiles.height);
  for (int height : tiles.behind) {
    rest = ir_.CreateURem(ir_.CreateSub(extent, begin), number(height));
    emit_until(ir_.CreateSub(extent, rest), height);
  }
}

void Emitter::emit_rows(const Stage& stage, Value* first, int count, bool asks) {
  const Axis& axis = stage.axes.back();
  std::vector<std::vector<Accumulator>> rows(static_cast<size_t>(count));
  for (std::vector<Accumulator>& row : rows) {
    begin_reductions(stage);
    row = std::move(accumulators_);
  }
  auto at_each_row = [&](const std::function<void()>& body) {
    for (size_t i = 0; i < rows.size(); ++i) {
      levels_.emplace_back();
      symbols_[axis.index] = ir_.CreateAdd(first, ir_.getInt64(i));
      accumulators_ = std::move(rows[i]);
      body();
      rows[i] = std::move(accumulators_);
      symbols_.erase(axis.index);
      levels_.pop_back();
    }
  };
  hoist(stage);
  asking_row_ = asks ? first : nullptr;
  emit_nest(stage.reduce_axes,
            [&] { emit_reduce(stage, 0, [&] { at_each_row([&] { combine_reductions(); }); }); });
  asking_row_ = nullptr;
  if (tail_mask_ == nullptr || !may_be_in_place(stage)) {
    return at_each_row([&] {
      finish_reductions();
      emit_after(stage);
      forget_locals(stage);
    });
  }
  // A row that is read in place of what is written (a residual) would wait for the store before it:
  // what masks leave out of the two touches. So all rows are computed before one is stored.
  std::vector<std::vector<Value*>> results;
  at_each_row([&] {
    finish_reductions();
    results.push_back(values_of(stage.after));
    forget_locals(stage);
  });
  size_t row = 0;
  at_each_row([&] { store_all(stage.after, results[row++]); });
}

/// Into the second-level cache: the line is read by a later task, or written at the end of this
/// tile.
void Emitter::emit_prefetch(const loop::Prefetch& hint, const Axis& rows, Value* first) {
  levels_.emplace_back();
  symbols_[rows.index] = first;
  Value* pointer = element_pointer(hint.buffer, uniform_index(hint.index));
  const bool writes =
      kernel_.buffers[static_cast<size_t>(hint.buffer)].access != loop::Access::read;
  ir_.CreateIntrinsic(llvm::Intrinsic::prefetch, {pointer->getType()},
                      {pointer, ir_.getInt32(writes ? 1 : 0), ir_.getInt32(2), ir_.getInt32(1)});
  symbols_.erase(rows.index);
  levels_.pop_back();
}

/// Those that stand in this many of the loops of a reduction, and in no others.
void Emitter::emit_prefetches(const Stage& stage, size_t loops) {
  for (const loop::Prefetch& hint : stage.prefetches)
    if (loops_around(hint, stage) == loops) emit_prefetch(hint, stage.axes.back(), asking_row_);
}

}  // namespace tandem::codegen
