// Register tiles. A reduction under a vector axis and an unrolled one keeps an accumulator for
// every unrolled row: a step of the reduction reads what the rows share once (a vector of the right
// factor of a product) and combines it with what each row brings (an element of the left factor,
// spread over the lanes). What is left of the rows goes in tiles of 8, 4, 2 and 1.
#include <algorithm>
#include <bit>

#include "codegen/emit.h"

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

/// Of the numbers of rows that may be left behind whole tiles: code for others would never run.
unsigned bits_left(const Axis& axis) {
  constexpr int kMostTried = 63;
  if (sym::known_divisible(axis.extent, axis.lanes)) return 0;
  if (axis.lanes > kMostTried) return std::bit_ceil(static_cast<unsigned>(axis.lanes)) - 1;
  const uint64_t remainders = sym::possible_remainders(axis.extent, axis.lanes);
  unsigned bits = 0;
  for (int left = 0; left < axis.lanes; ++left)
    if ((remainders >> left & 1) != 0) bits |= static_cast<unsigned>(left);
  return bits;
}

}  // namespace

void Emitter::emit_row_tiles(const Stage& stage) {
  const Axis& axis = stage.axes.back();
  const auto number = [&](int n) { return ir_.getInt64(static_cast<uint64_t>(n)); };
  Value* extent = index_value(axis.extent);
  Value* rest = ir_.CreateURem(extent, number(axis.lanes));
  Value* begin = ir_.CreateSub(extent, rest);
  emit_loop(number(0), begin, number(axis.lanes),
            [&](Value* first) { emit_rows(stage, first, axis.lanes); });
  // Each bit of what is left is a tile of that many rows.
  const unsigned bits = bits_left(axis);
  for (int count = static_cast<int>(std::bit_floor(bits)); count >= 1; count /= 2) {
    if ((bits & static_cast<unsigned>(count)) == 0) continue;
    Value* end = ir_.CreateAdd(begin, ir_.CreateAnd(rest, number(count)));
    emit_loop(begin, end, number(count), [&](Value* first) { emit_rows(stage, first, count); });
    begin = end;
  }
}

void Emitter::emit_rows(const Stage& stage, Value* first, int count) {
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
  bool is_whole = count == axis.lanes;
  emit_nest(stage.reduce_axes, [&] {
    emit_reduce(stage, 0, [&] {
      if (is_whole) emit_prefetches(stage, first);
      at_each_row([&] { combine_reductions(); });
    });
  });
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
void Emitter::emit_prefetches(const Stage& stage, Value* first) {
  const Axis& axis = stage.axes.back();
  levels_.emplace_back();
  symbols_[axis.index] = first;
  for (const loop::Prefetch& hint : stage.prefetches) {
    Value* pointer = element_pointer(hint.buffer, uniform_index(hint.index));
    const bool writes =
        kernel_.buffers[static_cast<size_t>(hint.buffer)].access != loop::Access::read;
    ir_.CreateIntrinsic(llvm::Intrinsic::prefetch, {pointer->getType()},
                        {pointer, ir_.getInt32(writes ? 1 : 0), ir_.getInt32(2), ir_.getInt32(1)});
  }
  symbols_.erase(axis.index);
  levels_.pop_back();
}

}  // namespace tandem::codegen
