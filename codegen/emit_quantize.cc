// Problem: quantization ends in round, shift by the zero point, clamp, convert, which are seven
// instructions for what a processor's addition does in one. Approach: such a chain is seen as a
// whole. With whole numbers z, low and high,
//   clamp(round(v) + z, low, high) = round(clamp(v, low - z, high - z)) + z,
// since rounding keeps order and leaves whole numbers as they are. What is clamped is small, and
//   v + 1.5 * 2^23
// has no bits below 1: the addition rounds, half to even as 1.5 * 2^23 is even, and the low bits of
// the sum are those of the integer. A NaN becomes 0, as it does by conversion.
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

/// A value that is only asked for where it is positive: max(x, 0) is x there, scaled or not.
Val without_relu(Val val) {
  const auto is_relu = [](Val each) {
    return each->opcode == Opcode::max && each->args[1]->opcode == Opcode::constant &&
           each->args[1]->number == 0;
  };
  return is_relu(val) ? val->args[0] : val;
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

}  // namespace

/// Below 0 all is clamped to 0, so an activation max(x, 0) in front of the scale does nothing more.
Value* Emitter::scaled_number(Val val, bool is_positive) {
  if (!is_positive) return value(val);
  const bool is_scaled = val->opcode == Opcode::mul && val->args[1]->opcode == Opcode::constant &&
                         val->args[1]->number > 0 && std::isfinite(val->args[1]->number);
  if (!is_scaled) return value(without_relu(val));
  Value* x = value(without_relu(val->args[0]));
  Value* scale = value(val->args[1]);
  return ir_.CreateFMul(x, has_lanes(x) ? as_lanes(scale) : scale);
}

/// The quantization that the cast ends; nothing where it is none.
Value* Emitter::quantized(Val cast) {
  const std::optional<Rounded> found = rounded(cast);
  if (!found) return nullptr;
  const double least = found->low - found->zero;
  Value* x = scaled_number(found->value, least == 0);
  const auto number = [&](double each) { return llvm::ConstantFP::get(x->getType(), each); };
  Value* low = number(least);
  Value* high = number(found->high - found->zero);
  // A NaN is not greater, and becomes the least.
  Value* clamped = ir_.CreateSelect(ir_.CreateFCmpOGT(x, low), x, low);
  clamped = ir_.CreateSelect(ir_.CreateFCmpOLT(clamped, high), clamped, high);
  Value* sum = ir_.CreateFAdd(clamped, number(kShift));
  llvm::Type* type = type_of(DType::i32);
  llvm::Type* narrow = type_of(cast->dtype);
  if (const auto* lanes = llvm::dyn_cast<llvm::FixedVectorType>(x->getType())) {
    type = llvm::FixedVectorType::get(type, lanes->getNumElements());
    narrow = llvm::FixedVectorType::get(narrow, lanes->getNumElements());
  }
  Value* bits = ir_.CreateBitCast(sum, type);
  if (found->zero != 0)
    bits = ir_.CreateAdd(
        bits, llvm::ConstantInt::get(type, static_cast<uint64_t>(static_cast<int64_t>(found->zero)),
                                     true));
  if (found->low != 0)
    bits = ir_.CreateSelect(ir_.CreateFCmpORD(x, x), bits, llvm::Constant::getNullValue(type));
  return ir_.CreateTrunc(bits, narrow);
}

}  // namespace tandem::codegen
