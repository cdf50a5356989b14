// Elementary functions of complex numbers, as rules.
#pragma once

#include "ops/complex.h"

namespace tandem::ops {

/// F of `self`. Parts of f32 are computed in f64: what is added and cancels there (log near 1, the
/// roots of an arcsine) keeps the digits of f32.
template <ComplexParts (*F)(const ComplexParts&)>
ComplexResults complex_function(const ComplexCall& c) {
  const ComplexParts z = c.given("self");
  const ComplexParts made = F({to(z.re, DType::f64), to(z.im, DType::f64)});
  return {{to(made.re, z.re.dtype()), to(made.im, z.re.dtype())}};
}

namespace complex {

ComplexParts log(const ComplexParts& z);
ComplexParts log2(const ComplexParts& z);
ComplexParts log10(const ComplexParts& z);
ComplexParts log1p(const ComplexParts& z);
ComplexParts exp2(const ComplexParts& z);
ComplexParts expm1(const ComplexParts& z);
ComplexParts sqrt(const ComplexParts& z);
ComplexParts rsqrt(const ComplexParts& z);
ComplexParts sin(const ComplexParts& z);
ComplexParts cos(const ComplexParts& z);
ComplexParts tan(const ComplexParts& z);
ComplexParts sinh(const ComplexParts& z);
ComplexParts cosh(const ComplexParts& z);
ComplexParts tanh(const ComplexParts& z);
ComplexParts asin(const ComplexParts& z);
ComplexParts acos(const ComplexParts& z);
ComplexParts atan(const ComplexParts& z);
ComplexParts asinh(const ComplexParts& z);
ComplexParts acosh(const ComplexParts& z);
ComplexParts atanh(const ComplexParts& z);
ComplexParts sigmoid(const ComplexParts& z);

}  // namespace complex

/// e^z, in the precision of its parts: nothing cancels.
ComplexResults complex_exponential(const ComplexCall& c);
/// `self` to the power of `exponent`; either may be a number.
ComplexResults complex_power(const ComplexCall& c);

}  // namespace tandem::ops
