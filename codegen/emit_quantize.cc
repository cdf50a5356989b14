// Problem: quantization ends in round, shift by the zero point, clamp, convert, which are seven
// instructions for what a processor's addition does in one. Approach: such a chain is seen as a
// whole. With whole numbers z, low and high,
//   clamp(round(v) + z, low, high) = round(clamp(v, low - z, high - z)) + z,
// since rounding keeps order and leaves whole numbers as they are. What is clamped is small, and
//   v + 1.5 * 2^23
// has no bits below 1: the addition rounds, half to even as 1.5 * 2^23 is even, and the low bits of
// the sum are those of the integer. A NaN becomes 0, as it does by conversion. AVX-512 narrows to
// u8 with saturation, which does the upper bound as well.
#include <cmath>

#include "codegen/emit.h"

namespace tandem::codegen {

using llvm::Value;
using loop::Opcode;
using loop::Val;

namespace {

constexpr double kShift = 12582912;    // 1.5 * 2^23
constexpr double kFarthest = 1 << 21;  // sums keep the exponent of kShift
constexpr int64_t kMostBytes = 2;      // of the integers, which are low bits of the sum

/// clamp(round(value) + zero, low, high)
struct Rounded {
  Val value = nullptr;
  double zero = 0;
  double low = 0;
  double high = 0;
};

std::optional<double> whole_number(Val val) {
  const bool is_small = val->opcode == Opcode::constant && val->dtype == DType::f32 &&
                        std::abs(val->number) <= kFarthest;
  if (!is_small || val->number != std::floor(val->number)) return std::nullopt;
  return val->number;
}

/// The other operand of `opcode`, and the whole number that is the second one.
bool take(Val& val, Opcode opcode, double& number) {
  if (val->opcode != opcode) return false;
  const std::optional<double> found = whole_number(val->args[1]);
  if (!found) return false;
  number = *found;
  val = val->args[0];
  return true;
}

std::optional<Rounded> rounded(Val cast) {
  Rounded found;
  Val at = cast->args[0];
  if (at->dtype != DType::f32 || !is_int(cast->dtype) || size_of(cast->dtype) > kMostBytes)
    return std::nullopt;
  if (!take(at, Opcode::min, found.high) || !take(at, Opcode::max, found.low)) return std::nullopt;
  if (!take(at, Opcode::add, found.zero)) found.zero = 0;
  if (at->opcode != Opcode::round || found.low > found.high) return std::nullopt;
  found.value = at->args[0];
  return found;
}

/// `val` without a max and a min that leave it, scaled and rounded, within [low, high] or beyond.
Val without_bounds(Val val, float scale, double low, double high) {
  for (;;) {
    const bool is_bound = (val->opcode == Opcode::max || val->opcode == Opcode::min) &&
                          val->args[1]->opcode == Opcode::constant;
    if (!is_bound) return val;
    const double bound = std::nearbyint(static_cast<float>(val->args[1]->number) * scale);
    const bool is_beyond = val->opcode == Opcode::max ? bound <= low : bound >= high;
    if (!is_beyond) return val;
    val = val->args[0];
  }
}

}  // namespace

/// What is rounded, less the bounds of an activation before the scale that are beyond those of the
/// integers: scaling and rounding keep order, so they change nothing. A NaN stays one through both.
///   clamp(round(max(x, a) * s), low, high) = clamp(round(x * s), low, high)   where round(a * s)
/// is low or less, and the same of min(x, b).
Value* Emitter::scaled_number(Val val, double low, double high) {
  const bool is_scaled = val->opcode == Opcode::mul && val->args[1]->opcode == Opcode::constant &&
                         val->args[1]->number > 0 && std::isfinite(val->args[1]->number);
  const float scale = is_scaled ? static_cast<float>(val->args[1]->number) : 1.0F;
  const Val inside = is_scaled ? val->args[0] : val;
  const Val x = without_bounds(inside, scale, low, high);
  if (!is_scaled || x == inside) return value(x == inside ? val : x);
  Value* factor = value(val->args[1]);
  Value* number = value(x);
  return ir_.CreateFMul(number, has_lanes(number) ? as_lanes(factor) : factor);
}

/// To all of u8, by a processor that narrows with saturation: a float beyond i32 becomes its least,
/// 2^31 as an unsigned number, and so 255. `x` is -zero or more.
Value* Emitter::saturated_byte(Value* x, int64_t zero) {
  constexpr unsigned kLanes = 16;
  constexpr uint32_t kCurrentRounding = 4;  // the processor's: half to even
  const unsigned lanes = llvm::cast<llvm::FixedVectorType>(x->getType())->getNumElements();
  auto* type = llvm::FixedVectorType::get(ir_.getInt32Ty(), kLanes);
  llvm::SmallVector<Value*, 4> registers;
  for (unsigned at = 0; at < lanes; at += kLanes) {
    Value* part = ir_.CreateShuffleVector(x, llvm::createSequentialMask(at, kLanes, 0));
    registers.push_back(
        ir_.CreateIntrinsic(llvm::Intrinsic::x86_avx512_mask_cvtps2dq_512, {},
                            {part, llvm::Constant::getNullValue(type), ir_.getInt16(0xFFFF),
                             ir_.getInt32(kCurrentRounding)}));
  }
  Value* bits = llvm::concatenateVectors(ir_, registers);
  const auto number = [&](int64_t each) {
    return llvm::ConstantInt::get(bits->getType(), static_cast<uint64_t>(each), true);
  };
  if (zero != 0) bits = ir_.CreateAdd(bits, number(zero));
  bits = ir_.CreateBinaryIntrinsic(llvm::Intrinsic::umin, bits, number(255));
  return ir_.CreateTrunc(bits, llvm::FixedVectorType::get(ir_.getInt8Ty(), lanes));
}

/// Of a number between low - zero and high - zero.
Value* Emitter::rounded_by_shift(Value* x, DType dtype, int64_t zero) {
  Value* sum = ir_.CreateFAdd(x, llvm::ConstantFP::get(x->getType(), kShift));
  llvm::Type* type = type_of(DType::i32);
  llvm::Type* narrow = type_of(dtype);
  if (const auto* lanes = llvm::dyn_cast<llvm::FixedVectorType>(x->getType())) {
    type = llvm::FixedVectorType::get(type, lanes->getNumElements());
    narrow = llvm::FixedVectorType::get(narrow, lanes->getNumElements());
  }
  Value* bits = ir_.CreateBitCast(sum, type);
  if (zero != 0)
    bits = ir_.CreateAdd(bits, llvm::ConstantInt::get(type, static_cast<uint64_t>(zero), true));
  return ir_.CreateTrunc(bits, narrow);
}

/// The quantization that the cast ends; nothing where it is none.
Value* Emitter::quantized(Val cast) {
  const std::optional<Rounded> found = rounded(cast);
  if (!found) return nullptr;
  const double least = found->low - found->zero;
  const double most = found->high - found->zero;
  const int64_t zero = static_cast<int64_t>(found->zero);
  Value* x = scaled_number(found->value, least, most);
  const auto number = [&](double each) { return llvm::ConstantFP::get(x->getType(), each); };
  // A NaN is not greater, and becomes the least.
  Value* clamped = ir_.CreateSelect(ir_.CreateFCmpOGT(x, number(least)), x, number(least));
  if (cast->dtype == DType::u8 && found->low == 0 && found->high == 255 && narrows_at_once(x))
    return saturated_byte(clamped, zero);
  clamped = ir_.CreateSelect(ir_.CreateFCmpOLT(clamped, number(most)), clamped, number(most));
  Value* narrow = rounded_by_shift(clamped, cast->dtype, zero);
  if (found->low == 0) return narrow;
  Value* is_number = ir_.CreateFCmpORD(x, x);
  return ir_.CreateSelect(is_number, narrow, llvm::Constant::getNullValue(narrow->getType()));
}

/// Registers of 16 lanes, to bytes.
bool Emitter::narrows_at_once(Value* x) const {
  const auto* lanes = llvm::dyn_cast<llvm::FixedVectorType>(x->getType());
  return lanes != nullptr && lanes->getNumElements() % 16 == 0 && has_feature("avx512f");
}

}  // namespace tandem::codegen
