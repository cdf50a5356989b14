// Elementary and special functions of elements, for f32 and f64: each is an expression of basic
// opcodes, written once, so that interpreter and machine code agree to the bit and lanes stay
// lanes.
#pragma once

#include "ops/elements.h"

namespace tandem::ops {

/// The magnitude of x with the sign bit of `sign` (NaN's and zeros' signs included).
Element copysign(Element x, Element sign);
/// Whether the sign bit is set; of integers: x < 0.
Element signbit(Element x);

/// The next number of `dtype` from x toward y, which are numbers of it.
Element nextafter(Element x, Element y, DType dtype);

Element atan(Element x);
Element atan2(Element y, Element x);
Element asin(Element x);
Element acos(Element x);
Element tan(Element x);
Element sinh(Element x);
Element cosh(Element x);
Element asinh(Element x);
Element acosh(Element x);
Element atanh(Element x);
Element log10(Element x);
Element exp2(Element x);
/// sin(pi x) / (pi x), 1 at 0.
Element sinc(Element x);

/// 1 - erf(x), with all its digits where that cancels.
Element erfc(Element x);
/// exp(x^2) erfc(x).
Element erfcx(Element x);
Element erfinv(Element x);
/// Where the normal distribution function is p.
Element ndtri(Element p);
/// log of the normal distribution function.
Element log_ndtr(Element x);
Element lgamma(Element x);
Element digamma(Element x);
/// The n-th derivative of digamma, n >= 1.
Element polygamma(int64_t n, Element x);
/// exp(-|x|) I0(x), exp(-|x|) I1(x): modified Bessel functions.
Element i0e(Element x);
Element i1e(Element x);

}  // namespace tandem::ops
