// Entry of vector math: which recipe serves which element type.
//
// f32 lanes get inline polynomials (vector_math_exp_log.cc, vector_math_trig_pow.cc): straight-line
// code with explicit fma, so that every lane count gives the same bits and loops around it stay
// vector loops. f64 is rare in the models compiled here, so each lane calls libm's function,
// declared in the module. The caller's fast-math flags are put aside: they would break NaN, signed
// zeros and the exact splittings.
#include "codegen/vector_math.h"

#include <string>

#include "base/check.h"
#include "codegen/vector_math_lanes.h"
#include "llvm/IR/Module.h"

namespace tandem::codegen {
namespace {

using llvm::Value;

Value* emit_f32(Lanes& v, MathFunction function, Value* x, Value* y) {
  switch (function) {
    case MathFunction::exp: return emit_exp(v, x);
    case MathFunction::expm1: return emit_expm1(v, x);
    case MathFunction::log: return emit_log(v, x);
    case MathFunction::log1p: return emit_log1p(v, x);
    case MathFunction::log2: return emit_log2(v, x);
    case MathFunction::sin: return emit_sin(v, x);
    case MathFunction::cos: return emit_cos(v, x);
    case MathFunction::tanh: return emit_tanh(v, x);
    case MathFunction::erf: return emit_erf(v, x);
    case MathFunction::pow: return emit_pow(v, x, y);
    case MathFunction::lgamma: break;
  }
  TD_CHECK(false) << "no such MathFunction";
}

Value* emit_libm(llvm::IRBuilderBase& builder, MathFunction function, Value* x, Value* y) {
  llvm::Type* f64 = builder.getDoubleTy();
  llvm::SmallVector<llvm::Type*, 2> parameters(y == nullptr ? 1 : 2, f64);
  llvm::FunctionType* type = llvm::FunctionType::get(f64, parameters, false);
  llvm::Module* module = builder.GetInsertBlock()->getModule();
  std::string_view name = name_of(function);
  llvm::FunctionCallee callee =
      module->getOrInsertFunction(llvm::StringRef(name.data(), name.size()), type);
  auto call = [&](Value* a, Value* b) {
    return y == nullptr ? builder.CreateCall(callee, {a}) : builder.CreateCall(callee, {a, b});
  };
  auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(x->getType());
  if (vector == nullptr) return call(x, y);
  Value* result = llvm::PoisonValue::get(vector);
  for (uint64_t lane = 0; lane < vector->getNumElements(); ++lane) {
    Value* a = builder.CreateExtractElement(x, lane);
    Value* b = y == nullptr ? nullptr : builder.CreateExtractElement(y, lane);
    result = builder.CreateInsertElement(result, call(a, b), lane);
  }
  return result;
}

}  // namespace

std::string_view name_of(MathFunction function) {
  switch (function) {
    case MathFunction::exp: return "exp";
    case MathFunction::expm1: return "expm1";
    case MathFunction::log: return "log";
    case MathFunction::log1p: return "log1p";
    case MathFunction::log2: return "log2";
    case MathFunction::sin: return "sin";
    case MathFunction::cos: return "cos";
    case MathFunction::tanh: return "tanh";
    case MathFunction::lgamma: return "lgamma";
    case MathFunction::erf: return "erf";
    case MathFunction::pow: return "pow";
  }
  TD_CHECK(false) << "no such MathFunction";
}

Value* emit_math(llvm::IRBuilderBase& builder, MathFunction function, Value* x, Value* y) {
  TD_CHECK((y != nullptr) == (function == MathFunction::pow)) << "pow alone takes two arguments";
  llvm::Type* scalar = x->getType()->getScalarType();
  TD_CHECK(scalar->isFloatTy() || scalar->isDoubleTy()) << "math is emitted for f32 and f64";
  llvm::IRBuilderBase::FastMathFlagGuard keep_flags(builder);
  builder.clearFastMathFlags();
  if (scalar->isDoubleTy()) return emit_libm(builder, function, x, y);
  Lanes lanes(builder, x->getType());
  if (function == MathFunction::lgamma)
    return lanes.narrow(emit_libm(builder, function, lanes.widen(x), y));
  return emit_f32(lanes, function, x, y);
}

}  // namespace tandem::codegen
