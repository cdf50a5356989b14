// Spelling of lane-wise IR for vector_math*.cc. Nothing here sets fast-math flags or emits control
// flow.
#pragma once

#include <llvm/IR/IRBuilder.h>

#include <cstdint>
#include <span>

namespace tandem::codegen {

/// Names the IR operations of one emitted function: f32 lanes, their bits as i32 lanes, and the f64
/// lanes that trigonometric reduction and pow compute in. Works alike for scalars and fixed
/// vectors.
class Lanes {
 public:
  using Value = llvm::Value;

  Lanes(llvm::IRBuilderBase& builder, llvm::Type* type)
      : builder_(builder),
        f32_(type),
        i32_(type->getWithNewType(builder.getInt32Ty())),
        f64_(type->getWithNewType(builder.getDoubleTy())),
        i64_(type->getWithNewType(builder.getInt64Ty())) {}

  llvm::IRBuilderBase& builder() { return builder_; }
  llvm::Type* type() const { return f32_; }

  Value* f32(double value) { return llvm::ConstantFP::get(f32_, value); }
  Value* f64(double value) { return llvm::ConstantFP::get(f64_, value); }
  Value* i32(int64_t value) { return llvm::ConstantInt::get(i32_, static_cast<uint32_t>(value)); }
  Value* i64(int64_t value) { return llvm::ConstantInt::get(i64_, static_cast<uint64_t>(value)); }
  /// A constant of x's own width.
  Value* like(Value* x, double value) { return llvm::ConstantFP::get(x->getType(), value); }

  Value* add(Value* a, Value* b) { return builder_.CreateFAdd(a, b); }
  Value* sub(Value* a, Value* b) { return builder_.CreateFSub(a, b); }
  Value* mul(Value* a, Value* b) { return builder_.CreateFMul(a, b); }
  Value* div(Value* a, Value* b) { return builder_.CreateFDiv(a, b); }
  Value* neg(Value* a) { return builder_.CreateFNeg(a); }
  Value* fma(Value* a, Value* b, Value* c) {
    return builder_.CreateIntrinsic(llvm::Intrinsic::fma, {a->getType()}, {a, b, c});
  }
  Value* abs(Value* x) { return builder_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x); }
  Value* rint(Value* x) { return builder_.CreateUnaryIntrinsic(llvm::Intrinsic::rint, x); }

  Value* less(Value* a, Value* b) { return builder_.CreateFCmpOLT(a, b); }
  Value* equal(Value* a, Value* b) { return builder_.CreateFCmpOEQ(a, b); }
  Value* select(Value* c, Value* a, Value* b) { return builder_.CreateSelect(c, a, b); }
  /// One vminps/vmaxps each; written so that a NaN x comes out as x.
  Value* at_most(Value* x, double limit) {
    Value* bound = like(x, limit);
    return select(less(bound, x), bound, x);
  }
  Value* at_least(Value* x, double limit) {
    Value* bound = like(x, limit);
    return select(builder_.CreateFCmpOGT(bound, x), bound, x);
  }

  Value* bits(Value* x) {
    return builder_.CreateBitCast(x, x->getType()->getScalarType()->isFloatTy() ? i32_ : i64_);
  }
  Value* from_bits(Value* x) {
    return builder_.CreateBitCast(x, x->getType()->getScalarSizeInBits() == 32 ? f32_ : f64_);
  }
  Value* sign_bit(Value* x) { return builder_.CreateAnd(bits(x), i32(0x80000000)); }
  /// x where x is known to have the wanted sign or to be +0 (NaN stays NaN).
  Value* with_sign(Value* x, Value* sign) { return from_bits(builder_.CreateOr(bits(x), sign)); }

  Value* widen(Value* x) { return builder_.CreateFPExt(x, f64_); }
  Value* narrow(Value* x) { return builder_.CreateFPTrunc(x, f32_); }
  Value* to_float(Value* integer) { return builder_.CreateSIToFP(integer, f32_); }
  Value* to_int(Value* x) { return builder_.CreateFPToSI(x, i32_); }

  /// c[0] + c[1] x + c[2] x^2 + ... by Horner's rule.
  Value* polynomial(Value* x, std::span<const double> c) {
    Value* sum = like(x, c.back());
    for (size_t i = c.size() - 1; i-- > 0;) sum = fma(sum, x, like(x, c[i]));
    return sum;
  }

  /// An integer n = nearest(x * factor), held both ways. |n| must stay below 2^22 (f64: 2^51).
  struct Rounded {
    Value* number;   // n
    Value* shifted;  // 1.5 * 2^23 + n (f64: 1.5 * 2^52 + n): its low bits are n
  };
  Rounded nearest(Value* x, double factor) {
    Value* magic = like(x, is_f32(x) ? 0x1.8p23 : 0x1.8p52);
    Value* shifted = fma(x, like(x, factor), magic);
    return {sub(shifted, magic), shifted};
  }
  /// 2^n for n inside the exponent range of normal numbers; anything at all if n came from a NaN.
  Value* power_of_two(const Rounded& n) {
    if (is_f32(n.shifted)) return power_of_two_bits(bits(n.shifted));
    Value* exponent = builder_.CreateShl(bits(n.shifted), i64(52));
    return from_bits(builder_.CreateAdd(exponent, i64(0x3ffLL << 52)));
  }
  Value* power_of_two_bits(Value* n) {
    return from_bits(builder_.CreateAdd(builder_.CreateShl(n, i32(23)), i32(0x3f800000)));
  }

 private:
  static bool is_f32(Value* x) { return x->getType()->getScalarType()->isFloatTy(); }

  llvm::IRBuilderBase& builder_;
  llvm::Type* f32_;
  llvm::Type* i32_;
  llvm::Type* f64_;
  llvm::Type* i64_;
};

// Each emits its function of f32 lanes x at the builder's insertion point.
llvm::Value* emit_exp(Lanes& v, llvm::Value* x);
llvm::Value* emit_expm1(Lanes& v, llvm::Value* x);
llvm::Value* emit_tanh(Lanes& v, llvm::Value* x);
llvm::Value* emit_erf(Lanes& v, llvm::Value* x);
llvm::Value* emit_log(Lanes& v, llvm::Value* x);
llvm::Value* emit_log1p(Lanes& v, llvm::Value* x);
llvm::Value* emit_log2(Lanes& v, llvm::Value* x);
llvm::Value* emit_sin(Lanes& v, llvm::Value* x);
llvm::Value* emit_cos(Lanes& v, llvm::Value* x);
llvm::Value* emit_pow(Lanes& v, llvm::Value* x, llvm::Value* y);

}  // namespace tandem::codegen
