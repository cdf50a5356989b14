// Transposed operands. A load that walks memory along an unrolled serial axis while the lanes run
// across it would gather one element a line. Instead a square tile is read row by row and
// transposed in registers: log2(n) rounds of interleaving, n/2 pairs each. And the other way round
// for a few values that lie side by side in memory (the channels of an image) while the lanes run
// along what is read: they are interleaved in registers and stored as one piece. Two elements of 16
// bits that stay side by side (packs of bf16) are turned as one of 32; and so are two that do not,
// where they can be taken apart afterwards: half as many rounds, and rows of whole registers.
#include <algorithm>

#include "codegen/emit.h"
#include "loop/stage.h"

namespace tandem::codegen {

using llvm::Value;
using loop::Val;
using sym::Expr;

/// Element k of the result: the lanes' values at position k of the axis (the axis stands at the
/// tile's start).
std::vector<Value*> Emitter::load_tile(Val val, const loop::Axis& axis, bool in_words) {
  if (in_words) return load_words(val, axis.lanes);
  std::vector<Value*> rows = load_square(val, memory_type(val->dtype), axis.lanes);
  for (Value*& row : rows) row = from_memory(row, val->dtype);
  return rows;
}

/// 2n elements of 16 bits of each lane, turned by twos.
std::vector<Value*> Emitter::load_words(Val val, int n) {
  llvm::Type* half = llvm::FixedVectorType::get(ir_.getInt16Ty(), static_cast<unsigned>(n));
  llvm::Type* type = llvm::FixedVectorType::get(memory_type(val->dtype), static_cast<unsigned>(n));
  std::vector<Value*> parts;
  for (Value* words : load_square(val, ir_.getInt32Ty(), n)) {
    Value* const second = ir_.CreateLShr(words, 16);
    for (Value* part : {words, second})
      parts.push_back(ir_.CreateBitCast(ir_.CreateTrunc(part, half), type));
  }
  return parts;
}

/// Of elements of that type, `n` lanes of it from where `val` is at lane 0.
std::vector<Value*> Emitter::load_square(Val val, llvm::Type* type, int n) {
  llvm::Type* row_type = llvm::FixedVectorType::get(type, static_cast<unsigned>(n));
  llvm::Align align(static_cast<uint64_t>(size_of(kernel_.buffers[val->slot].dtype)));
  Value* start = uniform_index(val->index);
  Value* step = uniform_index(sym::affine_in(val->index, vector_axis_)->coefficient);
  std::vector<Value*> rows;
  for (int i = 0; i < n; ++i) {
    Value* index =
        ir_.CreateAdd(start, ir_.CreateMul(step, ir_.getInt64(static_cast<uint64_t>(i))));
    rows.push_back(ir_.CreateAlignedLoad(row_type, element_pointer(*val, index), align));
  }
  const int in_lane = std::min(n, 16 / static_cast<int>(type->getPrimitiveSizeInBits() / 8));
  for (int half = n / 2; half >= in_lane; half /= 2) swap_blocks(rows, half);
  for (int round = 1; round < in_lane; round *= 2) rows = interleaved(rows, in_lane);
  return rows;
}

/// Rows i and i + half of a square hold each other's off-diagonal half x half blocks afterwards.
void Emitter::swap_blocks(std::vector<Value*>& rows, int half) {
  const int n = static_cast<int>(rows.size());
  std::vector<int> low;
  std::vector<int> high;
  for (int i = 0; i < n; ++i) {
    bool first = (i / half) % 2 == 0;
    low.push_back(first ? i : n + i - half);
    high.push_back(first ? i + half : n + i);
  }
  for (int i = 0; i < n; ++i) {
    if ((i / half) % 2 != 0) continue;
    Value*& upper = rows[static_cast<size_t>(i)];
    Value*& lower = rows[static_cast<size_t>(i) + static_cast<size_t>(half)];
    Value* a = upper;
    upper = ir_.CreateShuffleVector(a, lower, low);
    lower = ir_.CreateShuffleVector(a, lower, high);
  }
}

/// One round in squares of 128 bits, to which AVX's instructions keep: each row is interleaved,
/// element by element, with the one half a square below it, which gives two rows. After as many
/// rounds as halve the square to one row, it is transposed.
std::vector<Value*> Emitter::interleaved(const std::vector<Value*>& rows, int square) {
  const int n = static_cast<int>(rows.size());
  std::vector<int> low;
  for (int i = 0; i < n; ++i)
    low.push_back((i % 2 == 0 ? 0 : n) + i / square * square + i % square / 2);
  std::vector<int> high = low;
  for (int& element : high) element += square / 2;
  std::vector<Value*> result;
  for (int i = 0; i < n; ++i) {
    if (i % square >= square / 2) continue;
    Value* a = rows[static_cast<size_t>(i)];
    Value* b = rows[static_cast<size_t>(i) + static_cast<size_t>(square) / 2];
    result.push_back(ir_.CreateShuffleVector(a, b, low));
    result.push_back(ir_.CreateShuffleVector(a, b, high));
  }
  return result;
}

/// The stage's last axes are a transposed one, here, and the two elements of a pair. Pairs that are
/// left over go one by one.
void Emitter::emit_turned_pairs(const loop::Stage& stage) {
  const loop::Axis& axis = stage.axes[stage.axes.size() - 2];
  const loop::Axis& pair = stage.axes.back();
  const loop::Store& store = stage.body[0];
  const llvm::Align align(static_cast<uint64_t>(size_of(store.value->dtype)));
  Value* extent = index_value(axis.extent);
  Value* lanes = ir_.getInt64(static_cast<uint64_t>(axis.lanes));
  Value* whole = ir_.CreateSub(extent, ir_.CreateURem(extent, lanes));
  emit_loop(ir_.getInt64(0), whole, lanes, [&](Value* at) {
    symbols_[axis.index] = at;
    symbols_[pair.index] = ir_.getInt64(0);
    const std::vector<Value*> rows = load_square(store.value, ir_.getInt32Ty(), axis.lanes);
    for (size_t k = 0; k < rows.size(); ++k) {
      symbols_[axis.index] = ir_.CreateAdd(at, ir_.getInt64(k));
      Value* to = element_pointer(store.buffer, uniform_index(store.index));
      ir_.CreateAlignedStore(rows[k], to, align);
    }
    symbols_.erase(pair.index);
    symbols_.erase(axis.index);
  });
  emit_loop(whole, extent, ir_.getInt64(1), [&](Value* at) {
    symbols_[axis.index] = at;
    emit_interleaved_axis(pair, stage);
    symbols_.erase(axis.index);
  });
}

void Emitter::emit_interleaved_axis(const loop::Axis& axis, const loop::Stage& stage) {
  std::vector<std::vector<Value*>> parts(stage.body.size());
  for (int64_t point = 0; point < *axis.extent.constant(); ++point) {
    levels_.emplace_back();
    symbols_[axis.index] = ir_.getInt64(static_cast<uint64_t>(point));
    for (size_t i = 0; i < stage.body.size(); ++i) {
      const DType dtype = kernel_.buffers[stage.body[i].buffer].dtype;
      parts[i].push_back(to_memory(as_lanes(value(stage.body[i].value)), dtype));
    }
    levels_.pop_back();
  }
  symbols_[axis.index] = ir_.getInt64(0);
  for (size_t i = 0; i < stage.body.size(); ++i) store_interleaved(stage.body[i], parts[i]);
  symbols_.erase(axis.index);
}

/// Element i * n + k is lane i of part k.
void Emitter::store_interleaved(const loop::Store& store, const std::vector<Value*>& parts) {
  const int count = static_cast<int>(parts.size());
  llvm::SmallVector<int, 256> order;
  llvm::SmallVector<int, 256> lane_of;
  for (int lane = 0; lane < lanes_; ++lane)
    for (int part = 0; part < count; ++part) {
      order.push_back(part * lanes_ + lane);
      lane_of.push_back(lane);
    }
  Value* all = ir_.CreateShuffleVector(llvm::concatenateVectors(ir_, parts), order);
  const llvm::Align align(static_cast<uint64_t>(size_of(kernel_.buffers[store.buffer].dtype)));
  Value* pointer = element_pointer(store.buffer, uniform_index(store.index));
  if (tail_mask_ == nullptr) {
    ir_.CreateAlignedStore(all, pointer, align);
  } else {
    Value* none = llvm::Constant::getNullValue(tail_mask_->getType());
    ir_.CreateMaskedStore(all, pointer, align, ir_.CreateShuffleVector(tail_mask_, none, lane_of));
  }
}

namespace {

/// What does not fill whole squares of words goes one by one, so all must.
bool turns_words(const std::vector<Val>& tiles, const loop::Axis& axis) {
  const std::optional<int64_t> extent = axis.extent.constant();
  return !tiles.empty() && extent && *extent % (2 * axis.lanes) == 0 &&
         std::ranges::all_of(tiles, [](Val val) { return size_of(val->dtype) == 2; });
}

}  // namespace

void Emitter::emit_unrolled_axis(const loop::Axis& axis, const loop::Stage& stage,
                                 const std::function<void()>& body) {
  std::vector<Val> tiles;
  if (axis.kind == loop::AxisKind::transpose) tiles = loop::turned_loads(stage);
  const bool in_words = turns_words(tiles, axis);
  const int steps = in_words ? 2 * axis.lanes : axis.lanes;
  Value* extent = index_value(axis.extent);
  Value* lanes = ir_.getInt64(static_cast<uint64_t>(steps));
  Value* whole = ir_.CreateSub(extent, ir_.CreateURem(extent, lanes));
  emit_loop(ir_.getInt64(0), whole, lanes, [&](Value* at) {
    symbols_[axis.index] = at;
    std::vector<std::vector<Value*>> loaded;
    for (Val val : tiles) loaded.push_back(load_tile(val, axis, in_words));
    for (int k = 0; k < steps; ++k) {
      levels_.emplace_back();
      symbols_[axis.index] = ir_.CreateAdd(at, ir_.getInt64(static_cast<uint64_t>(k)));
      for (size_t i = 0; i < tiles.size(); ++i)
        levels_.back().scalars[tiles[i]] = loaded[i][static_cast<size_t>(k)];
      body();
      levels_.pop_back();
    }
    symbols_.erase(axis.index);
  });
  emit_loop(whole, extent, ir_.getInt64(1), [&](Value* at) {
    symbols_[axis.index] = at;
    body();
    symbols_.erase(axis.index);
  });
}

}  // namespace tandem::codegen
