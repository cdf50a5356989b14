// Problem: no processor that we build for converts bf16 (without an extension) or 8-bit floats.
// Approach: the formulas of loop/small_floats.h on whole vectors, with selects for branches. 8-bit
// floats widen through f16, which has an instruction (F16C, part of AVX2 machines) that takes
// subnormal numbers without a penalty; they are rounded by additions on the bits of f32.
#include "codegen/small_floats.h"

#include <bit>

#include "loop/small_floats.h"

namespace tandem::codegen {
namespace {

using llvm::Value;

/// Integer and float arithmetic on values of one count of lanes.
class Lanes {
 public:
  Lanes(llvm::IRBuilderBase& ir, Value* like) : ir_(ir), like_(like) {}

  Value* number(llvm::Type* scalar, uint32_t bits) {
    return llvm::ConstantInt::get(like_lanes(scalar, like_), bits);
  }
  Value* u32(uint32_t bits) { return number(ir_.getInt32Ty(), bits); }
  Value* u16(uint32_t bits) { return number(ir_.getInt16Ty(), bits); }
  Value* as_float(Value* bits) {
    return ir_.CreateBitCast(bits, like_lanes(ir_.getFloatTy(), like_));
  }
  Value* as_bits(Value* value) {
    return ir_.CreateBitCast(value, like_lanes(ir_.getInt32Ty(), like_));
  }
  Value* widened(Value* bits, llvm::Type* scalar) {
    return ir_.CreateZExt(bits, like_lanes(scalar, like_));
  }
  Value* half_to_float(Value* bits) {
    Value* half = ir_.CreateBitCast(bits, like_lanes(ir_.getHalfTy(), like_));
    return ir_.CreateFPExt(half, like_lanes(ir_.getFloatTy(), like_));
  }

 private:
  llvm::IRBuilderBase& ir_;
  Value* like_;
};

Value* widen_bf16(llvm::IRBuilderBase& ir, Value* bits) {
  Lanes lanes(ir, bits);
  return lanes.as_float(ir.CreateShl(lanes.widened(bits, ir.getInt32Ty()), 16));
}

/// Half an ulp is added, less one where the kept bit is even. A NaN becomes the quiet one.
Value* round_bf16(llvm::IRBuilderBase& ir, Value* x) {
  Lanes lanes(ir, x);
  Value* bits = lanes.as_bits(x);
  Value* odd = ir.CreateAnd(ir.CreateLShr(bits, 16), lanes.u32(1));
  Value* rounded = ir.CreateAdd(bits, ir.CreateAdd(odd, lanes.u32(0x7FFF)));
  rounded = ir.CreateSelect(ir.CreateFCmpUNO(x, x), lanes.u32(0x7FC00000), rounded);
  return ir.CreateTrunc(ir.CreateLShr(rounded, 16), like_lanes(ir.getInt16Ty(), x));
}

Value* widen_f8(llvm::IRBuilderBase& ir, Value* bits, DType dtype) {
  Lanes lanes(ir, bits);
  Value* wide = lanes.widened(bits, ir.getInt16Ty());
  if (dtype == DType::f8e5m2) return lanes.half_to_float(ir.CreateShl(wide, 8));
  Value* sign = ir.CreateShl(ir.CreateAnd(wide, lanes.u16(0x80)), 8);
  Value* magnitude = ir.CreateAnd(wide, lanes.u16(0x7F));
  Value* is_nan = ir.CreateICmpEQ(magnitude, lanes.u16(loop::kFloat8NaN));
  Value* half = ir.CreateSelect(is_nan, lanes.u16(0x7E00), ir.CreateShl(magnitude, 7));
  Value* scaled = lanes.half_to_float(ir.CreateOr(sign, half));
  return ir.CreateFMul(scaled, llvm::ConstantFP::get(scaled->getType(), 0x1p8));
}

Value* round_f8(llvm::IRBuilderBase& ir, Value* x, DType dtype) {
  const loop::Float8Format format = loop::float8_format(dtype);
  const uint32_t drop = 23 - format.fraction;
  const uint32_t step = (128 - format.bias + drop) << 23;
  Lanes lanes(ir, x);
  Value* bits = lanes.as_bits(x);
  Value* magnitude = ir.CreateAnd(bits, lanes.u32(0x7FFFFFFF));
  Value* sum = ir.CreateFAdd(lanes.as_float(magnitude), lanes.as_float(lanes.u32(step)));
  Value* subnormal = ir.CreateSub(lanes.as_bits(sum), lanes.u32(step));
  Value* odd = ir.CreateAnd(ir.CreateLShr(magnitude, drop), lanes.u32(1));
  const uint32_t half = (1U << (drop - 1)) - 1 - ((127 - format.bias) << 23);
  Value* normal = ir.CreateLShr(ir.CreateAdd(ir.CreateAdd(magnitude, odd), lanes.u32(half)), drop);
  Value* is_subnormal = ir.CreateICmpULT(magnitude, lanes.u32((128 - format.bias) << 23));
  Value* kept = ir.CreateSelect(is_subnormal, subnormal, normal);
  const uint32_t limit = std::bit_cast<uint32_t>(format.too_large);
  kept = ir.CreateSelect(ir.CreateICmpUGE(magnitude, lanes.u32(limit)), lanes.u32(format.overflow),
                         kept);
  kept = ir.CreateSelect(ir.CreateFCmpUNO(x, x), lanes.u32(loop::kFloat8NaN), kept);
  Value* sign = ir.CreateAnd(ir.CreateLShr(bits, 24), lanes.u32(0x80));
  return ir.CreateTrunc(ir.CreateOr(sign, kept), like_lanes(ir.getInt8Ty(), x));
}

}  // namespace

bool is_stored_as_bits(DType dtype) { return dtype == DType::bf16 || is_float8(dtype); }

llvm::Type* like_lanes(llvm::Type* scalar, Value* value) {
  auto* lanes = llvm::dyn_cast<llvm::FixedVectorType>(value->getType());
  return lanes == nullptr ? scalar : llvm::FixedVectorType::get(scalar, lanes->getNumElements());
}

Value* widen_small(llvm::IRBuilderBase& ir, Value* bits, DType dtype) {
  return dtype == DType::bf16 ? widen_bf16(ir, bits) : widen_f8(ir, bits, dtype);
}

Value* round_small(llvm::IRBuilderBase& ir, Value* value, DType dtype) {
  return dtype == DType::bf16 ? round_bf16(ir, value) : round_f8(ir, value, dtype);
}

}  // namespace tandem::codegen
