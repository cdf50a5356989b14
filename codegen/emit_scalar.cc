// Scalar expressions as LLVM values: uniform ones stay scalar and are spread over lanes where they
// meet a vector. Floats of 16 and 8 bits exist in memory and in casts only; all but f16 are carried
// as their bits.
// bool is i1.
#include "base/check.h"
#include "codegen/emit.h"
#include "codegen/small_floats.h"
#include "codegen/vector_math.h"
#include "loop/random.h"
#include "loop/small_floats.h"

namespace tandem::codegen {

using llvm::Value;
using loop::Opcode;
using loop::Val;

namespace {

std::optional<MathFunction> math_function(Opcode opcode) {
  switch (opcode) {
    case Opcode::exp: return MathFunction::exp;
    case Opcode::expm1: return MathFunction::expm1;
    case Opcode::log: return MathFunction::log;
    case Opcode::log1p: return MathFunction::log1p;
    case Opcode::log2: return MathFunction::log2;
    case Opcode::sin: return MathFunction::sin;
    case Opcode::cos: return MathFunction::cos;
    case Opcode::tanh: return MathFunction::tanh;
    case Opcode::lgamma: return MathFunction::lgamma;
    case Opcode::erf: return MathFunction::erf;
    default: return std::nullopt;
  }
}

bool is_a_number(Value* value) {
  auto* constant = llvm::dyn_cast<llvm::Constant>(value);
  if (constant != nullptr && constant->getType()->isVectorTy())
    constant = constant->getSplatValue();
  auto* number = llvm::dyn_cast_or_null<llvm::ConstantFP>(constant);
  return number != nullptr && !number->isNaN();
}

}  // namespace

llvm::Type* Emitter::type_of(DType dtype) {
  switch (dtype) {
    case DType::f32: return ir_.getFloatTy();
    case DType::f64: return ir_.getDoubleTy();
    case DType::f16: return ir_.getHalfTy();
    case DType::bf16:
    case DType::i16: return ir_.getInt16Ty();
    case DType::f8e4m3fn:
    case DType::f8e5m2:
    case DType::i8:
    case DType::u8: return ir_.getInt8Ty();
    case DType::i32: return ir_.getInt32Ty();
    case DType::i64: return ir_.getInt64Ty();
    case DType::boolean: return ir_.getInt1Ty();
    case DType::c64:
    case DType::c128: break;  // of no kernel
  }
  return nullptr;
}

llvm::Type* Emitter::with_lanes(llvm::Type* type) const {
  return lanes_ > 1 ? llvm::FixedVectorType::get(type, static_cast<unsigned>(lanes_)) : type;
}

Value* Emitter::as_lanes(Value* v) {
  return lanes_ > 1 && !has_lanes(v) ? ir_.CreateVectorSplat(static_cast<unsigned>(lanes_), v) : v;
}

Value* Emitter::splat_like(Value* scalar, Value* like) {
  llvm::FixedVectorType* type = llvm::dyn_cast<llvm::FixedVectorType>(like->getType());
  return type == nullptr || has_lanes(scalar)
             ? scalar
             : ir_.CreateVectorSplat(type->getNumElements(), scalar);
}

Value* Emitter::value(Val val) {
  for (size_t i = levels_.size(); i-- > 0;) {
    std::unordered_map<Val, Value*>::iterator it = levels_[i].scalars.find(val);
    if (it != levels_[i].scalars.end()) return it->second;
  }
  // Operands first and without recursion: expressions may be as deep as the user's program.
  std::vector<Val> roots{val};
  for (Val part : loop::reachable(roots)) {
    bool known = false;
    for (const Level& level : levels_) known |= level.scalars.count(part) != 0;
    if (!known) {
      // Sequenced before the map is touched: compute may grow it.
      Value* computed = compute(part);
      levels_.back().scalars[part] = computed;
    }
  }
  return levels_.back().scalars.count(val) ? levels_.back().scalars.at(val) : value(val);
}

Value* Emitter::constant(Val val) {
  llvm::Type* type = type_of(val->dtype);
  if (is_stored_as_bits(val->dtype))
    return llvm::ConstantInt::get(type,
                                  loop::f32_to_small(val->dtype, static_cast<float>(val->number)));
  if (is_float(val->dtype)) return llvm::ConstantFP::get(type, val->number);
  return llvm::ConstantInt::get(type, static_cast<uint64_t>(val->integer), true);
}

Value* Emitter::compute(Val val) {
  if (Value* truth = compare_positions(val)) return truth;
  std::vector<Value*> args;
  bool any_lanes = false;
  for (Val arg : val->args) {
    args.push_back(value(arg));
    any_lanes |= has_lanes(args.back());
  }
  bool own_operands = val->opcode == Opcode::load || val->opcode == Opcode::index ||
                      val->opcode == Opcode::check || val->opcode == Opcode::philox;
  if (any_lanes && !own_operands)
    for (Value*& arg : args) arg = as_lanes(arg);
  switch (val->opcode) {
    case Opcode::constant: return constant(val);
    case Opcode::index: return index_value(val->index);
    case Opcode::load: return load(val);
    case Opcode::local: return locals_.at(val->slot);
    case Opcode::check: return check(val);
    case Opcode::philox: return philox(val);
    case Opcode::fma: return fma(val->dtype, args);
    case Opcode::pack: return pack(*val, args);
    case Opcode::select: return ir_.CreateSelect(args[0], args[1], args[2]);
    case Opcode::cast:
      if (Value* integer = quantized(val)) return integer;
      return cast(args[0], val->args[0]->dtype, val->dtype);
    case Opcode::bitcast: {
      llvm::Type* type = type_of(val->dtype);
      if (llvm::FixedVectorType* lanes = llvm::dyn_cast<llvm::FixedVectorType>(args[0]->getType()))
        type = llvm::FixedVectorType::get(type, lanes->getNumElements());
      return ir_.CreateBitCast(args[0], type);
    }
    default: return args.size() == 1 ? unary(val, args[0]) : binary(val, args[0], args[1]);
  }
}

Value* Emitter::unary(Val val, Value* x) {
  if (std::optional<MathFunction> function = math_function(val->opcode))
    return emit_math(ir_, *function, x);
  bool floats = is_float(val->dtype);
  switch (val->opcode) {
    case Opcode::neg: return floats ? ir_.CreateFNeg(x) : ir_.CreateNeg(x);
    case Opcode::abs:
      if (floats) return ir_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x);
      if (!is_signed(val->dtype)) return x;
      return ir_.CreateBinaryIntrinsic(llvm::Intrinsic::abs, x, ir_.getFalse());
    case Opcode::sqrt: return ir_.CreateUnaryIntrinsic(llvm::Intrinsic::sqrt, x);
    case Opcode::ceil: return ir_.CreateUnaryIntrinsic(llvm::Intrinsic::ceil, x);
    case Opcode::floor: return ir_.CreateUnaryIntrinsic(llvm::Intrinsic::floor, x);
    case Opcode::round: return ir_.CreateUnaryIntrinsic(llvm::Intrinsic::roundeven, x);
    case Opcode::trunc: return ir_.CreateUnaryIntrinsic(llvm::Intrinsic::trunc, x);
    case Opcode::logical_not:
    case Opcode::bit_not: return ir_.CreateNot(x);
    default: break;
  }
  TD_CHECK(false) << "unary " << name_of(val->opcode);
  return nullptr;
}

Value* Emitter::binary(Val val, Value* a, Value* b) {
  DType dtype = val->args[0]->dtype;
  bool floats = is_float(dtype);
  bool is_signed_type = is_signed(dtype);
  switch (val->opcode) {
    case Opcode::add: return floats ? ir_.CreateFAdd(a, b) : ir_.CreateAdd(a, b);
    case Opcode::sub: return floats ? ir_.CreateFSub(a, b) : ir_.CreateSub(a, b);
    case Opcode::mul: return floats ? ir_.CreateFMul(a, b) : ir_.CreateMul(a, b);
    case Opcode::div:
      return floats ? ir_.CreateFDiv(a, b) : divide_integers(a, b, is_signed_type, false);
    case Opcode::floor_div:
      if (floats) return ir_.CreateUnaryIntrinsic(llvm::Intrinsic::floor, ir_.CreateFDiv(a, b));
      return divide_integers(a, b, is_signed_type, true);
    case Opcode::fmod:
      if (floats) return per_lane_call(dtype == DType::f64 ? "fmod" : "fmodf", a, b);
      return ir_.CreateSub(a, ir_.CreateMul(divide_integers(a, b, is_signed_type, false), b));
    case Opcode::pow:
      return floats ? emit_math(ir_, MathFunction::pow, a, b) : int_power(a, b, is_signed_type);
    case Opcode::min: return extremum(a, b, dtype, false);
    case Opcode::max: return extremum(a, b, dtype, true);
    case Opcode::bit_and: return ir_.CreateAnd(a, b);
    case Opcode::bit_or: return ir_.CreateOr(a, b);
    case Opcode::bit_xor: return ir_.CreateXor(a, b);
    case Opcode::shift_left: return ir_.CreateShl(a, b);
    case Opcode::shift_right: return is_signed_type ? ir_.CreateAShr(a, b) : ir_.CreateLShr(a, b);
    default: return compare(val, a, b);
  }
}

Value* Emitter::fma(DType dtype, const std::vector<Value*>& args) {
  if (!is_float(dtype)) return ir_.CreateAdd(ir_.CreateMul(args[0], args[1]), args[2]);
  return ir_.CreateIntrinsic(llvm::Intrinsic::fma, {args[0]->getType()}, args);
}

namespace {

llvm::CmpInst::Predicate predicate_of(Opcode opcode) {
  using Predicate = llvm::CmpInst::Predicate;
  static constexpr Predicate kSigned[] = {Predicate::ICMP_EQ,  Predicate::ICMP_NE,
                                          Predicate::ICMP_SLT, Predicate::ICMP_SLE,
                                          Predicate::ICMP_SGT, Predicate::ICMP_SGE};
  return kSigned[static_cast<int>(opcode) - static_cast<int>(Opcode::eq)];
}

}  // namespace

Value* Emitter::compare(Val val, Value* a, Value* b) {
  using Predicate = llvm::CmpInst::Predicate;
  DType dtype = val->args[0]->dtype;
  int number = static_cast<int>(val->opcode) - static_cast<int>(Opcode::eq);
  static constexpr Predicate kFloat[] = {Predicate::FCMP_OEQ, Predicate::FCMP_UNE,
                                         Predicate::FCMP_OLT, Predicate::FCMP_OLE,
                                         Predicate::FCMP_OGT, Predicate::FCMP_OGE};
  static constexpr Predicate kUnsigned[] = {Predicate::ICMP_EQ,  Predicate::ICMP_NE,
                                            Predicate::ICMP_ULT, Predicate::ICMP_ULE,
                                            Predicate::ICMP_UGT, Predicate::ICMP_UGE};
  TD_CHECK(number >= 0 && number < 6) << "binary " << name_of(val->opcode);
  if (is_float(dtype)) return ir_.CreateFCmp(kFloat[number], a, b);
  return ir_.CreateICmp(is_signed(dtype) ? predicate_of(val->opcode) : kUnsigned[number], a, b);
}

/// Of positions whose difference rises or falls by one a lane: the number of the lane is compared
/// with the one where they are equal, in 8 bits, as bounds behind the lanes tell all of them alike.
/// Null of others.
Value* Emitter::compare_positions(Val val) {
  constexpr int kMostLanes = 64;
  const bool is_compare = val->opcode >= Opcode::eq && val->opcode <= Opcode::ge;
  if (!is_compare || lanes_ == 1 || lanes_ > kMostLanes) return nullptr;
  const std::optional<sym::Expr> left = loop::position_of(val->args[0]);
  const std::optional<sym::Expr> right = loop::position_of(val->args[1]);
  if (!left || !right) return nullptr;
  const std::optional<sym::Affine> difference = sym::affine_in(*left - *right, vector_axis_);
  const bool falls = difference && difference->coefficient == sym::Expr(-1);
  if (!difference || (!falls && difference->coefficient != sym::Expr(1))) return nullptr;
  Value* rest = index_value(difference->rest);
  if (has_lanes(rest)) return nullptr;
  // rest + (at + lane) = 0, or rest - (at + lane) = 0
  Value* at = symbols_.at(vector_axis_);
  Value* equal = falls ? ir_.CreateSub(rest, at) : ir_.CreateNeg(ir_.CreateAdd(rest, at));
  equal = ir_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, equal, ir_.getInt64(-1));
  equal = ir_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, equal, ir_.getInt64(lanes_));
  llvm::Type* bytes = llvm::FixedVectorType::get(ir_.getInt8Ty(), static_cast<unsigned>(lanes_));
  llvm::CmpInst::Predicate predicate = predicate_of(val->opcode);
  if (falls) predicate = llvm::CmpInst::getSwappedPredicate(predicate);
  return ir_.CreateICmp(predicate, ir_.CreateStepVector(bytes),
                        as_lanes(ir_.CreateTrunc(equal, ir_.getInt8Ty())));
}

/// NaN wins, and of equal operands the first: b > a ? b : a is a where either is NaN, one
/// instruction of the processor, and what is left to look at is a NaN of b.
Value* Emitter::extremum(Value* a, Value* b, DType dtype, bool max) {
  if (is_float(dtype)) {
    Value* picked = ir_.CreateSelect(max ? ir_.CreateFCmpOGT(b, a) : ir_.CreateFCmpOLT(b, a), b, a);
    return is_a_number(b) ? picked : ir_.CreateSelect(ir_.CreateFCmpUNO(b, b), b, picked);
  }
  bool is_signed_type = is_signed(dtype);
  llvm::Intrinsic::ID id = max ? (is_signed_type ? llvm::Intrinsic::smax : llvm::Intrinsic::umax)
                               : (is_signed_type ? llvm::Intrinsic::smin : llvm::Intrinsic::umin);
  return ir_.CreateBinaryIntrinsic(id, a, b);
}

/// The processor traps on a divisor 0 and on INT_MIN / -1; the IR says 0 and wrap-around. Divisors
/// 0 and -1 become 1 by additions: LLVM 19 moves a division into a select, and where lanes are
/// constants, one lane of which is 0, it then drops the division of all lanes as undefined.
Value* Emitter::divide_integers(Value* a, Value* b, bool is_signed_type, bool floor) {
  Value* zero = llvm::Constant::getNullValue(a->getType());
  Value* by_zero = ir_.CreateICmpEQ(b, zero);
  Value* safe = ir_.CreateAdd(b, ir_.CreateZExt(by_zero, b->getType()));
  if (!is_signed_type) return ir_.CreateSelect(by_zero, zero, ir_.CreateUDiv(a, safe));
  Value* by_minus_one = ir_.CreateICmpEQ(b, llvm::Constant::getAllOnesValue(b->getType()));
  safe = ir_.CreateAdd(safe, ir_.CreateShl(ir_.CreateZExt(by_minus_one, b->getType()), 1));
  Value* quotient = ir_.CreateSDiv(a, safe);
  if (floor) {
    Value* rest = ir_.CreateSub(a, ir_.CreateMul(quotient, safe));
    Value* crosses = ir_.CreateAnd(ir_.CreateICmpNE(rest, zero),
                                   ir_.CreateICmpSLT(ir_.CreateXor(rest, safe), zero));
    quotient = ir_.CreateSub(quotient, ir_.CreateZExt(crosses, a->getType()));
  }
  quotient = ir_.CreateSelect(by_minus_one, ir_.CreateNeg(a), quotient);
  return ir_.CreateSelect(by_zero, zero, quotient);
}

/// By squares, all bits of the exponent, wrapping around. A negative exponent gives the true power
/// truncated: 0 unless the base is 1 or -1.
Value* Emitter::int_power(Value* base, Value* exponent, bool is_signed_type) {
  llvm::Type* type = base->getType();
  Value* zero = llvm::Constant::getNullValue(type);
  Value* one = llvm::ConstantInt::get(type, 1);
  Value* minus_one = llvm::Constant::getAllOnesValue(type);
  Value* is_odd = ir_.CreateICmpNE(ir_.CreateAnd(exponent, one), zero);
  Value* result = ir_.CreateSelect(is_odd, base, one);
  unsigned bits = type->getScalarSizeInBits() - (is_signed_type ? 1 : 0);
  Value* square = base;
  for (unsigned bit = 1; bit < bits; ++bit) {
    square = ir_.CreateMul(square, square);
    Value* mask = llvm::ConstantInt::get(type, uint64_t{1} << bit);
    Value* is_set = ir_.CreateICmpNE(ir_.CreateAnd(exponent, mask), zero);
    result = ir_.CreateSelect(is_set, ir_.CreateMul(result, square), result);
  }
  if (!is_signed_type) return result;
  Value* sign = ir_.CreateSelect(is_odd, minus_one, one);
  Value* inverse = ir_.CreateSelect(ir_.CreateICmpEQ(base, minus_one), sign, zero);
  inverse = ir_.CreateSelect(ir_.CreateICmpEQ(base, one), one, inverse);
  return ir_.CreateSelect(ir_.CreateICmpSLT(exponent, zero), inverse, result);
}

Value* Emitter::per_lane_call(const char* name, Value* a, Value* b) {
  llvm::Type* type = a->getType()->getScalarType();
  llvm::FunctionCallee callee =
      module_.getOrInsertFunction(name, llvm::FunctionType::get(type, {type, type}, false));
  llvm::FixedVectorType* lanes = llvm::dyn_cast<llvm::FixedVectorType>(a->getType());
  if (lanes == nullptr) return ir_.CreateCall(callee, {a, b});
  Value* result = llvm::PoisonValue::get(lanes);
  for (unsigned i = 0; i < lanes->getNumElements(); ++i) {
    Value* lane =
        ir_.CreateCall(callee, {ir_.CreateExtractElement(a, i), ir_.CreateExtractElement(b, i)});
    result = ir_.CreateInsertElement(result, lane, i);
  }
  return result;
}

Value* Emitter::cast(Value* x, DType from, DType to) {
  auto like = [&](llvm::Type* scalar) { return like_lanes(scalar, x); };
  if (from == to) return x;
  if (is_stored_as_bits(from)) return cast(widen_small(ir_, x, from), DType::f32, to);
  if (is_stored_as_bits(to)) return round_small(ir_, cast(x, from, DType::f32), to);
  if (from == DType::f16 && to != DType::f32)
    return cast(ir_.CreateFPExt(x, like(ir_.getFloatTy())), DType::f32, to);
  if (to == DType::boolean) {
    Value* zero = llvm::Constant::getNullValue(x->getType());
    return is_float(from) ? ir_.CreateFCmpUNE(x, zero) : ir_.CreateICmpNE(x, zero);
  }
  llvm::Type* target = like(type_of(to));
  if (is_float(from) && is_float(to))
    return size_of(to) > size_of(from) ? ir_.CreateFPExt(x, target) : ir_.CreateFPTrunc(x, target);
  if (is_float(from)) {  // through i64 so that small types wrap as in eager
    Value* wide = ir_.CreateFreeze(
        ir_.CreateFPToSI(x, like(to == DType::i64 ? ir_.getInt64Ty() : ir_.getInt32Ty())));
    return ir_.CreateIntCast(wide, target, true);
  }
  if (is_float(to)) {
    bool is_signed_type = is_signed(from);
    if (to == DType::f16) return cast(cast(x, from, DType::f32), DType::f32, to);
    return is_signed_type ? ir_.CreateSIToFP(x, target) : ir_.CreateUIToFP(x, target);
  }
  return ir_.CreateIntCast(x, target, is_signed(from));
}

Value* Emitter::check(Val val) {
  Value* holds = value(val->args[0]);
  Value* fails = ir_.CreateNot(holds);
  if (lanes_ > 1 && has_lanes(fails)) {
    if (tail_mask_ != nullptr) fails = ir_.CreateAnd(fails, tail_mask_);
    fails = ir_.CreateOrReduce(fails);
  }
  llvm::BasicBlock* failed = llvm::BasicBlock::Create(context_, "failed", function_);
  llvm::BasicBlock* passed = llvm::BasicBlock::Create(context_, "passed", function_);
  ir_.CreateCondBr(fails, failed, passed);
  ir_.SetInsertPoint(failed);
  emit_return(val->slot + 1);
  ir_.SetInsertPoint(passed);
  return value(val->args[1]);
}

// --- random bits
// ------------------------------------------------------------------------------------

/// Four words of each counter: loop/random.h in vectors.
std::array<Value*, 4> Emitter::philox_block(Value* seed, Value* stream, Value* counter) {
  llvm::FixedVectorType* lanes = llvm::dyn_cast<llvm::FixedVectorType>(counter->getType());
  auto like = [&](llvm::Type* type) -> llvm::Type* {
    return lanes == nullptr ? type : llvm::FixedVectorType::get(type, lanes->getNumElements());
  };
  llvm::Type* i32 = like(ir_.getInt32Ty());
  auto half = [&](Value* x, int shift) {
    return ir_.CreateTrunc(shift ? ir_.CreateLShr(x, shift) : x, i32);
  };
  auto number = [&](uint32_t x) { return llvm::ConstantInt::get(i32, x); };
  seed = splat_like(seed, counter);
  stream = splat_like(stream, counter);
  std::array<Value*, 4> c = {half(counter, 0), half(counter, 32), half(stream, 0),
                             half(stream, 32)};
  Value* k0 = half(seed, 0);
  Value* k1 = half(seed, 32);
  auto multiply = [&](Value* x, uint32_t by) {
    llvm::Type* i64 = like(ir_.getInt64Ty());
    return ir_.CreateMul(ir_.CreateZExt(x, i64), llvm::ConstantInt::get(i64, by));
  };
  for (int round = 0; round < loop::kPhiloxRounds; ++round) {
    Value* p0 = multiply(c[0], loop::kPhiloxM0);
    Value* p1 = multiply(c[2], loop::kPhiloxM1);
    c = {ir_.CreateXor(ir_.CreateXor(half(p1, 32), c[1]), k0), half(p1, 0),
         ir_.CreateXor(ir_.CreateXor(half(p0, 32), c[3]), k1), half(p0, 0)};
    k0 = ir_.CreateAdd(k0, number(loop::kPhiloxW0));
    k1 = ir_.CreateAdd(k1, number(loop::kPhiloxW1));
  }
  return c;
}

Value* Emitter::philox(Val val) {
  Value* seed = value(val->args[0]);
  Value* stream = value(val->args[1]);
  Val element = val->args[2];
  // 64 aligned neighbours are the four words of 16 counters: one block for all lanes.
  std::optional<sym::Affine> affine;
  if (lanes_ == 64 && element->opcode == Opcode::index)
    affine = sym::affine_in(element->index, vector_axis_);
  if (affine && affine->coefficient == sym::Expr(1) && sym::known_divisible(affine->rest, 64)) {
    Value* first = ir_.CreateLShr(uniform_index(element->index), 2);
    llvm::Type* type = llvm::FixedVectorType::get(ir_.getInt64Ty(), 16);
    Value* counter = ir_.CreateAdd(ir_.CreateVectorSplat(16, first), ir_.CreateStepVector(type));
    std::array<Value*, 4> words = philox_block(seed, stream, counter);
    std::vector<int> all(32);
    for (int i = 0; i < 32; ++i) all[i] = i;
    Value* low = ir_.CreateShuffleVector(words[0], words[1], all);
    Value* high = ir_.CreateShuffleVector(words[2], words[3], all);
    all.resize(64);
    for (int i = 32; i < 64; ++i) all[i] = i;
    return ir_.CreateShuffleVector(low, high, all);
  }
  Value* e = value(element);
  auto number = [&](int64_t x) {
    return llvm::ConstantInt::get(e->getType(), static_cast<uint64_t>(x));
  };
  Value* counter = ir_.CreateAdd(ir_.CreateShl(ir_.CreateLShr(e, number(6)), number(4)),
                                 ir_.CreateAnd(e, number(15)));
  Value* word = ir_.CreateAnd(ir_.CreateLShr(e, number(4)), number(3));
  std::array<Value*, 4> words = philox_block(seed, stream, counter);
  Value* result = words[3];
  for (int i = 2; i >= 0; --i)
    result = ir_.CreateSelect(ir_.CreateICmpEQ(word, number(i)), words[i], result);
  return result;
}

}  // namespace tandem::codegen
