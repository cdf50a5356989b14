// Spelling one kernel as LLVM IR. Internal to this room.
#pragma once

#include <array>
#include <functional>
#include <unordered_map>
#include <vector>

#include "codegen/llvm_headers.h"
#include "loop/kernel.h"

namespace tandem::codegen {

/// Values known at one nesting level; inner levels see outer ones.
struct Level {
  std::unordered_map<loop::Val, llvm::Value*> scalars;
};

/// State while a kernel's function is written: where to write, what is in scope, which lanes are
/// active.
class Emitter {
 public:
  Emitter(llvm::Module& module, const loop::Kernel& kernel);
  void emit();  // adds the function to the module

 private:
  using IR = llvm::IRBuilder<>;

  // --- kernel and stages (emit_kernel.cc) ---
  void emit_prologue();
  void emit_outer(size_t axis);
  bool copies_in_place(const loop::Stage& stage) const;
  void emit_stage(const loop::Stage& stage);
  void emit_stage_loops(const loop::Stage& stage);
  void emit_if(llvm::Value* condition, const char* name, const std::function<void()>& body);
  void emit_points(const loop::Stage& stage, size_t axis);
  void emit_at_point(const loop::Stage& stage);
  void emit_nest(const std::vector<loop::Axis>& axes, const std::function<void()>& body);
  void emit_reduce(const loop::Stage& stage, size_t axis, const std::function<void()>& body);
  void emit_written_out(const loop::Axis& axis, const std::function<void()>& body);
  void emit_body(const loop::Stage& stage);
  void emit_after(const loop::Stage& stage);
  void emit_axis(const loop::Axis& axis, const loop::Stage& stage,
                 const std::function<void()>& body);
  void emit_vector_axis(const loop::Axis& axis, const std::function<void()>& body, bool in_blocks);
  void emit_steps(llvm::Value* end, llvm::Value* step, bool in_blocks,
                  const std::function<void(llvm::Value*)>& body);
  void emit_unrolled_axis(const loop::Axis& axis, const loop::Stage& stage,
                          const std::function<void()>& body);
  llvm::MDNode* never_unrolled();
  void emit_return(int64_t status);
  bool keeps_loops_ = false;  // the loops are few steps of a register tile
  void emit_loop(llvm::Value* begin, llvm::Value* end, llvm::Value* step,
                 const std::function<void(llvm::Value*)>& body);
  void emit_stores(const std::vector<loop::Store>& stores);
  std::vector<llvm::Value*> values_of(const std::vector<loop::Store>& stores);
  void store_all(const std::vector<loop::Store>& stores, const std::vector<llvm::Value*>& values);
  void hoist(const loop::Stage& stage);
  bool may_be_empty(const loop::Stage& stage, const loop::Buffer& buffer) const;
  bool keeps(const loop::Stage& stage, int32_t slot) const;

  // --- reductions (emit_reduction.cc) ---
  struct Accumulator {
    const loop::Reduction* reduction;
    std::vector<llvm::Value*> slots;  // allocas
    bool lanes = false;               // one value a lane, folded at the end
    llvm::Value* total = nullptr;     // of a sum in blocks: alloca
  };
  void begin_reductions(const loop::Stage& stage);
  void forget_locals(const loop::Stage& stage);
  void forget_running_values(const loop::Stage& stage);
  void combine_reductions();
  std::vector<llvm::Value*> running_lanes(const loop::Reduction& reduction,
                                          std::vector<llvm::Value*> inputs,
                                          const std::vector<llvm::Value*>& before);
  void end_block_of_sums();
  llvm::Value* make_slot(llvm::Value* start);
  void finish_reductions();
  std::vector<llvm::Value*> combine(loop::Combiner combiner, DType dtype,
                                    const std::vector<llvm::Value*>& a,
                                    const std::vector<llvm::Value*>& b);
  llvm::Value* log_add_exp(DType dtype, llvm::Value* a, llvm::Value* b);
  // --- packed integers (emit_packed.cc) ---
  llvm::Value* pack(const loop::Scalar& val, const std::vector<llvm::Value*>& parts);
  llvm::Value* packed_product(loop::Combiner combiner, llvm::Value* a, llvm::Value* b,
                              llvm::Value* sum);
  llvm::Value* add_bf16_products(llvm::Value* a, llvm::Value* b, llvm::Value* sum);
  llvm::Value* product_by_registers(loop::Combiner combiner, llvm::Value* a, llvm::Value* b,
                                    llvm::Value* sum);
  bool has_feature(std::string_view name) const;
  llvm::Value* multiply_add(DType dtype, llvm::Value* a, llvm::Value* b, llvm::Value* c);
  llvm::Value* identity(loop::Combiner combiner, DType dtype, size_t part, bool lanes);
  llvm::Value* prefer(loop::Combiner combiner, DType dtype, llvm::Value* a, llvm::Value* b);

  // --- scalars (emit_scalar.cc) ---
  llvm::Value* value(loop::Val val);      // uniform scalar or vector of lanes
  llvm::Value* as_lanes(llvm::Value* v);  // splat when uniform and lanes are active
  llvm::Value* compute(loop::Val val);
  llvm::Value* unary(loop::Val val, llvm::Value* x);
  llvm::Value* binary(loop::Val val, llvm::Value* a, llvm::Value* b);
  llvm::Value* fma(DType dtype, const std::vector<llvm::Value*>& args);
  llvm::Value* compare(loop::Val val, llvm::Value* a, llvm::Value* b);
  llvm::Value* compare_positions(loop::Val val);
  llvm::Value* cast(llvm::Value* x, DType from, DType to);
  // Quantization in fewer instructions (emit_quantize.cc).
  llvm::Value* quantized(loop::Val cast);
  llvm::Value* scaled_number(loop::Val val, double low, double high);
  llvm::Value* saturated_byte(llvm::Value* x, int64_t zero);
  llvm::Value* rounded_by_shift(llvm::Value* x, DType dtype, int64_t zero);
  bool narrows_at_once(llvm::Value* x) const;
  llvm::Value* divide_integers(llvm::Value* a, llvm::Value* b, bool is_signed, bool floor);
  llvm::Value* int_power(llvm::Value* base, llvm::Value* exponent, bool is_signed);
  llvm::Value* extremum(llvm::Value* a, llvm::Value* b, DType dtype, bool max);
  llvm::Value* per_lane_call(const char* name, llvm::Value* a, llvm::Value* b);
  llvm::Value* check(loop::Val val);
  llvm::Value* philox(loop::Val val);
  std::array<llvm::Value*, 4> philox_block(llvm::Value* seed, llvm::Value* stream,
                                           llvm::Value* counter);
  llvm::Value* constant(loop::Val val);
  llvm::Value* splat_like(llvm::Value* scalar, llvm::Value* like);

  // --- register tiles (emit_rows.cc) ---
  void emit_row_tiles(const loop::Stage& stage);
  /// A tile of so many rows, whose steps may ask for memory.
  void emit_rows(const loop::Stage& stage, llvm::Value* first, int count, bool asks);
  void emit_prefetch(const loop::Prefetch& hint, const loop::Axis& rows, llvm::Value* first);
  void emit_prefetches(const loop::Stage& stage, size_t loops);
  llvm::Value* asking_row_ = nullptr;  // first one of a tile whose steps ask for memory

  // --- tile registers (emit_matrix.cc) ---
  struct Matrix;
  struct RowTiles;
  bool goes_by_tiles(const loop::Stage& stage) const;
  void emit_matrix_stage(const loop::Stage& stage);
  void emit_matrix(const loop::Stage& stage);
  std::optional<sym::Expr> stride_of_stored_tiles(const loop::Stage& stage,
                                                  const Matrix& matrix) const;
  void emit_stored_tiles(const loop::Stage& stage, const Matrix& matrix, llvm::Value* first,
                         sym::Expr stride);
  void emit_tiles_beside(const loop::Stage& stage, const Matrix& matrix, llvm::Value* first,
                         std::array<llvm::Value*, 2> ends);
  void emit_tiles(const loop::Stage& stage, const Matrix& matrix, llvm::Value* first, int down);
  void emit_last_rows(const loop::Stage& stage, const Matrix& matrix, llvm::Value* first,
                      llvm::Value* rest);
  void set_rows(int down, llvm::Value* count);
  void clear_tiles(const Matrix& matrix, int down);
  llvm::Value* needs_two(const Matrix& matrix, const loop::Axis& axis, llvm::Value* first,
                         llvm::Value* end);
  void add_tiles(const loop::Stage& stage, const Matrix& matrix, llvm::Value* first,
                 const RowTiles& tiles);
  void add_row_tile(const loop::Stage& stage, const Matrix& matrix, llvm::Value* first, int down);
  void store_tiles(const Matrix& matrix, int down, llvm::Value* sums,
                   llvm::Value* row_bytes = nullptr);
  llvm::Value* sums_of(const Matrix& matrix, const loop::Axis& axis, llvm::Value* first);
  void emit_if(llvm::Value* condition, const std::function<void()>& body);
  void emit_matrix_steps(const loop::Stage& stage, size_t axis, llvm::Value* before,
                         const std::function<void(llvm::Value*)>& body);
  void emit_matrix_rows(const loop::Stage& stage, const Matrix& matrix, llvm::Value* first,
                        std::array<llvm::Value*, 2> numbers, llvm::Value* sums);
  void emit_matrix_row(const loop::Stage& stage, llvm::Value* row, llvm::Value* sums);
  llvm::Value* pitch(const Matrix& matrix);
  llvm::Value* rows_of(const loop::Stage& stage, const Matrix& matrix);
  void tile_instruction(llvm::Intrinsic::ID what, std::initializer_list<int> tiles,
                        std::initializer_list<llvm::Value*> others);
  llvm::Value* make_room(llvm::Type* type, uint64_t count);

  // --- square and interleaved tiles (emit_tile.cc) ---
  void emit_interleaved_axis(const loop::Axis& axis, const loop::Stage& stage);
  void store_interleaved(const loop::Store& store, const std::vector<llvm::Value*>& parts);
  std::vector<llvm::Value*> load_tile(loop::Val val, const loop::Axis& axis, bool in_words);
  std::vector<llvm::Value*> load_words(loop::Val val, int side);
  std::vector<llvm::Value*> load_square(loop::Val val, llvm::Type* type, int side);
  void swap_blocks(std::vector<llvm::Value*>& rows, int half);
  std::vector<llvm::Value*> interleaved(const std::vector<llvm::Value*>& rows, int square);
  void emit_turned_pairs(const loop::Stage& stage);
  /// Whether as many lanes as the axis has points a step are active, all of them.
  bool has_all_lanes(const loop::Axis& axis) const {
    return lanes_ == axis.lanes && tail_mask_ == nullptr;
  }

  // --- memory (emit_memory.cc) ---
  struct Address {
    llvm::Value* index =
        nullptr;  // element number: uniform, of lane 0 (contiguous, strided), or a vector
    enum class Shape : uint8_t { uniform, contiguous, strided, scattered } shape = Shape::uniform;
    int stride = 1;
  };
  Address address(sym::Expr index, bool may_stride);
  void ask_ahead(const loop::Scalar& load, llvm::Value* pointer, int stride, bool is_masked);
  bool has_mask_registers() const;
  llvm::Value* load_first(llvm::FixedVectorType* type, llvm::Value* first, llvm::Align align,
                          unsigned count);
  void store_first(llvm::Value* v, llvm::Value* first, llvm::Align align, unsigned count);
  llvm::Value* with_part(llvm::Value* whole, llvm::Value* part, unsigned at);
  llvm::Value* part_of(llvm::Value* whole, unsigned at, unsigned lanes);
  void masked_store(llvm::Value* raw, llvm::Value* pointer, llvm::Align align, llvm::Value* mask);
  llvm::Value* or_zeros(llvm::Value* mask, llvm::Value* pointer);
  llvm::Value* masked_load(llvm::Type* lanes_type, llvm::Value* first, llvm::Align align,
                           llvm::Value* mask);
  llvm::Value* hidden_mask(llvm::Value* mask, bool is_double);
  llvm::Value* backward_load(llvm::Type* type, llvm::Value* first, llvm::Align align,
                             llvm::Value* enabled);
  llvm::Value* strided_load(llvm::Type* type, llvm::Value* first, llvm::Align align, int stride,
                            llvm::Value* enabled);
  llvm::Value* index_value(sym::Expr e);    // i64, uniform or vector
  llvm::Value* uniform_index(sym::Expr e);  // i64 with the vector axis at lane 0
  bool varies(sym::Expr e) const;           // over lanes
  bool varies(loop::Val val) const;
  llvm::Value* load(loop::Val val);
  void store(const loop::Store& store, llvm::Value* v);
  void store_past_caches(llvm::Value* raw, llvm::Value* pointer);
  llvm::Value* from_memory(llvm::Value* raw, DType dtype);
  llvm::Value* to_memory(llvm::Value* v, DType dtype);
  llvm::Value* active(llvm::Value* mask);  // mask and the tail's lanes; null when all are
  llvm::Value* of_buffer(llvm::Value* access, int32_t buffer);
  llvm::Value* element_pointer(int32_t buffer, llvm::Value* index);
  llvm::Value* element_pointer(const loop::Scalar& load, llvm::Value* index);

  llvm::Type* type_of(DType dtype);
  llvm::Type* memory_type(DType dtype);
  llvm::Type* with_lanes(llvm::Type* type) const;
  bool has_lanes(llvm::Value* v) const { return v->getType()->isVectorTy(); }

  llvm::Module& module_;
  const loop::Kernel& kernel_;
  llvm::LLVMContext& context_;
  IR ir_;
  llvm::Function* function_ = nullptr;
  std::vector<llvm::Value*> buffers_;
  llvm::MDNode* in_scratch_ = nullptr;  // the scope of accesses to it
  std::unordered_map<sym::Expr, llvm::Value*, sym::ExprHash>
      symbols_;  // axes (lane 0 of the vector axis), sizes
  std::vector<Level> levels_;
  std::vector<Accumulator> accumulators_;
  std::unordered_map<int32_t, llvm::Value*> locals_;
  sym::Expr vector_axis_ = 0;  // symbol of the axis whose lanes are active; constant when none
  const loop::Axis* vector_marks_ = nullptr;  // that axis
  int lanes_ = 1;
  llvm::Value* tail_mask_ = nullptr;
  llvm::Value* tile_settings_ = nullptr;  // 64 bytes: of a stage of tile registers
};

}  // namespace tandem::codegen
