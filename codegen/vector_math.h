// Vector math as inline LLVM IR: any lane count, right at NaN, infinities, zeros and denormals.
#pragma once

#include <cstdint>
#include <string_view>

namespace llvm {
class IRBuilderBase;
class Value;
}  // namespace llvm

namespace tandem::codegen {

enum class MathFunction : uint8_t {
  exp,
  expm1,
  log,
  log1p,
  log2,
  sin,
  cos,
  tanh,
  lgamma,
  erf,
  pow
};
std::string_view name_of(MathFunction function);

/// Emits function(x) (pow: function(x, y)) for float or double, scalar or fixed vector, at the
/// builder's insertion point. f32: straight-line polynomials, at most 2 ulp over the whole range,
/// the same bits for every lane count and CPU. f64, and lgamma of f32 through f64: libm, called
/// lane by lane. The enclosing function's target must have fma (or each llvm.fma becomes a slow
/// call) and must not flush denormals.
llvm::Value* emit_math(llvm::IRBuilderBase& builder, MathFunction function, llvm::Value* x,
                       llvm::Value* y = nullptr);

}  // namespace tandem::codegen
