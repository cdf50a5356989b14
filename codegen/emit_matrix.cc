// Sums of products of bytes or of bf16 by tile registers (AMX). A tile holds 16 rows of 64 bytes;
// an instruction adds the products of 16 rows of packs with 16 columns of them, of bytes exactly,
// and as fast as eight to sixteen vector instructions. Approach: two tiles of rows and up to two of
// columns at a time, so that a loaded tile is used twice; rows that are left go by a tile that has
// just so many. Sums leave through memory, a row at a time, where the epilogue takes them as lanes.
// The same sums in another order: of integers, so the same bits.
//
// Tile registers, by number: sums 0 to 3 (two of each row of tiles), rows 4 and 5, columns 6 and 7.
// What they hold is a function of the thread's tile configuration, which a stage sets and releases.
//
// What follows the sums of a tile, on vector registers, is written between the steps of the next
// tile: a processor looks a few hundred instructions ahead, so that both run at the same time only
// if they stand beside each other. Where nothing follows but a store of whole tiles, they leave
// for where they are stored.
#include <algorithm>
#include <array>

#include "codegen/emit.h"
#include "loop/matrix.h"

namespace tandem::codegen {

using llvm::Value;
using loop::Axis;
using loop::kMatrixTile;
using loop::Stage;

namespace {

constexpr int kSums = 0;
constexpr int kRows = 4;
constexpr int kColumns = 6;
constexpr int64_t kRowBytes = 64;

/// The layout of Intel's palette 1: bytes of a row from byte 16 on, two each; rows from byte 48 on.
constexpr int64_t bytes_at(int tile) { return 16 + 2 * tile; }
constexpr int64_t rows_at(int tile) { return 48 + tile; }

std::array<uint8_t, 64> configuration(int packs) {
  std::array<uint8_t, 64> bytes{};
  bytes[0] = 1;
  for (int tile = 0; tile < 8; ++tile) {
    const bool is_rows = tile == kRows || tile == kRows + 1;
    bytes[static_cast<size_t>(bytes_at(tile))] =
        static_cast<uint8_t>(is_rows ? packs * 4 : kRowBytes);
    bytes[static_cast<size_t>(rows_at(tile))] =
        static_cast<uint8_t>(tile >= kColumns ? packs : kMatrixTile);
  }
  return bytes;
}

constexpr int sum_tile(int i, int j) { return kSums + i * 2 + j; }

/// The first loop of a sum: that over the numbers of a pack is none.
size_t first_loop(const Stage& stage) { return loop::multiplies_bf16(stage) ? 1 : 0; }

/// Of a sum, at least: a loop whose length is not known has one step or more.
int64_t steps_of(const Stage& stage) {
  int64_t steps = 1;
  for (size_t i = first_loop(stage); i < stage.reduce_axes.size(); ++i)
    steps *= stage.reduce_axes[i].extent.constant().value_or(1);
  return std::max<int64_t>(1, steps / stage.reduce_axes.back().lanes);
}

const Axis& lines_of(const Stage& stage) { return stage.axes[stage.axes.size() - 2]; }

}  // namespace

/// What a stage's tiles are made of while it is written.
struct Emitter::Matrix {
  loop::MatrixProduct product;
  Value* sums = nullptr;  // rows x lanes of 32 bits, as they leave the tiles; twice
  Value* row_bytes = nullptr;
  Value* pack_bytes = nullptr;
  int across = 1;  // tiles of columns
  bool has_lines = false;
};

Value* Emitter::make_room(llvm::Type* type, uint64_t count) {
  llvm::IRBuilder<>::InsertPoint here = ir_.saveIP();
  llvm::BasicBlock& entry = function_->getEntryBlock();
  ir_.SetInsertPoint(&entry, entry.begin());
  llvm::AllocaInst* room = ir_.CreateAlloca(type, ir_.getInt64(count), "room");
  room->setAlignment(llvm::Align(64));
  ir_.restoreIP(here);
  return room;
}

void Emitter::tile_instruction(llvm::Intrinsic::ID what, std::initializer_list<int> tiles,
                               std::initializer_list<Value*> others) {
  std::vector<Value*> args;
  for (int tile : tiles) args.push_back(ir_.getInt8(static_cast<uint8_t>(tile)));
  args.insert(args.end(), others);
  ir_.CreateIntrinsic(what, {}, args);
}

Value* Emitter::pitch(const Matrix& matrix) {
  return ir_.getInt64(static_cast<uint64_t>(matrix.product.pitch));
}

/// Lines but the last are as long as the pitch.
Value* Emitter::rows_of(const Stage& stage, const Matrix& matrix) {
  Value* rows = index_value(stage.axes.back().extent);
  if (!matrix.has_lines) return rows;
  Value* others = ir_.CreateSub(index_value(lines_of(stage).extent), ir_.getInt64(1));
  return ir_.CreateAdd(rows, ir_.CreateMul(others, pitch(matrix)));
}

/// Tiles of rows that a step multiplies.
struct Emitter::RowTiles {
  int count = 1;
  Value* are_two = nullptr;  // whether the second one is wanted; none: there is no second one
};

/// Whether tile registers sum the stage.
bool Emitter::goes_by_tiles(const Stage& stage) const {
  if (stage.axes.empty() || stage.axes.back().kind != loop::AxisKind::matrix) return false;
  return has_feature(loop::multiplies_bf16(stage) ? "amx-bf16" : "amx-int8");
}

/// Loads the configuration once for all panels of columns.
void Emitter::emit_matrix_stage(const Stage& stage) {
  const std::array<uint8_t, 64> bytes = configuration(stage.reduce_axes.back().lanes);
  tile_settings_ = make_room(ir_.getInt8Ty(), bytes.size());
  ir_.CreateStore(llvm::ConstantDataArray::get(context_, bytes), tile_settings_);
  tile_instruction(llvm::Intrinsic::x86_ldtilecfg, {}, {tile_settings_});
  for (size_t i = 0; i < first_loop(stage); ++i)
    symbols_[stage.reduce_axes[i].index] = ir_.getInt64(0);
  emit_nest(stage.axes, [&] { emit_points(stage, 0); });
  for (size_t i = 0; i < first_loop(stage); ++i) symbols_.erase(stage.reduce_axes[i].index);
  tile_instruction(llvm::Intrinsic::x86_tilerelease, {}, {});
}

/// The stage's rows: whole tiles two by two, then one after the other. Of several lines, the rows
/// of all, with what lies between them.
void Emitter::emit_matrix(const Stage& stage) {
  const Axis& axis = stage.axes.back();
  Matrix matrix;
  matrix.product = loop::matrix_product(kernel_, stage).product;
  matrix.has_lines = loop::has_lines(stage);
  matrix.across = lanes_ / kMatrixTile;
  matrix.sums = make_room(ir_.getInt32Ty(), uint64_t{2} * static_cast<uint64_t>(axis.lanes) *
                                                static_cast<uint64_t>(lanes_));
  Value* bytes = ir_.getInt64(static_cast<uint64_t>(size_of(matrix.product.rows->dtype)));
  matrix.row_bytes = ir_.CreateMul(uniform_index(matrix.product.row_stride), bytes);
  matrix.pack_bytes = ir_.CreateMul(uniform_index(matrix.product.pack_stride), bytes);
  hoist(stage);
  Value* extent = rows_of(stage, matrix);
  Value* height = ir_.getInt64(static_cast<uint64_t>(axis.lanes));
  Value* most = matrix.product.has_spare_rows
                    ? ir_.CreateAdd(extent, ir_.CreateSub(height, ir_.getInt64(1)))
                    : extent;
  Value* whole = ir_.CreateAnd(most, ir_.getInt64(-static_cast<int64_t>(axis.lanes)));
  if (const std::optional<sym::Expr> stride = stride_of_stored_tiles(stage, matrix))
    emit_loop(ir_.getInt64(0), whole, height,
              [&](Value* first) { emit_stored_tiles(stage, matrix, first, *stride); });
  else
    emit_loop(ir_.getInt64(0), ir_.CreateAdd(whole, height), height,
              [&](Value* first) { emit_tiles_beside(stage, matrix, first, {whole, extent}); });
  if (matrix.product.has_spare_rows) return;
  Value* rest = ir_.CreateSub(extent, whole);
  emit_if(ir_.CreateICmpSGT(rest, ir_.getInt64(0)),
          [&] { emit_last_rows(stage, matrix, whole, rest); });
}

/// From row to row where all that follows the sums is that they are stored, whole tiles side by
/// side: these go there from the tile registers.
std::optional<sym::Expr> Emitter::stride_of_stored_tiles(const Stage& stage,
                                                         const Matrix& matrix) const {
  const Axis& rows = stage.axes.back();
  const bool are_wanted = !matrix.product.has_spare_rows ||
                          sym::known_divisible(rows.extent, static_cast<int64_t>(rows.lanes));
  if (stage.after.size() != 1 || matrix.has_lines || !are_wanted || tail_mask_ != nullptr)
    return std::nullopt;
  const loop::Store& store = stage.after[0];
  const bool is_plain = store.value->opcode == loop::Opcode::local && !store.accumulate &&
                        store.value->slot == stage.reductions[0].first_local;
  if (!is_plain) return std::nullopt;
  const std::optional<sym::Affine> lanes = sym::affine_in(store.index, vector_axis_);
  const std::optional<sym::Affine> down = sym::affine_in(store.index, rows.index);
  if (!lanes || lanes->coefficient != sym::Expr(1) || !down) return std::nullopt;
  return down->coefficient;
}

/// Whole tiles from row `first` on, which leave the registers for where the sums are stored.
void Emitter::emit_stored_tiles(const Stage& stage, const Matrix& matrix, Value* first,
                                sym::Expr stride) {
  const Axis& rows = stage.axes.back();
  const RowTiles tiles{rows.lanes / kMatrixTile,
                       rows.lanes == kMatrixTile ? nullptr : ir_.getTrue()};
  clear_tiles(matrix, tiles.count);
  emit_matrix_steps(stage, first_loop(stage), ir_.getInt64(0), [&](Value*) {
    for (const loop::Prefetch& hint : stage.prefetches) emit_prefetch(hint, rows, first);
    add_tiles(stage, matrix, first, tiles);
  });
  const loop::Store& store = stage.after[0];
  symbols_[rows.index] = first;
  Value* sums = element_pointer(store.buffer, uniform_index(store.index));
  symbols_.erase(rows.index);
  store_tiles(matrix, tiles.count, sums, ir_.CreateMul(uniform_index(stride), ir_.getInt64(4)));
}

/// What is left, by one tile or by two, the last of which has just so many rows.
void Emitter::emit_last_rows(const Stage& stage, const Matrix& matrix, Value* first, Value* rest) {
  Value* tile = ir_.getInt64(kMatrixTile);
  Value* are_two = ir_.CreateICmpSGT(rest, tile);
  emit_if(are_two, [&] {
    set_rows(1, ir_.CreateSub(rest, tile));
    emit_tiles(stage, matrix, first, 2);
    set_rows(1, tile);
  });
  emit_if(ir_.CreateNot(are_two), [&] {
    set_rows(0, rest);
    emit_tiles(stage, matrix, first, 1);
    set_rows(0, tile);
  });
  emit_matrix_rows(stage, matrix, first, {ir_.getInt64(0), rest}, matrix.sums);
}

/// Tiles from row `first` on, if there are any, and what follows the sums of those before. `ends`:
/// of the rows of all tiles, and of those that are wanted.
void Emitter::emit_tiles_beside(const Stage& stage, const Matrix& matrix, Value* first,
                                std::array<Value*, 2> ends) {
  const Axis& axis = stage.axes.back();
  const int64_t height = axis.lanes;
  const int64_t steps = steps_of(stage);
  const int64_t each = (height + steps - 1) / steps;  // rows that follow a step
  const RowTiles tiles{axis.lanes / kMatrixTile, needs_two(matrix, axis, first, ends[1])};
  Value* are_rows = ir_.CreateICmpSGT(first, ir_.getInt64(0));
  Value* are_tiles = ir_.CreateICmpSLT(first, ends[0]);
  Value* before = ir_.CreateSub(first, ir_.getInt64(static_cast<uint64_t>(height)));
  Value* last = ir_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, ir_.CreateSub(ends[1], before),
                                          ir_.getInt64(static_cast<uint64_t>(height)));
  last = ir_.CreateSelect(are_rows, last, ir_.getInt64(0));
  emit_if(are_tiles, [&] { clear_tiles(matrix, tiles.count); });
  emit_matrix_steps(stage, first_loop(stage), ir_.getInt64(0), [&](Value* step) {
    emit_if(are_tiles, [&] {
      for (const loop::Prefetch& hint : stage.prefetches) emit_prefetch(hint, axis, first);
      add_tiles(stage, matrix, first, tiles);
    });
    Value* from = ir_.CreateMul(step, ir_.getInt64(static_cast<uint64_t>(each)));
    Value* to = ir_.CreateAdd(from, ir_.getInt64(static_cast<uint64_t>(each)));
    to = ir_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, to, last);
    emit_matrix_rows(stage, matrix, before, {from, to}, sums_of(matrix, axis, before));
  });
  emit_if(are_tiles, [&] { store_tiles(matrix, tiles.count, sums_of(matrix, axis, first)); });
}

/// Whether the second tile of rows has any that is wanted; nothing where there is no second one.
Value* Emitter::needs_two(const Matrix& matrix, const Axis& axis, Value* first, Value* end) {
  if (axis.lanes == kMatrixTile) return nullptr;
  if (!matrix.product.has_spare_rows) return ir_.getTrue();
  return ir_.CreateICmpSLT(ir_.CreateAdd(first, ir_.getInt64(kMatrixTile)), end);
}

/// One place or the other, in turn.
Value* Emitter::sums_of(const Matrix& matrix, const Axis& axis, Value* first) {
  Value* turn = ir_.CreateAnd(first, ir_.getInt64(static_cast<uint64_t>(axis.lanes)));
  return ir_.CreateGEP(ir_.getInt32Ty(), matrix.sums,
                       ir_.CreateMul(turn, ir_.getInt64(static_cast<uint64_t>(lanes_))));
}

void Emitter::emit_if(Value* condition, const std::function<void()>& body) {
  llvm::BasicBlock* then = llvm::BasicBlock::Create(context_, "then", function_);
  llvm::BasicBlock* done = llvm::BasicBlock::Create(context_, "done", function_);
  ir_.CreateCondBr(condition, then, done);
  ir_.SetInsertPoint(then);
  levels_.emplace_back();
  body();
  levels_.pop_back();
  ir_.CreateBr(done);
  ir_.SetInsertPoint(done);
}

/// Of tile number `down` of rows, and of its sums.
void Emitter::set_rows(int down, Value* count) {
  for (int tile : {sum_tile(down, 0), sum_tile(down, 1), kRows + down})
    ir_.CreateStore(ir_.CreateTrunc(count, ir_.getInt8Ty()),
                    ir_.CreateConstGEP1_64(ir_.getInt8Ty(), tile_settings_,
                                           static_cast<uint64_t>(rows_at(tile))));
  tile_instruction(llvm::Intrinsic::x86_ldtilecfg, {}, {tile_settings_});
}

/// Sums of the rows from `first` on, by so many tiles, to the first place for sums.
void Emitter::emit_tiles(const Stage& stage, const Matrix& matrix, Value* first, int down) {
  const RowTiles tiles{down, down == 1 ? nullptr : ir_.getTrue()};
  clear_tiles(matrix, down);
  emit_matrix_steps(stage, first_loop(stage), ir_.getInt64(0),
                    [&](Value*) { add_tiles(stage, matrix, first, tiles); });
  store_tiles(matrix, down, matrix.sums);
}

void Emitter::clear_tiles(const Matrix& matrix, int down) {
  for (int i = 0; i < down; ++i)
    for (int j = 0; j < matrix.across; ++j)
      tile_instruction(llvm::Intrinsic::x86_tilezero, {sum_tile(i, j)}, {});
}

/// To rows of sums that are so far apart; null: side by side.
void Emitter::store_tiles(const Matrix& matrix, int down, Value* sums, Value* row_bytes) {
  if (row_bytes == nullptr) row_bytes = ir_.getInt64(static_cast<uint64_t>(lanes_) * 4);
  for (int i = 0; i < down; ++i) {
    Value* below = ir_.CreateMul(row_bytes, ir_.getInt64(static_cast<uint64_t>(i) * kMatrixTile));
    Value* row = ir_.CreateGEP(ir_.getInt8Ty(), sums, below);
    for (int j = 0; j < matrix.across; ++j) {
      Value* to =
          ir_.CreateConstGEP1_64(ir_.getInt32Ty(), row, static_cast<uint64_t>(j) * kMatrixTile);
      tile_instruction(llvm::Intrinsic::x86_tilestored64, {sum_tile(i, j)}, {to, row_bytes});
    }
  }
}

/// The loops of the reduction from axis number `axis` on; the last goes by tiles. `before`: steps
/// of the axes so far. `body` gets the number of its step.
void Emitter::emit_matrix_steps(const Stage& stage, size_t axis, Value* before,
                                const std::function<void(Value*)>& body) {
  const Axis& each = stage.reduce_axes[axis];
  const bool is_last = axis + 1 == stage.reduce_axes.size();
  const uint64_t step = is_last ? static_cast<uint64_t>(each.lanes) : 1;
  Value* extent = index_value(each.extent);
  before = ir_.CreateMul(before, ir_.CreateUDiv(extent, ir_.getInt64(step)));
  emit_loop(ir_.getInt64(0), extent, ir_.getInt64(step), [&](Value* at) {
    symbols_[each.index] = at;
    Value* number = ir_.CreateAdd(before, ir_.CreateUDiv(at, ir_.getInt64(step)));
    if (is_last)
      body(number);
    else
      emit_matrix_steps(stage, axis + 1, number, body);
    symbols_.erase(each.index);
  });
}

/// One step: tiles of both factors, and all products of them.
void Emitter::add_tiles(const Stage& stage, const Matrix& matrix, Value* first,
                        const RowTiles& tiles) {
  const loop::MatrixProduct& product = matrix.product;
  Value* columns = element_pointer(*product.columns, uniform_index(product.columns->index));
  for (int j = 0; j < matrix.across; ++j) {
    Value* from =
        ir_.CreateConstGEP1_64(ir_.getInt32Ty(), columns, static_cast<uint64_t>(j) * kMatrixTile);
    tile_instruction(llvm::Intrinsic::x86_tileloadd64, {kColumns + j}, {from, matrix.pack_bytes});
  }
  add_row_tile(stage, matrix, first, 0);
  if (tiles.are_two == nullptr) return;
  emit_if(tiles.are_two, [&] { add_row_tile(stage, matrix, first, 1); });
}

/// All products of tile number `down` of rows.
void Emitter::add_row_tile(const Stage& stage, const Matrix& matrix, Value* first, int down) {
  const sym::Expr row = stage.axes.back().index;
  const loop::MatrixProduct& product = matrix.product;
  // The pitch makes any row one of the first line.
  if (matrix.has_lines) symbols_[lines_of(stage).index] = ir_.getInt64(0);
  symbols_[row] = ir_.CreateAdd(first, ir_.getInt64(static_cast<uint64_t>(down) * kMatrixTile));
  Value* from = element_pointer(*product.rows, uniform_index(product.rows->index));
  symbols_.erase(row);
  if (matrix.has_lines) symbols_.erase(lines_of(stage).index);
  tile_instruction(llvm::Intrinsic::x86_tileloadd64, {kRows + down}, {from, matrix.row_bytes});
  llvm::Intrinsic::ID multiply =
      product.signed_rows ? llvm::Intrinsic::x86_tdpbsud : llvm::Intrinsic::x86_tdpbusd;
  if (product.pack_elements == 2) multiply = llvm::Intrinsic::x86_tdpbf16ps;
  for (int j = 0; j < matrix.across; ++j)
    tile_instruction(multiply, {sum_tile(down, j), kRows + down, kColumns + j}, {});
}

/// What follows the sums, a row of lanes at a time: of a tile of rows from `first` on, those from
/// one number to another.
void Emitter::emit_matrix_rows(const Stage& stage, const Matrix& matrix, Value* first,
                               std::array<Value*, 2> numbers, Value* sums) {
  const Axis& axis = stage.axes.back();
  emit_loop(numbers[0], numbers[1], ir_.getInt64(1), [&](Value* number) {
    Value* row = ir_.CreateAdd(first, number);
    Value* from = ir_.CreateGEP(ir_.getInt32Ty(), sums,
                                ir_.CreateMul(number, ir_.getInt64(static_cast<uint64_t>(lanes_))));
    if (!matrix.has_lines) return emit_matrix_row(stage, row, from);
    symbols_[lines_of(stage).index] = ir_.CreateUDiv(row, pitch(matrix));
    row = ir_.CreateURem(row, pitch(matrix));
    emit_if(ir_.CreateICmpULT(row, index_value(axis.extent)),
            [&] { emit_matrix_row(stage, row, from); });
    symbols_.erase(lines_of(stage).index);
  });
}

void Emitter::emit_matrix_row(const Stage& stage, Value* row, Value* sums) {
  const sym::Expr index = stage.axes.back().index;
  symbols_[index] = row;
  llvm::Type* type = type_of(stage.reductions[0].inputs[0]->dtype);
  locals_[stage.reductions[0].first_local] =
      ir_.CreateAlignedLoad(with_lanes(type), sums, llvm::Align(64));
  emit_after(stage);
  forget_locals(stage);
  symbols_.erase(index);
}

}  // namespace tandem::codegen
