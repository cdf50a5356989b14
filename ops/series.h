// Constants for element formulas in two precisions.
#pragma once

#include <array>
#include <limits>

#include "ops/elements.h"

namespace tandem::ops {

/// Coefficients c[0] + c[1] x + c[2] x^2 + …, one set for f32 and one for f64.
template <size_t f32_terms, size_t f64_terms>
struct Series {
  std::array<double, f32_terms> f32;
  std::array<double, f64_terms> f64;

  /// By Horner's rule, one rounding a step.
  Element at(Element x) const { return x.dtype() == DType::f32 ? horner(f32, x) : horner(f64, x); }

 private:
  template <size_t terms>
  static Element horner(const std::array<double, terms>& c, Element x) {
    Element sum = x.number(c.back());
    for (size_t i = terms - 1; i-- > 0;) sum = fma(sum, x, x.number(c[i]));
    return sum;
  }
};

/// A number as the nearest f64 and what that leaves out; in f32 the head is the nearest f32.
struct Precise {
  double head;
  double rest;

  double head_in(DType dtype) const {
    return dtype == DType::f32 ? static_cast<float>(head) : head;
  }
  double rest_in(DType dtype) const { return dtype == DType::f32 ? head - head_in(dtype) : rest; }
  /// head - x, head + x, head * x, the rest put in before the last rounding.
  Element minus(Element x) const { return head_in(x.dtype()) - (x - rest_in(x.dtype())); }
  Element plus(Element x) const { return head_in(x.dtype()) + (x + rest_in(x.dtype())); }
  Element times(Element x) const {
    Element rough = x * head_in(x.dtype());
    Element exact = fma(x, x.number(head_in(x.dtype())), x * rest_in(x.dtype()));
    return choose(equal(abs(rough), x.number(std::numeric_limits<double>::infinity())), rough,
                  exact);
  }
};

}  // namespace tandem::ops
