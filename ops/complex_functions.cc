// Problem: elementary functions of complex numbers as formulas over real and imaginary parts, whose
// gradients are then those of the formulas. Approach: each comes down to logarithm, root, sines and
// exponentials of real numbers, in the forms of Kahan ("Branch cuts for complex elementary
// functions"), whose cuts are those of C and of eager, signs of zeros included.
#include "ops/complex_functions.h"

#include <cmath>
#include <numbers>

namespace tandem::ops {
namespace {

using ir::Value;

Tensor named(std::string_view op, Tensor x) { return call(x.builder(), op, {x}); }
Tensor named(std::string_view op, Tensor x, Tensor y) { return call(x.builder(), op, {x, y}); }
Tensor hypot(const ComplexParts& z) { return named("aten.hypot", z.re, z.im); }
Tensor both(Tensor x, Tensor y) { return named("aten.logical_and", x, y); }

/// i z, and z / i.
ComplexParts turned(const ComplexParts& z) { return {-z.im, z.re}; }
ComplexParts turned_back(const ComplexParts& z) { return {z.im, -z.re}; }

ComplexParts scaled(const ComplexParts& z, double by) { return {z.re * by, z.im * by}; }

Tensor is_infinite(Tensor x) { return named("aten.isinf", x); }
Tensor is_nan(Tensor x) { return named("aten.isnan", x); }
Tensor is_infinite(const ComplexParts& z) {
  return named("aten.logical_or", is_infinite(z.re), is_infinite(z.im));
}
Tensor with_sign(double size, Tensor of) {
  return named("aten.copysign.Tensor", full(of.builder(), {}, size, of.dtype()), of);
}

/// a b, but 0 where either is: sines of 0 stay 0 beside what is infinite, and sinh of 0 beside a
/// sine that is none. Elsewhere the product has its slope, at 0 too.
Tensor times_wave(Tensor a, Tensor b) {
  const Tensor product = a * b;
  const auto stays = [&](Tensor x, Tensor otherwise) {
    return where(both(compare("eq", x, 0.0), is_nan(product)), x, otherwise);
  };
  return stays(b, stays(a, product));
}
Tensor negated_where(Tensor where_negative, Tensor x) { return where(where_negative, -x, x); }
/// The same of `a` that grows with x: where x is infinite, so is the real part, whatever b is.
Tensor grown(Tensor x, Tensor a, Tensor b) {
  return where(both(is_infinite(x), is_nan(b)), abs(a), times_wave(a, b));
}
/// The real part where that of z is 0 and the other one NaN.
Tensor at_nan(const ComplexParts& z, Tensor re, double of_zero) {
  return where(both(compare("eq", z.re, 0.0), is_nan(z.im)), of_zero, re);
}

/// As C has it: of an infinite or undefined size an angle of 0 stays one, and one that is not
/// finite turns 0 to 0 and infinity to (infinity, NaN).
ComplexParts exponential(const ComplexParts& z) {
  const Tensor size = exp(z.re);
  const Tensor turn = size * sin(z.im);
  const Tensor is_odd = is_nan(sin(z.im));
  const Tensor stays = both(compare("eq", z.im, 0.0), is_nan(turn));
  const Tensor vanishes = both(is_odd, compare("eq", size, 0.0));
  const Tensor explodes = both(is_odd, compare("eq", z.re, INFINITY));
  const Tensor re = where(vanishes, 0.0, where(explodes, size, size * cos(z.im)));
  return {re, where(vanishes, 0.0, where(stays, z.im, turn))};
}

/// Of the two factors whose product is 1 - z^2, or z^2 - 1, the parts that arcsines are made of.
struct Roots {
  ComplexParts minus, plus;
};
Tensor real_of_product(const Roots& r) { return r.minus.re * r.plus.re - r.minus.im * r.plus.im; }
/// Of conj(plus) minus.
Tensor imag_of_product(const Roots& r) { return r.plus.re * r.minus.im - r.plus.im * r.minus.re; }
Tensor real_of_conj_product(const Roots& r) {
  return r.minus.re * r.plus.re + r.minus.im * r.plus.im;
}
Roots roots_about_one(const ComplexParts& z) {
  return {complex::sqrt({1.0 - z.re, -z.im}), complex::sqrt({z.re + 1.0, z.im})};
}

/// What `exponent` or the base is, number or tensor, in f64.
ComplexParts wide_parts(const ComplexCall& c, std::string_view param) {
  const ir::Arg& arg = c.whole.arg(param);
  Value* const* value = std::get_if<Value*>(&arg);
  if (value == nullptr || !(*value)->type.is_tensor()) {
    const Tensor re = call(c.builder, "aten.full", {ir::Sizes{}, arg, DType::f64});
    return {re, zeros_like(re)};
  }
  const ComplexParts given = c.given(*value);
  const Tensor re = to(given.re, DType::f64);
  return {re, given.im ? to(given.im, DType::f64) : zeros_like(re)};
}

/// e^(w log z); of z = 0 the 1, 0 or infinity that has no slope.
ComplexParts power(const ComplexParts& z, const ComplexParts& w) {
  const Tensor is_zero = both(compare("eq", z.re, 0.0), compare("eq", z.im, 0.0));
  const ComplexParts away{where(is_zero, 1.0, z.re), z.im};
  const ComplexParts usual = exponential(product(w, complex::log(away)));
  const Tensor none = both(compare("eq", w.re, 0.0), compare("eq", w.im, 0.0));
  const Tensor nans = full(w.re.builder(), {}, NAN, DType::f64);
  const Tensor is_flat = compare("gt", w.re, 0.0);
  const Tensor flat = where(is_flat, 0.0, where(compare("lt", w.re, 0.0), INFINITY, nans));
  const Tensor at_zero = where(none, 1.0, flat);
  const Tensor im = where(none, 0.0, where(is_flat, 0.0, nans));
  return {where(is_zero, at_zero, usual.re), where(is_zero, im, usual.im)};
}

/// The products that eager has for small exponents, in its order and precision; else nothing.
ComplexParts by_products(const ComplexCall& c, const ComplexParts& z, double n) {
  if (n == 1) return z;
  if (n == 2) return product(z, z);
  if (n == 3) return product(product(z, z), z);
  if (n == 0) return {ones_like(z.re), zeros_like(z.re)};
  if (n == 0.5) return complex_function<complex::sqrt>(c)[0];
  if (n == -0.5) return complex_function<complex::rsqrt>(c)[0];
  const auto over = [&](const ComplexParts& w) {
    return quotient({ones_like(w.re), zeros_like(w.re)}, w);
  };
  if (n == -1) return over(z);
  if (n == -2) return over(product(z, z));
  return {};
}

}  // namespace

namespace complex {

ComplexParts log(const ComplexParts& z) {
  return {ops::log(hypot(z)), named("aten.atan2", z.im, z.re)};
}
ComplexParts log2(const ComplexParts& z) { return scaled(log(z), std::numbers::log2e); }
ComplexParts log10(const ComplexParts& z) { return scaled(log(z), std::numbers::log10e); }

/// Where z is small, log |1 + z| is half of log1p(x (2 + x) + y^2).
ComplexParts log1p(const ComplexParts& z) {
  const ComplexParts whole = log({z.re + 1.0, z.im});
  const Tensor is_small = compare("lt", hypot(z), 0.5);
  const Tensor x = where(is_small, z.re, 0.0);
  const Tensor y = where(is_small, z.im, 0.0);
  const Tensor near = named("aten.log1p", x * (x + 2.0) + y * y) * 0.5;
  return {where(is_small, near, whole.re), whole.im};
}

ComplexParts exp2(const ComplexParts& z) { return exponential(scaled(z, std::numbers::ln2)); }

/// e^x cos y - 1 = (e^x - 1) cos y - 2 sin(y / 2)^2
ComplexParts expm1(const ComplexParts& z) {
  const Tensor half = ops::sin(z.im * 0.5);
  const Tensor re = named("aten.expm1", z.re) * ops::cos(z.im) - half * half * 2.0;
  return {re, exp(z.re) * ops::sin(z.im)};
}

/// The larger part is t = sqrt((|z| + |x|) / 2), the other one y / 2t. An infinite y is one of both
/// parts. Of x = 0 the sides agree, and their slope is taken from the right; of y = 0 the sign
/// tells the side of the cut.
ComplexParts sqrt(const ComplexParts& z) {
  const Tensor is_left = compare("lt", z.re, 0.0);
  const Tensor size = negated_where(is_left, z.re);
  const Tensor is_zero = both(compare("eq", z.re, 0.0), compare("eq", z.im, 0.0));
  const Tensor is_long = is_infinite(z.im);
  const Tensor t = ops::sqrt(hypot(z) * 0.5 + size * 0.5);
  const Tensor other = z.im / where(is_zero, 1.0, t * 2.0);
  const Tensor is_below = named("aten.signbit", z.im);
  const Tensor re = where(is_left, negated_where(is_below, other), t);
  const Tensor im = where(is_left, negated_where(is_below, t), other);
  return {where(is_long, INFINITY, re), where(is_long, z.im, im)};
}
ComplexParts rsqrt(const ComplexParts& z) {
  const ComplexParts root = sqrt(z);
  return quotient({ones_like(root.re), zeros_like(root.re)}, root);
}

ComplexParts sinh(const ComplexParts& z) {
  return {grown(z.re, named("aten.sinh", z.re), ops::cos(z.im)),
          times_wave(named("aten.cosh", z.re), ops::sin(z.im))};
}
ComplexParts cosh(const ComplexParts& z) {
  return {grown(z.re, named("aten.cosh", z.re), ops::cos(z.im)),
          times_wave(named("aten.sinh", z.re), ops::sin(z.im))};
}
/// With t = tan y: (tanh x (1 + t^2) + i t / cosh(x)^2) / (1 + tanh(x)^2 t^2)
ComplexParts tanh(const ComplexParts& z) {
  const Tensor t = named("aten.tan", z.im);
  const Tensor h = ops::tanh(z.re);
  const Tensor sech = reciprocal(named("aten.cosh", z.re));
  const Tensor divisor = h * h * (t * t) + 1.0;
  const Tensor is_far = is_infinite(z.re);
  const Tensor re = where(is_far, h, h * (t * t + 1.0) / divisor);
  const Tensor stays = both(compare("eq", z.re, 0.0), is_nan(t));
  const Tensor slope = sech * sech / divisor;
  const Tensor im = times_wave(slope, t);
  return {where(stays, z.re, re), where(is_far, 0.0, im)};
}
ComplexParts sin(const ComplexParts& z) { return turned(sinh(turned_back(z))); }
ComplexParts cos(const ComplexParts& z) { return cosh(turned(z)); }
ComplexParts tan(const ComplexParts& z) { return turned_back(tanh(turned(z))); }

ComplexParts asin(const ComplexParts& z) {
  const Roots roots = roots_about_one(z);
  const Tensor is_far = is_infinite(z);
  const Tensor re = named("aten.atan2", z.re, real_of_product(roots));
  const Tensor far = named("aten.atan2", z.re, abs(z.im));
  return {where(is_far, far, at_nan(z, re, 0)),
          where(is_far, with_sign(INFINITY, z.im), -named("aten.asinh", imag_of_product(roots)))};
}
ComplexParts acos(const ComplexParts& z) {
  const Roots roots = roots_about_one(z);
  const Tensor is_far = is_infinite(z);
  const Tensor re = named("aten.atan2", roots.minus.re, roots.plus.re) * 2.0;
  const Tensor far = named("aten.atan2", abs(z.im), z.re);
  return {where(is_far, far, at_nan(z, re, std::numbers::pi / 2)),
          where(is_far, -with_sign(INFINITY, z.im), named("aten.asinh", imag_of_product(roots)))};
}
ComplexParts acosh(const ComplexParts& z) {
  const Roots roots{sqrt({z.re - 1.0, z.im}), sqrt({z.re + 1.0, z.im})};
  const Tensor is_far = is_infinite(z);
  const Tensor re = named("aten.asinh", real_of_conj_product(roots));
  const Tensor im = named("aten.atan2", roots.minus.im, roots.plus.re) * 2.0;
  const Tensor far = named("aten.atan2", z.im, z.re);
  return {where(is_far, INFINITY, re), where(is_far, far, at_nan(z, im, std::numbers::pi / 2))};
}
/// (log1p(4 x / ((1 - x)^2 + y^2)) / 4, atan2(2 y, (1 - x)(1 + x) - y^2) / 2), the former of |x|:
/// beside -1 it would cancel.
ComplexParts atanh(const ComplexParts& z) {
  const Tensor is_left = compare("lt", z.re, 0.0);
  const Tensor x = negated_where(is_left, z.re);
  const Tensor beside = 1.0 - x;
  const Tensor squares = z.im * z.im;
  const Tensor size = named("aten.log1p", x * 4.0 / (beside * beside + squares)) * 0.25;
  const Tensor re = negated_where(is_left, size);
  const Tensor im = named("aten.atan2", z.im * 2.0, beside * (x + 1.0) - squares) * 0.5;
  const Tensor is_far = is_infinite(z);
  return {
      where(is_far, with_sign(0, z.re), at_nan(z, re, 0)),
      where(both(is_far, compare("eq", z.im, z.im)), with_sign(std::numbers::pi / 2, z.im), im)};
}
ComplexParts asinh(const ComplexParts& z) { return turned_back(asin(turned(z))); }
ComplexParts atan(const ComplexParts& z) { return turned_back(atanh(turned(z))); }

ComplexParts sigmoid(const ComplexParts& z) {
  const ComplexParts e = exponential({-z.re, -z.im});
  return quotient({ones_like(e.re), zeros_like(e.re)}, {e.re + 1.0, e.im});
}

}  // namespace complex

ComplexResults complex_exponential(const ComplexCall& c) { return {exponential(c.given("self"))}; }

ComplexResults complex_power(const ComplexCall& c) {
  const ir::Arg& exponent = c.whole.arg("exponent");
  const bool is_number = !std::holds_alternative<Value*>(exponent);
  if (is_number) {
    const ComplexParts z = c.given("self");
    const ComplexParts made = by_products(c, z, c.whole.floating("exponent"));
    if (made.re) return {made};
  }
  const ComplexParts made = power(wide_parts(c, "self"), wide_parts(c, "exponent"));
  const DType dtype = part_type(c.whole.result()->type.dtype);
  return {{to(made.re, dtype), to(made.im, dtype)}};
}

}  // namespace tandem::ops
