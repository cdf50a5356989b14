// Problem: a complex number is two real ones, to the loops and to the gradients. Approach: rules
// belong to families, as those of rows do (batch.h): what is linear is done to each part, a product
// is four, and an op names the one that it obeys.
#include "ops/complex.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/diagnostic.h"
#include "base/dtype.h"

namespace tandem::ops {
namespace {

using ir::Arg;
using ir::Value;

/// Tensors that say where, and are no numbers to compute with.
bool is_place(const std::string& param) {
  constexpr std::array kPlaces = {"index", "indices", "mask", "condition"};
  return std::ranges::find(kPlaces, param) != kPlaces.end();
}

/// Numbers that a result is made of, and no factors.
bool is_term(const std::string& param) {
  constexpr std::array kTerms = {"self", "other", "value", "fill_value"};
  return std::ranges::find(kTerms, param) != kTerms.end();
}

bool is_number(const Arg& arg) {
  if (Value* const* value = std::get_if<Value*>(&arg)) return !(*value)->type.is_tensor();
  return std::holds_alternative<double>(arg) || std::holds_alternative<sym::Expr>(arg) ||
         std::holds_alternative<bool>(arg);
}

Value* part_of(const ComplexCall& c, const Value* value, bool imaginary) {
  const ComplexParts parts = c.given(value);
  if (!imaginary) return parts.re.value();
  return (parts.im ? parts.im : zeros_like(parts.re)).value();
}

/// The call's argument `i`, as the call of one part takes it.
Arg argument(const ComplexCall& c, size_t i, bool imaginary, bool has_terms) {
  const ir::Param& param = c.whole.op().schema.params[i];
  const Arg& arg = c.whole.args()[i];
  if (const DType* dtype = std::get_if<DType>(&arg)) return part_type(*dtype);
  const bool is_scalar = param.type == ir::ParamType::scalar;
  if (is_scalar && is_number(arg))
    return imaginary && has_terms && is_term(param.name) ? Arg(sym::Expr(0)) : arg;
  return ir::map_operands(arg, [&](const Value* value) {
    const bool is_whole = is_place(param.name) || !value->type.is_tensor();
    return is_whole ? c.given(value).re.value() : part_of(c, value, imaginary);
  });
}

Tensors of_part(const ComplexCall& c, bool imaginary, bool has_terms) {
  std::vector<Arg> args;
  for (size_t i = 0; i < c.whole.args().size(); ++i)
    args.push_back(argument(c, i, imaginary, has_terms));
  Tensors made;
  for (Value* result : c.builder.call(c.whole.op(), std::move(args))->results)
    made.emplace_back(c.builder, result);
  for (size_t i = 0; i < made.size(); ++i)
    made[i] = to(made[i], part_type(c.whole.result(i)->type.dtype));
  return made;
}

ComplexResults of_both(const ComplexCall& c, bool has_terms) {
  const Tensors re = of_part(c, false, has_terms);
  const Tensors im = of_part(c, true, has_terms);
  ComplexResults results;
  for (size_t i = 0; i < re.size(); ++i) results.push_back({re[i], im[i]});
  return results;
}

/// The parts of `self`, but 1 for 0, and where it is 0.
struct AwayFromZero {
  ComplexParts parts;
  Tensor is_zero;
};

AwayFromZero away_from_zero(const ComplexCall& c) {
  const ComplexParts z = c.given("self");
  const Tensor re_is_zero = compare("eq", z.re, 0.0);
  const Tensor im_is_zero = compare("eq", z.im, 0.0);
  const Tensor is_zero = call(c.builder, "aten.logical_and", {re_is_zero, im_is_zero});
  return {{where(is_zero, 1.0, z.re), z.im}, is_zero};
}

ComplexParts product(const ComplexParts& x, const ComplexParts& y) {
  const Tensor ac = x.re * y.re;
  const Tensor bd = x.im * y.im;
  const Tensor ad = x.re * y.im;
  const Tensor bc = x.im * y.re;
  return {ac - bd, ad + bc};
}

/// w / r and r |w / r|^2, where r is the larger part of w: no square overflows.
struct Divisor {
  ComplexParts parts;
  Tensor scale;
};

Divisor divisor_of(const ComplexParts& w, DType dtype) {
  const Tensor re = to(w.re, dtype);
  const Tensor im = to(w.im, dtype);
  const Tensor larger = call(w.re.builder(), "aten.maximum", {abs(re), abs(im)});
  const ComplexParts small{re / larger, im / larger};
  const Tensor squares = small.re * small.re;
  return {small, larger * (squares + small.im * small.im)};
}

}  // namespace

ComplexResults complex_each(const ComplexCall& c) { return of_both(c, false); }
ComplexResults complex_sum(const ComplexCall& c) { return of_both(c, true); }

ComplexResults complex_product(const ComplexCall& c) {
  const ComplexParts x = c.given(std::get<Value*>(c.whole.args()[0]));
  const ComplexParts y = c.given(std::get<Value*>(c.whole.args()[1]));
  const DType dtype = part_type(c.whole.result(0)->type.dtype);
  const auto multiply = [&](Tensor a, Tensor b) {
    std::vector<Arg> args = c.whole.args();
    args[0] = to(a, dtype).value();
    args[1] = to(b, dtype).value();
    return Tensor(c.builder, c.builder.call(c.whole.op(), std::move(args))->results[0]);
  };
  const Tensor ac = multiply(x.re, y.re);
  if (!y.im) return {{ac, multiply(x.im, y.re)}};
  const Tensor ad = multiply(x.re, y.im);
  if (!x.im) return {{ac, ad}};
  const Tensor bd = multiply(x.im, y.im);
  const Tensor bc = multiply(x.im, y.re);
  return {{ac - bd, ad + bc}};
}

ComplexResults complex_magnitude(const ComplexCall& c) {
  const AwayFromZero z = away_from_zero(c);
  return {{where(z.is_zero, 0.0, call(c.builder, "aten.hypot", {z.parts.re, z.parts.im})), {}}};
}

ComplexResults complex_angle(const ComplexCall& c) {
  const AwayFromZero z = away_from_zero(c);
  const Tensor angle = call(c.builder, "aten.atan2", {z.parts.im, z.parts.re});
  return {{where(z.is_zero, 0.0, angle), {}}};
}

ComplexResults complex_exponential(const ComplexCall& c) {
  const ComplexParts z = c.given("self");
  const Tensor size = exp(z.re);
  const Tensor re = size * cos(z.im);
  return {{re, size * sin(z.im)}};
}

ComplexResults complex_power(const ComplexCall& c) {
  constexpr int64_t kMost = 8;
  const ir::Arg& exponent = c.whole.arg("exponent");
  const double n = std::holds_alternative<Value*>(exponent) ? 0 : c.whole.floating("exponent");
  if (n < 1 || n > kMost || n != std::floor(n))
    throw Unsupported(fmt::format("[{}] of complex numbers is supported for exponents 1 to {}",
                                  c.whole.op().schema.full_name(), kMost));
  const ComplexParts z = c.given("self");
  ComplexParts power = z;
  for (int64_t i = 1; i < static_cast<int64_t>(n); ++i) power = product(power, z);
  return {power};
}

/// 1 / w = conj(w / r) / (r |w / r|^2)
ComplexResults complex_reciprocal(const ComplexCall& c) {
  const ComplexParts w = c.given("self");
  const Divisor divisor = divisor_of(w, w.re.dtype());
  return {{divisor.parts.re / divisor.scale, -divisor.parts.im / divisor.scale}};
}

/// z / w = z conj(w / r) / (r |w / r|^2)
ComplexResults complex_quotient(const ComplexCall& c) {
  const ComplexParts z = c.given("self");
  const DType dtype = part_type(c.whole.result()->type.dtype);
  if (!is_complex(c.whole.type("other").dtype)) {
    const Tensor real = c.given("other").re;
    return {{to(z.re / real, dtype), to(z.im / real, dtype)}};
  }
  const auto [parts, scale] = divisor_of(c.given("other"), dtype);
  const auto [re, im] = parts;
  const Tensor a = to(z.re, dtype);
  const Tensor ac = a * re;
  const Tensor ad = a * im;
  if (!z.im) return {{ac / scale, -ad / scale}};
  const Tensor b = to(z.im, dtype);
  const Tensor bd = b * im;
  const Tensor bc = b * re;
  return {{(ac + bd) / scale, (bc - ad) / scale}};
}

ComplexResults complex_conjugate(const ComplexCall& c) {
  const ComplexParts z = c.given("self");
  return {{z.re, z.im ? -z.im : Tensor()}};
}

}  // namespace tandem::ops
