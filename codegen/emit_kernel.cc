// The frame of a kernel: task loop, stages, axes. Every axis of lanes becomes an unmasked main loop
// and at most one masked tail. A value is written at the outermost level where all it needs is
// known, so loop invariants never sit in inner loops whatever LLVM can prove about memory.
#include <fmt/format.h>

#include "base/check.h"
#include "codegen/emit.h"
#include "loop/row_tiles.h"
#include "loop/stage.h"
#include "loop/walk.h"

namespace tandem::codegen {

using llvm::BasicBlock;
using llvm::Value;
using loop::Axis;
using loop::AxisKind;
using loop::Stage;
using sym::Expr;

Emitter::Emitter(llvm::Module& module, const loop::Kernel& kernel)
    : module_(module), kernel_(kernel), context_(module.getContext()), ir_(module.getContext()) {}

void Emitter::emit() {
  llvm::Type* i64 = ir_.getInt64Ty();
  llvm::Type* ptr = ir_.getPtrTy();
  llvm::FunctionType* type = llvm::FunctionType::get(i64, {ptr, ptr, i64, i64, ptr}, false);
  function_ = llvm::Function::Create(type, llvm::Function::ExternalLinkage, kernel_.name, module_);
  function_->addFnAttr(llvm::Attribute::NoUnwind);
  // Vector math asks the function which instructions it may use.
  function_->addFnAttr("target-features", kernel_.target);
  ir_.SetInsertPoint(BasicBlock::Create(context_, "entry", function_));
  levels_.emplace_back();
  emit_prologue();
  emit_loop(function_->getArg(2), function_->getArg(3), ir_.getInt64(1), [&](Value* task) {
    // Task number to axes, last fastest.
    for (size_t i = kernel_.outer.size(); i-- > 0;) {
      const Axis& axis = kernel_.outer[i];
      if (axis.kind != AxisKind::task) continue;
      bool first = i == 0;
      Value* extent = index_value(axis.extent);
      symbols_[axis.index] = first ? task : ir_.CreateURem(task, extent);
      if (!first) task = ir_.CreateUDiv(task, extent);
    }
    emit_outer(0);
  });
  emit_return(0);
}

/// Stores past the caches are not ordered with what tells other threads that we are done.
void Emitter::emit_return(int64_t status) {
  bool goes_past = false;
  for (const Stage& stage : kernel_.stages)
    loop::for_each_store(stage, [&](const loop::Store& store) { goes_past |= store.nontemporal; });
  if (goes_past) ir_.CreateIntrinsic(llvm::Intrinsic::x86_sse_sfence, {}, {});
  ir_.CreateRet(ir_.getInt64(static_cast<uint64_t>(status)));
}

void Emitter::emit_prologue() {
  for (size_t i = 0; i < kernel_.sizes.size(); ++i) {
    Value* slot = ir_.CreateConstInBoundsGEP1_64(ir_.getInt64Ty(), function_->getArg(1), i);
    symbols_[kernel_.sizes[i]] = ir_.CreateLoad(ir_.getInt64Ty(), slot, "n");
  }
  uint64_t argument = 0;
  Value* scratch = function_->getArg(4);
  for (const loop::Buffer& buffer : kernel_.buffers) {
    if (buffer.access != loop::Access::scratch) {
      Value* slot =
          ir_.CreateConstInBoundsGEP1_64(ir_.getPtrTy(), function_->getArg(0), argument++);
      buffers_.push_back(ir_.CreateLoad(ir_.getPtrTy(), slot, "b"));
      continue;
    }
    buffers_.push_back(scratch);
    Expr bytes = sym::ceil_div(buffer.elements * size_of(buffer.dtype), 64) * 64;
    scratch = ir_.CreateGEP(ir_.getInt8Ty(), scratch, index_value(bytes));
  }
}

void Emitter::emit_loop(Value* begin, Value* end, Value* step,
                        const std::function<void(Value*)>& body) {
  BasicBlock* before = ir_.GetInsertBlock();
  BasicBlock* loop = BasicBlock::Create(context_, "loop", function_);
  BasicBlock* done = BasicBlock::Create(context_, "done", function_);
  ir_.CreateCondBr(ir_.CreateICmpSLT(begin, end), loop, done);
  ir_.SetInsertPoint(loop);
  llvm::PHINode* at = ir_.CreatePHI(ir_.getInt64Ty(), 2, "i");
  at->addIncoming(begin, before);
  levels_.emplace_back();
  body(at);
  levels_.pop_back();
  Value* next = ir_.CreateNSWAdd(at, step);
  at->addIncoming(next, ir_.GetInsertBlock());
  llvm::Instruction* back = ir_.CreateCondBr(ir_.CreateICmpSLT(next, end), loop, done);
  if (keeps_loops_) back->setMetadata(llvm::LLVMContext::MD_loop, never_unrolled());
  ir_.SetInsertPoint(done);
}

llvm::MDNode* Emitter::never_unrolled() {
  llvm::Metadata* how = llvm::MDString::get(context_, "llvm.loop.unroll.disable");
  llvm::MDNode* id =
      llvm::MDNode::getDistinct(context_, {nullptr, llvm::MDNode::get(context_, {how})});
  id->replaceOperandWith(0, id);
  return id;
}

/// The outer axes from `axis` on that are loops of a task, around the stages.
void Emitter::emit_outer(size_t axis) {
  while (axis < kernel_.outer.size() && kernel_.outer[axis].kind == AxisKind::task) ++axis;
  if (axis == kernel_.outer.size()) {
    for (const Stage& stage : kernel_.stages) emit_stage(stage);
    return;
  }
  const Axis& loop = kernel_.outer[axis];
  TD_CHECK(loop.kind == AxisKind::serial) << "outer axes are tasks or serial";
  emit_loop(ir_.getInt64(0), index_value(loop.extent), ir_.getInt64(1), [&](Value* at) {
    symbols_[loop.index] = at;
    emit_outer(axis + 1);
    symbols_.erase(loop.index);
  });
}

/// Its loads and stores are at one address: nothing where the buffers are one memory.
bool Emitter::copies_in_place(const Stage& stage) const {
  if (stage.body.size() != 1 || !stage.reductions.empty() || !stage.after.empty()) return false;
  const loop::Store& store = stage.body[0];
  const loop::Val from = store.value;
  return !store.accumulate && from->opcode == loop::Opcode::load && from->args.empty() &&
         from->index == store.index &&
         from->dtype == kernel_.buffers[static_cast<size_t>(store.buffer)].dtype;
}

/// A result that took over the memory of what it begins as has that already.
void Emitter::emit_stage(const Stage& stage) {
  if (!copies_in_place(stage)) return emit_stage_loops(stage);
  const loop::Store& store = stage.body[0];
  Value* to = ir_.CreatePtrToInt(buffers_[static_cast<size_t>(store.buffer)], ir_.getInt64Ty());
  Value* from = ir_.CreatePtrToInt(buffers_[store.value->slot], ir_.getInt64Ty());
  emit_if(ir_.CreateICmpNE(to, from), "copies", [&] { emit_stage_loops(stage); });
}

void Emitter::emit_stage_loops(const Stage& stage) {
  hoist(stage);
  if (goes_by_tiles(stage)) return emit_matrix_stage(stage);
  emit_nest(stage.axes, [&] { emit_points(stage, 0); });
}

/// `body` writes the loops of the axes. Where an inner one is known to be empty they do not begin.
void Emitter::emit_nest(const std::vector<Axis>& axes, const std::function<void()>& body) {
  Value* has_points = nullptr;
  for (const Expr& extent : loop::extents_ahead(axes)) {
    if (extent.is_constant()) return;
    Value* positive = ir_.CreateICmpSGT(index_value(extent), ir_.getInt64(0));
    has_points = has_points == nullptr ? positive : ir_.CreateAnd(has_points, positive);
  }
  if (has_points == nullptr) return body();
  emit_if(has_points, "nest", body);
}

void Emitter::emit_if(Value* condition, const char* name, const std::function<void()>& body) {
  BasicBlock* then = BasicBlock::Create(context_, name, function_);
  BasicBlock* done = BasicBlock::Create(context_, "done", function_);
  ir_.CreateCondBr(condition, then, done);
  ir_.SetInsertPoint(then);
  levels_.emplace_back();
  body();
  levels_.pop_back();
  ir_.CreateBr(done);
  ir_.SetInsertPoint(done);
}

void Emitter::emit_points(const Stage& stage, size_t axis) {
  if (axis == stage.axes.size()) return emit_at_point(stage);
  bool is_last = axis + 1 == stage.axes.size();
  bool rows = is_last && stage.axes[axis].kind == AxisKind::unroll;
  if (rows && !stage.reductions.empty()) return emit_row_tiles(stage);
  if (stage.axes[axis].kind == AxisKind::matrix && goes_by_tiles(stage)) return emit_matrix(stage);
  if (!is_last && stage.axes[axis].kind == AxisKind::transpose && has_all_lanes(stage.axes[axis]))
    return emit_turned_pairs(stage);
  if (is_last && stage.axes[axis].kind == AxisKind::interleave)
    return emit_interleaved_axis(stage.axes[axis], stage);
  emit_axis(stage.axes[axis], stage, [&] {
    hoist(stage);
    emit_points(stage, axis + 1);
  });
}

void Emitter::emit_at_point(const Stage& stage) {
  begin_reductions(stage);
  emit_nest(stage.reduce_axes, [&] { emit_reduce(stage, 0, [&] { emit_body(stage); }); });
  finish_reductions();
  emit_after(stage);
  forget_locals(stage);
}

/// The loops of a reduction from axis number `axis` on, around `body`.
void Emitter::emit_reduce(const Stage& stage, size_t axis, const std::function<void()>& body) {
  if (asking_row_ != nullptr) emit_prefetches(stage, axis);
  if (axis == stage.reduce_axes.size()) return body();
  auto inside = [&] {
    hoist(stage);
    emit_reduce(stage, axis + 1, body);
  };
  const loop::Steps steps = stage.reduce_axes[axis].steps;
  if (steps == loop::Steps::written_out) return emit_written_out(stage.reduce_axes[axis], inside);
  const bool outer = std::exchange(keeps_loops_, steps == loop::Steps::kept);
  emit_axis(stage.reduce_axes[axis], stage, inside);
  keeps_loops_ = outer;
}

/// Steps one after the other, without a loop.
void Emitter::emit_written_out(const Axis& axis, const std::function<void()>& body) {
  for (int64_t i = 0; i < *axis.extent.constant(); ++i) {
    symbols_[axis.index] = ir_.getInt64(static_cast<uint64_t>(i));
    levels_.emplace_back();
    body();
    levels_.pop_back();
  }
  symbols_.erase(axis.index);
}

void Emitter::emit_body(const Stage& stage) {
  combine_reductions();
  emit_stores(stage.body);
  forget_running_values(stage);
}

void Emitter::emit_after(const Stage& stage) {
  levels_.emplace_back();  // values of locals must not outlive this point
  emit_stores(stage.after);
  Level level = std::move(levels_.back());
  levels_.pop_back();
  // Without axes of its own the stage's point is the row: later stages see what was computed.
  if (stage.axes.empty()) levels_.back().scalars.insert(level.scalars.begin(), level.scalars.end());
}

void Emitter::emit_stores(const std::vector<loop::Store>& stores) {
  store_all(stores, values_of(stores));
}

std::vector<Value*> Emitter::values_of(const std::vector<loop::Store>& stores) {
  std::vector<Value*> values;
  for (const loop::Store& store : stores) values.push_back(value(store.value));
  return values;
}

void Emitter::store_all(const std::vector<loop::Store>& stores, const std::vector<Value*>& values) {
  for (size_t i = 0; i < stores.size(); ++i) store(stores[i], values[i]);
}

void Emitter::emit_axis(const Axis& axis, const Stage& stage, const std::function<void()>& body) {
  bool in_blocks = !stage.reduce_axes.empty() && &axis == &stage.reduce_axes.back() &&
                   loop::sums_in_blocks(stage);
  if (axis.kind == AxisKind::vector && axis.lanes > 1)
    return emit_vector_axis(axis, body, in_blocks);
  const bool unrolls = axis.kind == AxisKind::unroll ||
                       (axis.kind == AxisKind::transpose && &axis == &stage.axes.back());
  if (unrolls && has_all_lanes(axis)) return emit_unrolled_axis(axis, stage, body);
  emit_steps(index_value(axis.extent), ir_.getInt64(1), in_blocks, [&](Value* at) {
    symbols_[axis.index] = at;
    body();
    symbols_.erase(axis.index);
  });
}

/// The loop of an axis up to `end`; of sums in blocks, a loop of blocks around it.
void Emitter::emit_steps(Value* end, Value* step, bool in_blocks,
                         const std::function<void(Value*)>& body) {
  if (!in_blocks) return emit_loop(ir_.getInt64(0), end, step, body);
  Value* block = ir_.CreateNSWMul(step, ir_.getInt64(loop::kSumBlock));
  emit_loop(ir_.getInt64(0), end, block, [&](Value* begin) {
    Value* stop = ir_.CreateNSWAdd(begin, block);
    stop = ir_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, stop, end);
    emit_loop(begin, stop, step, body);
    end_block_of_sums();
  });
}

void Emitter::emit_vector_axis(const Axis& axis, const std::function<void()>& body,
                               bool in_blocks) {
  std::optional<int64_t> known = axis.extent.constant();
  Value* extent = index_value(axis.extent);
  Value* lanes = ir_.getInt64(axis.lanes);
  Value* whole = ir_.CreateAnd(extent, ir_.getInt64(-static_cast<int64_t>(axis.lanes)));
  auto enter = [&](Value* at) {
    symbols_[axis.index] = at;
    vector_axis_ = axis.index;
    vector_marks_ = &axis;
    lanes_ = axis.lanes;
    body();
    lanes_ = 1;
    vector_marks_ = nullptr;
    vector_axis_ = 0;
    symbols_.erase(axis.index);
  };
  if (!known || *known >= axis.lanes) emit_steps(whole, lanes, in_blocks, enter);
  if (known ? *known % axis.lanes == 0 : sym::known_divisible(axis.extent, axis.lanes)) return;
  emit_loop(whole, extent, lanes, [&](Value* at) {
    llvm::Type* type =
        llvm::FixedVectorType::get(ir_.getInt64Ty(), static_cast<unsigned>(axis.lanes));
    Value* count = ir_.CreateSub(extent, at);
    // Without mask registers code for a known number of lanes needs no masks.
    if (const std::optional<int> only = loop::only_remainder(axis); only && !has_mask_registers())
      count = ir_.getInt64(static_cast<uint64_t>(*only));
    Value* left = ir_.CreateVectorSplat(static_cast<unsigned>(axis.lanes), count);
    Value* numbers = ir_.CreateStepVector(type);
    tail_mask_ = ir_.CreateICmpSLT(numbers, left, "tail");
    enter(at);
    tail_mask_ = nullptr;
    if (in_blocks) end_block_of_sums();
  });
}

/// Whether a loop of the stage that is not entered yet may run zero times while the buffer is
/// empty: a load before it would read what is not there. Cut loops have extents that ranges do not
/// bound from below, but only over tensors that have elements.
bool Emitter::may_be_empty(const Stage& stage, const loop::Buffer& buffer) const {
  bool has_elements = buffer.elements.range().lo > 0;
  for (const std::vector<Axis>* list : {&stage.axes, &stage.reduce_axes})
    for (const Axis& axis : *list) {
      if (symbols_.count(axis.index) != 0 || axis.extent.range().lo > 0) continue;
      if (axis.extent.is_constant() || !has_elements) return true;
    }
  return false;
}

/// Whether the stage leaves the buffer as it is: what is read only, and scratch of others.
bool Emitter::keeps(const Stage& stage, int32_t slot) const {
  const loop::Access access = kernel_.buffers[static_cast<size_t>(slot)].access;
  if (access != loop::Access::scratch) return access == loop::Access::read;
  bool is_stored = false;
  loop::for_each_store(stage, [&](const loop::Store& store) { is_stored |= store.buffer == slot; });
  return !is_stored;
}

/// Writes, at the current level, every value of the stage that is known here and not written yet.
void Emitter::hoist(const Stage& stage) {
  std::unordered_map<loop::Val, bool> ready;
  auto in_scope = [&](Expr e) {
    for (Expr symbol : sym::free_symbols(e))
      if (kernel_.scalars->indirect(symbol) == nullptr && symbols_.count(symbol) == 0) return false;
    return true;
  };
  for (loop::Val val : loop::scalars_of(stage)) {
    bool known = in_scope(val->index);
    for (loop::Val arg : val->args) known = known && ready.at(arg);
    if (val->opcode == loop::Opcode::local) known = locals_.count(val->slot) != 0;
    if (val->opcode == loop::Opcode::check) known = false;  // fails in source order
    if (val->opcode == loop::Opcode::load)
      known = known && keeps(stage, val->slot) && !may_be_empty(stage, kernel_.buffers[val->slot]);
    ready[val] = known;
    bool worth = val->opcode != loop::Opcode::constant && val->opcode != loop::Opcode::index;
    if (known && worth) value(val);
  }
}

}  // namespace tandem::codegen
