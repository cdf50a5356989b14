// A quantization op is defined by the tensor operations that PyTorch computes it with, and ties are
// decided by where each of them rounds. Step is a number between two of them: it computes in the
// compute type and is rounded to the dtype that PyTorch's promotion gives the operation.
#pragma once

#include "ops/elements.h"
#include "ops/families.h"

namespace tandem::ops {

struct Step {
  Element x;
  DType dtype;

  /// As `to(dtype)`.
  Step to(DType wanted) const {
    DType compute = compute_type(wanted);
    Element wide = x.cast(compute);
    return {compute == wanted ? wide : wide.cast(wanted).cast(compute), wanted};
  }
  /// One operation whose result is of this dtype.
  Step apply(Opcode opcode) const { return Step{x.apply(opcode), dtype}.to(dtype); }
  /// An operand that is no tensor: it does not promote, and is not rounded to 16 bits.
  Element number(double value) const { return x.number(value); }
  Step with(Opcode opcode, Element number) const {
    return Step{x.apply(opcode, number.cast(x.dtype())), dtype}.to(dtype);
  }
  /// Between bounds; a NaN stays.
  Step clamp(double low, double high) const {
    return {min(max(x, x.number(low)), x.number(high)), dtype};
  }
};

/// One operation on two tensors of equal standing.
inline Step combine(Opcode opcode, const Step& a, const Step& b) {
  DType dtype = promote(a.dtype, b.dtype);
  return Step{a.to(dtype).x.apply(opcode, b.to(dtype).x), dtype}.to(dtype);
}
inline Step operator+(const Step& a, const Step& b) { return combine(Opcode::add, a, b); }
inline Step operator-(const Step& a, const Step& b) { return combine(Opcode::sub, a, b); }
inline Step operator*(const Step& a, const Step& b) { return combine(Opcode::mul, a, b); }
/// 1 / a in a's dtype; f32 of integers, as `1.0 / a`.
inline Step inverse(const Step& a) {
  Step divisor = a.to(to_float(a.dtype));
  return Step{1.0 / divisor.x, divisor.dtype}.to(divisor.dtype);
}

/// Element of a tensor argument.
inline Step step_of(Lowering& lowering, const ir::Call& call, std::string_view name,
                    const Index& index) {
  loop::Val element = lowering.load(call.value(name), index);
  return {{lowering.scalars(), element}, call.type(name).dtype};
}

}  // namespace tandem::ops
