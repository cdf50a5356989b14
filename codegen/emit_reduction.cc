// Reductions: accumulators live in stack slots (promoted to registers), one value a lane when the
// reduced axis is the vector axis; then lanes fold as a tree, i with i + lanes/2, which the
// interpreter repeats. A scan along that axis keeps in each lane what came before the step.
#include "codegen/emit.h"
#include "codegen/vector_math.h"

namespace tandem::codegen {

using llvm::Value;
using loop::Combiner;
using loop::Stage;

namespace {

bool is_arg(Combiner combiner) {
  return combiner == Combiner::argmin || combiner == Combiner::argmax;
}
bool is_max(Combiner combiner) { return combiner == Combiner::max || combiner == Combiner::argmax; }

size_t parts(const loop::Reduction& reduction) {
  return static_cast<size_t>(loop::results(reduction.combiner));
}

}  // namespace

/// a * b + c: floats round once.
Value* Emitter::multiply_add(DType dtype, Value* a, Value* b, Value* c) {
  if (!is_float(dtype)) return ir_.CreateAdd(ir_.CreateMul(a, b), c);
  return ir_.CreateIntrinsic(a->getType(), llvm::Intrinsic::fma, {a, b, c});
}

Value* Emitter::identity(Combiner combiner, DType dtype, size_t part, bool lanes) {
  loop::ScalarPool& pool = *kernel_.scalars;
  Value* scalar = is_arg(combiner) && part == 1
                      ? ir_.getInt64(INT64_MAX)
                      : constant(loop::identity_of(pool, combiner, dtype));
  return lanes ? ir_.CreateVectorSplat(static_cast<unsigned>(lanes_), scalar) : scalar;
}

void Emitter::begin_reductions(const Stage& stage) {
  accumulators_.clear();
  bool folds = !stage.reduce_axes.empty() &&
               stage.reduce_axes.back().kind == loop::AxisKind::vector &&
               stage.reduce_axes.back().lanes > 1;
  int outer_lanes = lanes_;
  if (folds) lanes_ = stage.reduce_axes.back().lanes;
  const bool in_blocks = loop::sums_in_blocks(stage);
  for (const loop::Reduction& reduction : stage.reductions) {
    Accumulator& accumulator = accumulators_.emplace_back();
    accumulator.reduction = &reduction;
    accumulator.lanes = folds;
    for (size_t part = 0; part < parts(reduction); ++part) {
      const DType dtype = reduction.inputs[part]->dtype;
      Value* start = identity(reduction.combiner, dtype, part, lanes_ > 1);
      accumulator.slots.push_back(make_slot(start));
    }
    if (in_blocks && loop::sums_in_blocks(reduction))
      accumulator.total = make_slot(identity(Combiner::sum, DType::f32, 0, lanes_ > 1));
  }
  lanes_ = outer_lanes;
}

/// Room for a value of the type of `start`, which it holds from here on.
Value* Emitter::make_slot(Value* start) {
  llvm::IRBuilder<>::InsertPoint here = ir_.saveIP();
  llvm::BasicBlock& entry = function_->getEntryBlock();
  ir_.SetInsertPoint(&entry, entry.begin());
  Value* slot = ir_.CreateAlloca(start->getType(), nullptr, "acc");
  ir_.restoreIP(here);
  ir_.CreateStore(start, slot);
  return slot;
}

/// Adds what sums have come to since the block began to their totals.
void Emitter::end_block_of_sums() {
  for (Accumulator& accumulator : accumulators_) {
    if (accumulator.total == nullptr) continue;
    llvm::Type* type = llvm::cast<llvm::AllocaInst>(accumulator.total)->getAllocatedType();
    Value* total = ir_.CreateLoad(type, accumulator.total);
    Value* block = ir_.CreateLoad(type, accumulator.slots[0]);
    ir_.CreateStore(ir_.CreateFAdd(total, block), accumulator.total);
    ir_.CreateStore(llvm::Constant::getNullValue(type), accumulator.slots[0]);
  }
}

void Emitter::combine_reductions() {
  for (Accumulator& accumulator : accumulators_) {
    const loop::Reduction& reduction = *accumulator.reduction;
    DType dtype = reduction.inputs[0]->dtype;
    std::vector<Value*> inputs;
    std::vector<Value*> old;
    for (loop::Val input : reduction.inputs) inputs.push_back(as_lanes(value(input)));
    for (size_t i = 0; i < parts(reduction); ++i)
      old.push_back(ir_.CreateLoad(inputs[i]->getType(), accumulator.slots[i]));
    const bool is_packed =
        loop::multiplies(reduction.combiner) && reduction.combiner != Combiner::dot;
    std::vector<Value*> combined;
    if (reduction.scan && accumulator.lanes)
      combined = running_lanes(reduction, inputs, old);
    else if (is_packed)
      combined = {packed_product(reduction.combiner, inputs[0], inputs[1], old[0])};
    else if (reduction.combiner == Combiner::dot)
      combined = {multiply_add(dtype, inputs[0], inputs[1], old[0])};
    else
      combined = combine(reduction.combiner, dtype, old, inputs);
    for (size_t i = 0; i < combined.size(); ++i) {
      if (reduction.scan) locals_[reduction.first_local + static_cast<int32_t>(i)] = combined[i];
      if (reduction.scan && accumulator.lanes)
        combined[i] = ir_.CreateShuffleVector(
            combined[i], std::vector<int>(static_cast<size_t>(lanes_), lanes_ - 1));
      else if (tail_mask_ != nullptr && accumulator.lanes)
        combined[i] = ir_.CreateSelect(tail_mask_, combined[i], old[i]);
      ir_.CreateStore(combined[i], accumulator.slots[i]);
    }
  }
}

/// What a scan has come to at each lane of a step: each with the lane 1, 2, 4, … before it, then
/// with what came `before` the step. Lanes behind the end are the identity, so that the last lane
/// has what the last point has.
std::vector<Value*> Emitter::running_lanes(const loop::Reduction& reduction,
                                           std::vector<Value*> inputs,
                                           const std::vector<Value*>& before) {
  const DType dtype = reduction.inputs[0]->dtype;
  std::vector<Value*> none;
  for (size_t part = 0; part < inputs.size(); ++part)
    none.push_back(identity(reduction.combiner, dtype, part, true));
  if (tail_mask_ != nullptr)
    for (size_t part = 0; part < inputs.size(); ++part)
      inputs[part] = ir_.CreateSelect(tail_mask_, inputs[part], none[part]);
  for (int apart = 1; apart < lanes_; apart *= 2) {
    std::vector<int> from(static_cast<size_t>(lanes_));
    for (int i = 0; i < lanes_; ++i)
      from[static_cast<size_t>(i)] = i < apart ? i : lanes_ + i - apart;
    std::vector<Value*> earlier;
    for (size_t part = 0; part < inputs.size(); ++part)
      earlier.push_back(ir_.CreateShuffleVector(none[part], inputs[part], from));
    inputs = combine(reduction.combiner, dtype, earlier, inputs);
  }
  return combine(reduction.combiner, dtype, before, inputs);
}

void Emitter::finish_reductions() {
  for (Accumulator& accumulator : accumulators_) {
    const loop::Reduction& reduction = *accumulator.reduction;
    std::vector<Value*> result;
    if (accumulator.total != nullptr) accumulator.slots[0] = accumulator.total;
    for (Value* room : accumulator.slots) {
      llvm::AllocaInst* slot = llvm::cast<llvm::AllocaInst>(room);
      result.push_back(ir_.CreateLoad(slot->getAllocatedType(), slot));
    }
    unsigned width = accumulator.lanes && !reduction.scan
                         ? llvm::cast<llvm::FixedVectorType>(result[0]->getType())->getNumElements()
                         : 1;
    for (width /= 2; width >= 1; width /= 2) {
      std::vector<Value*> low;
      std::vector<Value*> high;
      for (Value* part : result) {
        std::vector<int> first(width);
        std::vector<int> second(width);
        for (unsigned i = 0; i < width; ++i)
          first[i] = static_cast<int>(i), second[i] = static_cast<int>(i + width);
        low.push_back(ir_.CreateShuffleVector(part, first));
        high.push_back(ir_.CreateShuffleVector(part, second));
      }
      result = combine(reduction.combiner, reduction.inputs[0]->dtype, low, high);
    }
    for (size_t i = 0; i < result.size(); ++i) {
      if (accumulator.lanes) result[i] = ir_.CreateExtractElement(result[i], uint64_t{0});
      locals_[reduction.first_local + static_cast<int32_t>(i)] = result[i];
    }
  }
  accumulators_.clear();
}

/// Those of scans are known at one step. Lanes have a loop of whole registers and another one for
/// what is left.
void Emitter::forget_running_values(const Stage& stage) {
  for (const loop::Reduction& reduction : stage.reductions)
    if (reduction.scan)
      for (size_t i = 0; i < parts(reduction); ++i)
        locals_.erase(reduction.first_local + static_cast<int32_t>(i));
}

/// Results that are known only at this point of the stage.
void Emitter::forget_locals(const Stage& stage) {
  for (const loop::Reduction& reduction : stage.reductions)
    if (reduction.scan || !stage.axes.empty())
      for (size_t i = 0; i < parts(reduction); ++i)
        locals_.erase(reduction.first_local + static_cast<int32_t>(i));
}

/// Condition under which candidate b replaces a, values only.
Value* Emitter::prefer(Combiner combiner, DType dtype, Value* a, Value* b) {
  bool max = is_max(combiner);
  if (is_float(dtype)) {
    Value* better = max ? ir_.CreateFCmpOGT(b, a) : ir_.CreateFCmpOLT(b, a);
    Value* only_b_is_nan = ir_.CreateAnd(ir_.CreateFCmpUNO(b, b), ir_.CreateFCmpORD(a, a));
    return ir_.CreateOr(better, only_b_is_nan);
  }
  bool is_signed_type = is_signed(dtype);
  if (max) return is_signed_type ? ir_.CreateICmpSGT(b, a) : ir_.CreateICmpUGT(b, a);
  return is_signed_type ? ir_.CreateICmpSLT(b, a) : ir_.CreateICmpULT(b, a);
}

// m + log(1 + exp(n - m)), m the greater one; of equal infinities, which have no difference, m.
Value* Emitter::log_add_exp(DType dtype, Value* a, Value* b) {
  Value* most = extremum(a, b, dtype, true);
  Value* least = extremum(a, b, dtype, false);
  Value* apart = ir_.CreateFSub(least, most);
  Value* is_same = ir_.CreateAnd(ir_.CreateFCmpOEQ(most, least), ir_.CreateFCmpUNO(apart, apart));
  Value* more = emit_math(ir_, MathFunction::log1p, emit_math(ir_, MathFunction::exp, apart));
  return ir_.CreateSelect(is_same, most, ir_.CreateFAdd(most, more));
}

std::vector<Value*> Emitter::combine(Combiner combiner, DType dtype, const std::vector<Value*>& a,
                                     const std::vector<Value*>& b) {
  bool floats = is_float(dtype);
  switch (combiner) {
    case Combiner::sum:
    case Combiner::dot4:
    case Combiner::dot4_saturating:
    case Combiner::dot2:
    case Combiner::dot_bf16:
    case Combiner::dot: return {floats ? ir_.CreateFAdd(a[0], b[0]) : ir_.CreateAdd(a[0], b[0])};
    case Combiner::prod: return {floats ? ir_.CreateFMul(a[0], b[0]) : ir_.CreateMul(a[0], b[0])};
    case Combiner::min: return {extremum(a[0], b[0], dtype, false)};
    case Combiner::max: return {extremum(a[0], b[0], dtype, true)};
    case Combiner::logaddexp: return {log_add_exp(dtype, a[0], b[0])};
    case Combiner::any: return {ir_.CreateOr(a[0], b[0])};
    case Combiner::all: return {ir_.CreateAnd(a[0], b[0])};
    case Combiner::argmin:
    case Combiner::argmax: break;
  }
  Value* equal = floats ? ir_.CreateOr(ir_.CreateFCmpOEQ(a[0], b[0]),
                                       ir_.CreateAnd(ir_.CreateFCmpUNO(a[0], a[0]),
                                                     ir_.CreateFCmpUNO(b[0], b[0])))
                        : ir_.CreateICmpEQ(a[0], b[0]);
  Value* earlier = ir_.CreateAnd(equal, ir_.CreateICmpSLT(b[1], a[1]));
  Value* take = ir_.CreateOr(prefer(combiner, dtype, a[0], b[0]), earlier);
  return {ir_.CreateSelect(take, b[0], a[0]), ir_.CreateSelect(take, b[1], a[1])};
}

}  // namespace tandem::codegen
