// What a call over complex numbers is over their real and imaginary parts.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "ir/op.h"
#include "ops/tensor.h"

namespace tandem::ops {

/// `re + i im`; without `im`, real numbers.
struct ComplexParts {
  Tensor re, im;
};

/// A call some of whose operands or results are complex.
class ComplexCall {
 public:
  using Find = std::function<ComplexParts(const ir::Value*)>;

  /// `find` gives the parts of a value that the call names.
  ComplexCall(ir::Builder& at, const ir::Call& call, Find find)
      : builder(at), whole(call), find_(std::move(find)) {}

  ComplexParts given(const ir::Value* value) const { return find_(value); }
  ComplexParts given(std::string_view param) const { return given(whole.value(param)); }

  ir::Builder& builder;
  const ir::Call& whole;

 private:
  Find find_;
};

using ComplexResults = std::vector<ComplexParts>;
/// Of each result its parts, a complex one with both.
using ComplexRule = ComplexResults (*)(const ComplexCall&);

/// The same call of each part, as of what is linear over the reals or moves elements. Real tensors
/// have zeros as imaginary parts, but for indices and masks; numbers are factors.
ComplexResults complex_each(const ComplexCall& c);
/// The same, where numbers are terms or elements: their imaginary part is 0.
ComplexResults complex_sum(const ComplexCall& c);
/// Two tensors alone, of which the second one is divided by.
ComplexResults complex_quotient(const ComplexCall& c);
/// |z| and the angle of z, of `self`. At 0 their gradients are 0, as in eager.
ComplexResults complex_magnitude(const ComplexCall& c);
ComplexResults complex_angle(const ComplexCall& c);
/// e^z
ComplexResults complex_exponential(const ComplexCall& c);
/// z^n of a small `exponent`; Unsupported for others.
ComplexResults complex_power(const ComplexCall& c);
/// 1 / z
ComplexResults complex_reciprocal(const ComplexCall& c);
/// Of `self`; of what is real nothing changes.
ComplexResults complex_conjugate(const ComplexCall& c);
/// (a + i b)(c + i d) = (a c - b d) + i (a d + b c), of the first two operands.
ComplexResults complex_product(const ComplexCall& c);

}  // namespace tandem::ops
