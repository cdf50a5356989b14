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

/// z / w as eager has it, with what infinities and zeros give. Of the parts of w the larger one is
/// divided by, and no square overflows:
///   |c| >= |d|:  r = d / c,  (a + i b) / (c + i d) = (a + b r + i (b - a r)) / (c + d r)
/// and otherwise the same of b - i a and d - i c, whose quotient it is too; of w = 0, a / |c| + i b
/// / |d|.
ComplexParts quotient(const ComplexParts& z, const ComplexParts& w) {
  const Tensor re_size = abs(w.re);
  const Tensor im_size = abs(w.im);
  const Tensor turns = compare("lt", re_size, im_size);
  const Tensor is_zero =
      compare("eq", call(w.re.builder(), "aten.maximum", {re_size, im_size}), 0.0);
  const auto either = [&](Tensor x, Tensor y) { return where(turns, x, y); };
  const Tensor larger = either(w.im, w.re);
  const Tensor smaller = either(w.re, w.im);
  const Tensor ratio = smaller / larger;
  const Tensor scale = 1.0 / (larger + smaller * ratio);
  const Tensor first = either(z.im, z.re);
  const Tensor second = either(z.re, z.im);
  const Tensor across = second - first * ratio;
  const Tensor re = (first + second * ratio) * scale;
  const Tensor im = either(-across, across) * scale;
  // Elsewhere it is a division by 1, which has a slope.
  const auto zero = [&](Tensor x, Tensor size, Tensor y) {
    return where(is_zero, x / where(is_zero, size, 1.0), y);
  };
  return {zero(z.re, re_size, re), zero(z.im, im_size, im)};
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
  const ComplexParts own = c.given("self");
  // Zeros have signs, and so angles, but no slope.
  const Tensor at_zero =
      call(c.builder, "aten.detach", {call(c.builder, "aten.atan2", {own.im, own.re})});
  return {{where(z.is_zero, at_zero, angle), {}}};
}

/// As C has it: of an infinite or undefined size an angle of 0 stays one, and one that is not
/// finite turns 0 to 0 and infinity to (infinity, NaN).
ComplexResults complex_exponential(const ComplexCall& c) {
  const ComplexParts z = c.given("self");
  const Tensor size = exp(z.re);
  const Tensor turn = size * sin(z.im);
  const auto both = [&](Tensor x, Tensor y) { return call(c.builder, "aten.logical_and", {x, y}); };
  const Tensor is_odd = call(c.builder, "aten.isnan", {sin(z.im)});
  const Tensor stays = both(compare("eq", z.im, 0.0), call(c.builder, "aten.isnan", {turn}));
  const Tensor vanishes = both(is_odd, compare("eq", size, 0.0));
  const Tensor explodes = both(is_odd, compare("eq", z.re, INFINITY));
  const Tensor re = where(vanishes, 0.0, where(explodes, size, size * cos(z.im)));
  return {{re, where(vanishes, 0.0, where(stays, z.im, turn))}};
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

ComplexResults complex_reciprocal(const ComplexCall& c) {
  const ComplexParts w = c.given("self");
  return {quotient({ones_like(w.re), zeros_like(w.re)}, w)};
}

ComplexResults complex_quotient(const ComplexCall& c) {
  const DType dtype = part_type(c.whole.result()->type.dtype);
  const auto parts = [&](std::string_view param) -> ComplexParts {
    const ComplexParts given = c.given(param);
    const Tensor re = to(given.re, dtype);
    return {re, given.im ? to(given.im, dtype) : zeros_like(re)};
  };
  return {quotient(parts("self"), parts("other"))};
}

ComplexResults complex_conjugate(const ComplexCall& c) {
  const ComplexParts z = c.given("self");
  return {{z.re, z.im ? -z.im : Tensor()}};
}

}  // namespace tandem::ops
