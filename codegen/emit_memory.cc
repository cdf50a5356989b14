// Indices and memory. An access whose index grows by one along the lanes is one vector load or
// store; one that does not change is a scalar, spread; a load with a small stride is a wide one of
// which lanes are taken; anything else gathers or scatters.
#include <bit>

#include "base/check.h"
#include "codegen/emit.h"

namespace tandem::codegen {

using llvm::Value;
using loop::Val;
using sym::Expr;

bool Emitter::varies(Val val) const {
  std::vector<Val> roots{val};
  for (Val part : loop::reachable(roots)) {
    if (part->opcode == loop::Opcode::local && locals_.count(part->slot) != 0 &&
        locals_.at(part->slot)->getType()->isVectorTy())
      return true;
    for (Expr symbol : sym::free_symbols(part->index))
      if (symbol == vector_axis_) return true;
  }
  return false;
}

bool Emitter::varies(Expr e) const {
  if (lanes_ == 1) return false;
  for (Expr symbol : sym::free_symbols(e)) {
    if (symbol == vector_axis_) return true;
    if (Val scalar = kernel_.scalars->indirect(symbol))
      if (varies(scalar)) return true;
  }
  return false;
}

namespace {

/// Folds the operands of one expression node.
template <class Combine>
Value* fold_args(std::span<Value* const> args, Combine combine) {
  Value* result = args[0];
  for (size_t i = 1; i < args.size(); ++i) result = combine(result, args[i]);
  return result;
}

}  // namespace

/// Depth here is that of an index expression, never of the user's program.
Value* Emitter::index_value(Expr e) {
  if (e.constant()) return ir_.getInt64(static_cast<uint64_t>(*e.constant()));
  if (e.is_symbol()) {
    if (Val scalar = kernel_.scalars->indirect(e)) return value(scalar);
    Value* at = symbols_.at(e);
    if (lanes_ == 1 || e != vector_axis_) return at;
    llvm::Type* type = llvm::FixedVectorType::get(ir_.getInt64Ty(), static_cast<unsigned>(lanes_));
    return ir_.CreateAdd(as_lanes(at), ir_.CreateStepVector(type));
  }
  std::vector<Value*> args;
  bool lanes = false;
  for (Expr arg : e.args()) {
    args.push_back(index_value(arg));
    lanes |= has_lanes(args.back());
  }
  if (lanes)
    for (Value*& arg : args) arg = as_lanes(arg);
  switch (e.kind()) {
    case sym::Kind::add:
      return fold_args(args, [&](Value* a, Value* b) { return ir_.CreateAdd(a, b); });
    case sym::Kind::mul:
      return fold_args(args, [&](Value* a, Value* b) { return ir_.CreateMul(a, b); });
    case sym::Kind::min:
      return fold_args(args, [&](Value* a, Value* b) {
        return ir_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, a, b);
      });
    case sym::Kind::max:
      return fold_args(args, [&](Value* a, Value* b) {
        return ir_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, a, b);
      });
    case sym::Kind::floor_div:
    case sym::Kind::mod: break;
    case sym::Kind::constant:
    case sym::Kind::symbol: TD_CHECK(false) << "leaf";
  }
  bool divides = e.kind() == sym::Kind::floor_div;
  bool never_negative = e.args()[0].range().lo >= 0;
  if (never_negative)
    return divides ? ir_.CreateUDiv(args[0], args[1]) : ir_.CreateURem(args[0], args[1]);
  Value* quotient = divide_integers(args[0], args[1], true, true);
  return divides ? quotient : ir_.CreateSub(args[0], ir_.CreateMul(quotient, args[1]));
}

Value* Emitter::uniform_index(Expr e) {
  int lanes = std::exchange(lanes_, 1);
  Value* result = index_value(e);
  lanes_ = lanes;
  return result;
}

Emitter::Address Emitter::address(Expr index, bool may_stride) {
  if (!varies(index)) return {index_value(index), Address::Shape::uniform};
  std::optional<sym::Affine> affine = sym::affine_in(index, vector_axis_);
  if (affine && affine->coefficient == Expr(1) && !varies(affine->rest))
    return {uniform_index(index), Address::Shape::contiguous};
  std::optional<int64_t> stride = affine ? affine->coefficient.constant() : std::nullopt;
  // Backwards is one load, too, wherever it is.
  bool small = stride && (*stride == -1 || (*stride >= 2 && *stride <= vector_marks_->stride));
  if (may_stride && small && !varies(affine->rest))
    return {uniform_index(index), Address::Shape::strided, static_cast<int>(*stride)};
  return {index_value(index), Address::Shape::scattered};
}

/// Before a load from `pointer` on: what is read next, where the marks say so.
/// Addresses behind the end do not matter. What is in scratch is at hand.
void Emitter::ask_ahead(const loop::Scalar& load, Value* pointer, int stride, bool is_masked) {
  constexpr int64_t kLine = 64;
  const int64_t ahead = vector_marks_->ahead;
  const loop::Buffer& from = kernel_.buffers[load.slot];
  const bool asks = is_masked || (vector_marks_->streams && from.far);
  if (ahead == 0 || !asks || from.access == loop::Access::scratch) return;
  const int64_t bytes = size_of(load.dtype) * lanes_ * stride;
  for (int64_t at = 0; at < bytes; at += kLine) {
    Value* line = ir_.CreateConstGEP1_64(ir_.getInt8Ty(), pointer, ahead + at);
    ir_.CreateIntrinsic(llvm::Intrinsic::prefetch, {pointer->getType()},
                        {line, ir_.getInt32(0), ir_.getInt32(2), ir_.getInt32(1)});
  }
}

/// The mask of one AVX2 register in a form that LLVM cannot see through.
Value* Emitter::hidden_mask(Value* mask, bool is_double) {
  const unsigned lanes = llvm::cast<llvm::FixedVectorType>(mask->getType())->getNumElements();
  llvm::Type* whole =
      llvm::FixedVectorType::get(is_double ? ir_.getInt64Ty() : ir_.getInt32Ty(), lanes);
  llvm::Type* fenced =
      llvm::FixedVectorType::get(is_double ? ir_.getDoubleTy() : ir_.getFloatTy(), lanes);
  Value* bits = ir_.CreateBitCast(ir_.CreateSExt(mask, whole), fenced);
  Value* hidden = ir_.CreateBitCast(ir_.CreateArithmeticFence(bits, fenced), whole);
  return ir_.CreateICmpSLT(hidden, llvm::Constant::getNullValue(whole));
}

namespace {

/// How many lanes a mask lets through, where these are known to be the first ones.
std::optional<unsigned> first_lanes(Value* mask) {
  const llvm::Constant* const known = llvm::dyn_cast<llvm::Constant>(mask);
  if (known == nullptr) return std::nullopt;
  const unsigned lanes = llvm::cast<llvm::FixedVectorType>(mask->getType())->getNumElements();
  unsigned count = 0;
  while (count < lanes && known->getAggregateElement(count)->isOneValue()) ++count;
  for (unsigned lane = count; lane < lanes; ++lane)
    if (!known->getAggregateElement(lane)->isNullValue()) return std::nullopt;
  return count;
}

/// Of so many lanes, by powers of two, the greatest first: each piece begins at a multiple of its
/// own length.
void for_each_piece(unsigned count, const std::function<void(unsigned at, unsigned lanes)>& piece) {
  for (unsigned at = 0; at < count;) {
    const unsigned lanes = std::bit_floor(count - at);
    piece(at, lanes);
    at += lanes;
  }
}

}  // namespace

/// `whole` with the elements of `part` from lane `at` on. By shuffles: LLVM 19 selects no insertion
/// of a short vector where no pass has made a shuffle of it (level 0).
Value* Emitter::with_part(Value* whole, Value* part, unsigned at) {
  const unsigned count = llvm::cast<llvm::FixedVectorType>(whole->getType())->getNumElements();
  if (!part->getType()->isVectorTy()) return ir_.CreateInsertElement(whole, part, at);
  const unsigned lanes = llvm::cast<llvm::FixedVectorType>(part->getType())->getNumElements();
  llvm::SmallVector<int, 64> widened(count, llvm::PoisonMaskElem);
  llvm::SmallVector<int, 64> blended = llvm::createSequentialMask(0, count, 0);
  for (unsigned lane = 0; lane < lanes; ++lane) {
    widened[at + lane] = static_cast<int>(lane);
    blended[at + lane] = static_cast<int>(count + at + lane);
  }
  return ir_.CreateShuffleVector(whole, ir_.CreateShuffleVector(part, widened), blended);
}

Value* Emitter::part_of(Value* whole, unsigned at, unsigned lanes) {
  if (lanes == 1) return ir_.CreateExtractElement(whole, at);
  return ir_.CreateShuffleVector(whole, llvm::createSequentialMask(at, lanes, 0));
}

/// Zeros behind the first `count`.
Value* Emitter::load_first(llvm::FixedVectorType* type, Value* first, llvm::Align align,
                           unsigned count) {
  llvm::Type* const element = type->getElementType();
  Value* all = llvm::Constant::getNullValue(type);
  for_each_piece(count, [&](unsigned at, unsigned lanes) {
    llvm::Type* const part = lanes == 1 ? element : llvm::FixedVectorType::get(element, lanes);
    Value* const pointer = ir_.CreateConstGEP1_64(element, first, at);
    all = with_part(all, ir_.CreateAlignedLoad(part, pointer, align), at);
  });
  return all;
}

void Emitter::store_first(Value* v, Value* first, llvm::Align align, unsigned count) {
  llvm::Type* const element = v->getType()->getScalarType();
  for_each_piece(count, [&](unsigned at, unsigned lanes) {
    Value* const pointer = ir_.CreateConstGEP1_64(element, first, at);
    ir_.CreateAlignedStore(part_of(v, at, lanes), pointer, align);
  });
}

/// Elements from `first` on; zeros where the mask is false. Without mask registers (AVX2) LLVM 19
/// cuts what is wider than a register, and where a part of the mask then turns out to be all false,
/// it may read that part without a mask: wrong numbers, and memory behind the end. So it gets such
/// a load register by register, with masks whose parts it does not know.
Value* Emitter::masked_load(llvm::Type* lanes_type, Value* first, llvm::Align align, Value* mask) {
  llvm::FixedVectorType* type = llvm::cast<llvm::FixedVectorType>(lanes_type);
  constexpr unsigned kRegisterBytes = 32;
  const unsigned bytes = type->getScalarSizeInBits() / 8, count = type->getNumElements();
  if (const std::optional<unsigned> known = first_lanes(mask); known && !has_mask_registers())
    return load_first(type, first, align, *known);
  // Narrower elements are read one by one.
  if (has_mask_registers() || bytes < 4 || count * bytes <= kRegisterBytes)
    return ir_.CreateMaskedLoad(type, first, align, mask, llvm::Constant::getNullValue(type));
  const unsigned lanes = kRegisterBytes / bytes;
  llvm::FixedVectorType* part = llvm::FixedVectorType::get(type->getElementType(), lanes);
  llvm::SmallVector<Value*, 16> parts;
  for (unsigned at = 0; at < count; at += lanes) {
    llvm::SmallVector<int, 16> own = llvm::createSequentialMask(at, lanes, 0);
    Value* pointer = ir_.CreateConstGEP1_64(type->getElementType(), first, at);
    Value* enabled = hidden_mask(ir_.CreateShuffleVector(mask, own), bytes == 8);
    parts.push_back(
        ir_.CreateMaskedLoad(part, pointer, align, enabled, llvm::Constant::getNullValue(part)));
  }
  return llvm::concatenateVectors(ir_, parts);
}

/// Lane i of the result is element i * stride from `first` on. What lies between is masked off, so
/// nothing outside of what the lanes read is touched.
Value* Emitter::strided_load(llvm::Type* type, Value* first, llvm::Align align, int stride,
                             Value* enabled) {
  size_t step = static_cast<size_t>(stride);
  size_t wide = static_cast<size_t>(lanes_) * step;
  llvm::SmallVector<int, 256> spread(wide, lanes_);
  llvm::SmallVector<int, 64> taken;
  for (size_t i = 0; i < wide; i += step) {
    spread[i] = static_cast<int>(taken.size());
    taken.push_back(static_cast<int>(i));
  }
  Value* none = llvm::Constant::getNullValue(enabled->getType());
  llvm::Type* lanes = llvm::FixedVectorType::get(type, static_cast<unsigned>(wide));
  Value* raw = masked_load(lanes, first, align, ir_.CreateShuffleVector(enabled, none, spread));
  return ir_.CreateShuffleVector(raw, taken);
}

/// Lane i of the result is element -i from `first` on: what lies before it, turned around.
Value* Emitter::backward_load(llvm::Type* type, Value* first, llvm::Align align, Value* enabled) {
  llvm::SmallVector<int, 64> turned;
  for (int lane = lanes_; lane-- > 0;) turned.push_back(lane);
  Value* last = ir_.CreateConstGEP1_64(type, first, static_cast<uint64_t>(int64_t{1} - lanes_));
  llvm::Type* lanes = llvm::FixedVectorType::get(type, static_cast<unsigned>(lanes_));
  Value* raw = enabled == nullptr
                   ? static_cast<Value*>(ir_.CreateAlignedLoad(lanes, last, align))
                   : masked_load(lanes, last, align, ir_.CreateShuffleVector(enabled, turned));
  return ir_.CreateShuffleVector(raw, turned);
}

llvm::Type* Emitter::memory_type(DType dtype) {
  return dtype == DType::boolean ? ir_.getInt8Ty() : type_of(dtype);
}

Value* Emitter::from_memory(Value* raw, DType dtype) {
  if (dtype != DType::boolean) return raw;
  return ir_.CreateICmpNE(raw, llvm::Constant::getNullValue(raw->getType()));
}

Value* Emitter::to_memory(Value* v, DType dtype) {
  if (dtype != DType::boolean) return v;
  llvm::Type* type = ir_.getInt8Ty();
  if (llvm::FixedVectorType* lanes = llvm::dyn_cast<llvm::FixedVectorType>(v->getType()))
    type = llvm::FixedVectorType::get(type, lanes->getNumElements());
  return ir_.CreateZExt(v, type);
}

Value* Emitter::element_pointer(int32_t buffer, Value* index) {
  llvm::Type* type = memory_type(kernel_.buffers[buffer].dtype);
  return ir_.CreateGEP(type, buffers_[buffer], index);
}

/// Of a load, whose elements may be four of the buffer's.
Value* Emitter::element_pointer(const loop::Scalar& load, Value* index) {
  return ir_.CreateGEP(memory_type(load.dtype), buffers_[load.slot], index);
}

Value* Emitter::active(Value* mask) {
  if (lanes_ == 1) return mask;
  if (mask == nullptr) return tail_mask_;
  mask = as_lanes(mask);
  return tail_mask_ == nullptr ? mask : ir_.CreateAnd(mask, tail_mask_);
}

bool Emitter::has_mask_registers() const { return has_feature("avx512f"); }

/// The address, which may be anything where the mask is false; zeros of our own there, as many as
/// the widest load has: four registers of f32 are eight of f64.
Value* Emitter::or_zeros(Value* mask, Value* pointer) {
  constexpr uint64_t kMostBytes = 512;
  llvm::GlobalVariable* zeros = module_.getNamedGlobal("tandem_zeros");
  if (zeros == nullptr) {
    llvm::Type* const type = llvm::ArrayType::get(ir_.getInt8Ty(), kMostBytes);
    zeros = new llvm::GlobalVariable(module_, type, true, llvm::GlobalValue::PrivateLinkage,
                                     llvm::Constant::getNullValue(type), "tandem_zeros");
    zeros->setAlignment(llvm::Align(64));
  }
  return ir_.CreateSelect(mask, pointer, zeros);
}

/// A load or store, of which LLVM learns that scratch is the task's own, and holds nothing that
/// arguments do: what a loop reads of them at one place need not be read again behind a store.
Value* Emitter::of_buffer(Value* access, int32_t buffer) {
  if (in_scratch_ == nullptr) {
    llvm::MDBuilder make(context_);
    llvm::MDNode* const scope =
        make.createAnonymousAliasScope(make.createAnonymousAliasScopeDomain());
    in_scratch_ = llvm::MDNode::get(context_, {scope});
  }
  const bool is_scratch =
      kernel_.buffers[static_cast<size_t>(buffer)].access == loop::Access::scratch;
  if (llvm::Instruction* const made = llvm::dyn_cast<llvm::Instruction>(access))
    made->setMetadata(
        is_scratch ? llvm::LLVMContext::MD_alias_scope : llvm::LLVMContext::MD_noalias,
        in_scratch_);
  return access;
}

Value* Emitter::load(Val val) {
  llvm::Type* type = memory_type(val->dtype);
  llvm::Align align(static_cast<uint64_t>(size_of(kernel_.buffers[val->slot].dtype)));
  Value* mask = val->masked ? value(val->args[0]) : nullptr;
  Address at = address(val->index, true);
  if (at.shape == Address::Shape::uniform && (mask == nullptr || !has_lanes(mask))) {
    Value* pointer = element_pointer(*val, at.index);
    if (mask == nullptr)
      return from_memory(of_buffer(ir_.CreateAlignedLoad(type, pointer, align), val->slot),
                         val->dtype);
    return from_memory(ir_.CreateAlignedLoad(type, or_zeros(mask, pointer), align), val->dtype);
  }
  llvm::Type* lanes = with_lanes(type);
  Value* enabled = active(mask);
  Value* none = llvm::Constant::getNullValue(lanes);
  if (at.shape == Address::Shape::contiguous) {
    Value* pointer = element_pointer(*val, at.index);
    ask_ahead(*val, pointer, 1, enabled != nullptr);
    // All lanes or none: without mask registers an address is cheaper than a mask.
    const bool is_whole = mask != nullptr && !has_lanes(mask) && tail_mask_ == nullptr;
    if (is_whole && !has_mask_registers()) {
      pointer = or_zeros(mask, pointer);
      enabled = nullptr;
    }
    if (enabled == nullptr)
      return from_memory(of_buffer(ir_.CreateAlignedLoad(lanes, pointer, align), val->slot),
                         val->dtype);
    return from_memory(masked_load(lanes, pointer, align, enabled), val->dtype);
  }
  if (at.shape == Address::Shape::strided && at.stride == -1)
    return from_memory(backward_load(type, element_pointer(*val, at.index), align, enabled),
                       val->dtype);
  if (enabled == nullptr) enabled = llvm::Constant::getAllOnesValue(with_lanes(ir_.getInt1Ty()));
  if (at.shape == Address::Shape::strided) {
    Value* first = element_pointer(*val, at.index);
    ask_ahead(*val, first, at.stride, true);
    return from_memory(strided_load(type, first, align, at.stride, enabled), val->dtype);
  }
  Value* pointers = element_pointer(*val, as_lanes(at.index));
  return from_memory(ir_.CreateMaskedGather(lanes, pointers, align, enabled, none), val->dtype);
}

void Emitter::store(const loop::Store& store, Value* v) {
  DType dtype = kernel_.buffers[store.buffer].dtype;
  llvm::Type* type = memory_type(dtype);
  llvm::Align align(static_cast<uint64_t>(size_of(dtype)));
  Address at = address(store.index, false);
  bool lanes = at.shape != Address::Shape::uniform;
  Value* pointer = element_pointer(
      store.buffer, at.shape == Address::Shape::scattered ? as_lanes(at.index) : at.index);
  TD_CHECK(lanes || !has_lanes(v)) << "lanes stored to one place";
  Value* raw = to_memory(lanes ? as_lanes(v) : v, dtype);
  Value* enabled = lanes ? active(nullptr) : nullptr;
  Value* all = llvm::Constant::getAllOnesValue(with_lanes(ir_.getInt1Ty()));
  Value* none = llvm::Constant::getNullValue(lanes ? with_lanes(type) : type);
  auto read = [&]() -> Value* {
    if (at.shape == Address::Shape::scattered)
      return ir_.CreateMaskedGather(with_lanes(type), pointer, align, enabled ? enabled : all,
                                    none);
    if (enabled != nullptr) return masked_load(with_lanes(type), pointer, align, enabled);
    return of_buffer(ir_.CreateAlignedLoad(lanes ? with_lanes(type) : type, pointer, align),
                     store.buffer);
  };
  if (store.accumulate) {
    DType wide = compute_type(dtype);
    Value* old = cast(read(), dtype, wide);
    Value* added = cast(raw, dtype, wide);
    raw = cast(combine(store.combiner, wide, {old}, {added})[0], wide, dtype);
  }
  if (at.shape == Address::Shape::scattered)
    ir_.CreateMaskedScatter(raw, pointer, align, enabled ? enabled : all);
  else if (enabled != nullptr)
    masked_store(raw, pointer, align, enabled);
  else if (store.nontemporal && lanes)
    store_past_caches(raw, pointer);
  else
    of_buffer(ir_.CreateAlignedStore(raw, pointer, align), store.buffer);
}

void Emitter::masked_store(Value* raw, Value* pointer, llvm::Align align, Value* mask) {
  if (const std::optional<unsigned> known = first_lanes(mask); known && !has_mask_registers())
    return store_first(raw, pointer, align, *known);
  ir_.CreateMaskedStore(raw, pointer, align, mask);
}

/// LLVM keeps the hint only where it knows of the alignment, which the mark promises.
void Emitter::store_past_caches(Value* raw, Value* pointer) {
  constexpr uint64_t kLine = 64;
  const uint64_t bytes = module_.getDataLayout().getTypeStoreSize(raw->getType());
  llvm::Instruction* to = ir_.CreateAlignedStore(raw, pointer, llvm::Align(std::min(bytes, kLine)));
  to->setMetadata(llvm::LLVMContext::MD_nontemporal,
                  llvm::MDNode::get(context_, llvm::ConstantAsMetadata::get(ir_.getInt32(1))));
}

}  // namespace tandem::codegen
