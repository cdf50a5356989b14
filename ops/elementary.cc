// Trigonometric and hyperbolic functions from what the loop IR has: sqrt, exp, log and polynomials.
//
// The inverse functions reduce their argument to an interval around 0, where a polynomial in its
// square remains: atan by 1/x and (x-1)/(x+1), asin by the half-angle formula. Coefficients are
// Chebyshev fits made with 60 digits for these intervals, one set for f32 and one for f64.
// Constants that f32 or f64 cannot hold are a head and a tail. The hyperbolic functions are
// arranged so that nothing cancels near 0 and nothing overflows before the result does.
#include "ops/elementary.h"

#include <cmath>
#include <limits>

#include "ops/series.h"

namespace tandem::ops {
namespace {

constexpr double kPi = 3.14159265358979323846;
constexpr Precise kHalfPi{1.57079632679489661923, 6.123233995736766e-17};
constexpr Precise kQuarterPi{0.78539816339744830962, 3.061616997868383e-17};
constexpr Precise kWholePi{3.14159265358979323846, 1.2246467991473532e-16};
constexpr Precise kTenth{0.43429448190325182765, 1.0983196502167651e-17};  // 1 / log(10)
constexpr double kLn2 = 0.69314718055994530942;
constexpr double kTanEighthPi = 0.41421356237309504880;

// (atan(s) - s) / s^3 in s^2, s <= tan(pi / 8).
constexpr Series<5, 12> kAtan{
    {-0.3333333176116852, 0.19999540483648964, -0.1426395559798464, 0.10743731490791084,
     -0.06451928208121749},
    {-0.3333333333333333, 0.19999999999999804, -0.14285714285659828, 0.11111111105155447,
     -0.09090908753500877, 0.07692296375032143, -0.06666424885738255, 0.05878928997834775,
     -0.05230454270650244, 0.04551593220626549, -0.034570561981427744, 0.016285756855221028}};
// (asin(s) - s) / s^3 in s^2, s <= 1/2.
constexpr Series<5, 13> kAsin{
    {0.16666672414795305, 0.07498855072600821, 0.04500138006991017, 0.026554542206161328,
     0.038085023561092654},
    {0.16666666666666669, 0.07499999999998433, 0.04464285714635543, 0.030381944138531247,
     0.02237217294214989, 0.017352392720869973, 0.013971212973552933, 0.011479177415184906,
     0.01032281435018578, 0.005457506718640358, 0.01740087944269402, -0.014851887071247204,
     0.028757851367421566}};

bool is_f32(Element x) { return x.dtype() == DType::f32; }

/// atan(t), 0 <= t <= 1.
Element atan_of_unit(Element t) {
  Element big = t > kTanEighthPi;
  Element s = choose(big, (t - 1) / (t + 1), t);
  Element square = s * s;
  Element part = fma(s * square, kAtan.at(square), s);
  return choose(big, kQuarterPi.plus(part), part);
}

/// asin(|x|) is `part` where |x| <= 1/2, else pi/2 - 2 part.
struct Arc {
  Element far;
  Element part;
};
Arc reduced_arc(Element magnitude) {
  Element far = magnitude > 0.5;
  Element square = choose(far, (1.0 - magnitude) * 0.5, magnitude * magnitude);
  Element s = choose(far, sqrt(square), magnitude);
  return {far, fma(s * square, kAsin.at(square), s)};
}

/// exp(m / 2)^2 / 2, for m where exp(m) may overflow and exp(-m) does not count.
Element half_exp(Element m) {
  Element root = exp(m * 0.5);
  return (root * 0.5) * root;
}
double largest_exponent(Element x) { return is_f32(x) ? 88 : 709; }
/// From here on x^2 + 1 rounds to x^2.
double far_out(Element x) { return is_f32(x) ? 0x1p13 : 0x1p27; }

/// The integers of a float's width.
DType bits_of(DType dtype) {
  switch (size_of(dtype)) {
    case 1: return DType::i8;
    case 2: return DType::i16;
    case 4: return DType::i32;
    default: return DType::i64;
  }
}

}  // namespace

Element copysign(Element x, Element sign) {
  DType bits = bits_of(x.dtype());
  int64_t top = bits == DType::i32 ? std::numeric_limits<int32_t>::min()
                                   : std::numeric_limits<int64_t>::min();
  Element magnitude = abs(x).bitcast(bits);
  return either(magnitude, both(sign.bitcast(bits), magnitude.integer(top))).bitcast(x.dtype());
}

Element signbit(Element x) {
  if (!is_float(x.dtype())) return x < x.number(0);
  return x.bitcast(bits_of(x.dtype())) < 0.0;
}

/// One more in the bits is one step away from 0, whatever the exponent.
Element nextafter(Element x, Element y, DType dtype) {
  Element bits = x.cast(dtype).bitcast(bits_of(dtype));
  Element grows = equal(x < y, x > 0);
  Element next = bits + choose(grows, bits.integer(1), bits.integer(-1));
  Element smallest = bits.integer(1).bitcast(dtype).cast(x.dtype());
  Element moved = next.bitcast(dtype).cast(x.dtype());
  moved = choose(equal(x, x.number(0)), copysign(smallest, y), moved);
  Element defined = both(equal(x, x), equal(y, y));
  return choose(defined, choose(equal(x, y), y, moved), x + y);
}

Element atan(Element x) {
  Element magnitude = abs(x);
  Element inverse = magnitude > 1;
  Element angle = atan_of_unit(choose(inverse, 1.0 / magnitude, magnitude));
  return copysign(choose(inverse, kHalfPi.minus(angle), angle), x);
}

Element atan2(Element y, Element x) {
  Element rise = abs(y);
  Element run = abs(x);
  Element low = min(rise, run);
  Element high = max(rise, run);
  // 0/0 is no angle, infinity/infinity that of 1.
  Element same = (low > 0).cast(low.dtype());
  Element angle = atan_of_unit(choose(equal(low, high), same, low / high));
  angle = choose(rise > run, kHalfPi.minus(angle), angle);
  angle = choose(signbit(x), kWholePi.minus(angle), angle);
  Element defined = equal(rise + run, rise + run);
  return choose(defined, copysign(angle, y), rise + run);
}

Element asin(Element x) {
  Arc arc = reduced_arc(abs(x));
  return copysign(choose(arc.far, kHalfPi.minus(arc.part * 2), arc.part), x);
}

Element acos(Element x) {
  Arc arc = reduced_arc(abs(x));
  Element twice = arc.part * 2;
  Element far = choose(x < 0, kWholePi.minus(twice), twice);
  return choose(arc.far, far, kHalfPi.minus(copysign(arc.part, x)));
}

Element tan(Element x) { return x.apply(loop::Opcode::sin) / x.apply(loop::Opcode::cos); }

Element sinh(Element x) {
  Element m = abs(x);
  Element e = expm1(m);
  Element near = (e + e / (e + 1)) * 0.5;
  return copysign(choose(m > largest_exponent(x), half_exp(m), near), x);
}

Element cosh(Element x) {
  Element m = abs(x);
  Element e = exp(m);
  return choose(m > largest_exponent(x), half_exp(m), e * 0.5 + 0.5 / e);
}

Element asinh(Element x) {
  Element m = abs(x);
  Element square = m * m;
  Element near = log1p(m + square / (1.0 + sqrt(square + 1)));
  return copysign(choose(m > far_out(x), log(m) + kLn2, near), x);
}

Element acosh(Element x) {
  Element t = x - 1;
  Element near = log1p(t + sqrt(t * (t + 2)));
  return choose(x > far_out(x), log(x) + kLn2, near);
}

Element atanh(Element x) {
  Element m = abs(x);
  return copysign(log1p(m * 2 / (1.0 - m)) * 0.5, x);
}

Element log10(Element x) { return kTenth.times(log(x)); }

Element exp2(Element x) { return x.number(2).apply(loop::Opcode::pow, x); }

Element sinc(Element x) {
  Element angle = x * kPi;
  Element quotient = angle.apply(loop::Opcode::sin) / angle;
  return choose(equal(x, x.number(0)), x.number(1), quotient);
}

}  // namespace tandem::ops
