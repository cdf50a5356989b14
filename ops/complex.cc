// Problem: a complex number is two real ones, to the loops and to the gradients. Approach: rules
// belong to families, as those of rows do (batch.h): what is linear is done to each part, a product
// is four, and an op names the one that it obeys.
#include "ops/complex.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/diagnostic.h"
#include "base/dtype.h"
#include "ops/opdef.h"

namespace tandem::ops {
namespace {

using ir::Arg;
using ir::Value;

/// Whether `word` is among the `words`, which have spaces between them.
bool is_among(std::string_view words, std::string_view word) {
  while (!words.empty()) {
    const size_t end = std::min(words.find(' '), words.size());
    if (words.substr(0, end) == word) return true;
    words.remove_prefix(std::min(end + 1, words.size()));
  }
  return false;
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
Arg argument(const ComplexCall& c, size_t i, bool imaginary) {
  const ir::Param& param = c.whole.op().schema.params[i];
  const Arg& arg = c.whole.args()[i];
  if (const DType* dtype = std::get_if<DType>(&arg)) return part_type(*dtype);
  const bool is_scalar = param.type == ir::ParamType::scalar;
  if (is_scalar && is_number(arg))
    return imaginary && is_among(c.form.terms, param.name) ? Arg(sym::Expr(0)) : arg;
  const bool is_place = is_among(c.form.places, param.name);
  return ir::map_operands(arg, [&](const Value* value) {
    const bool is_whole = is_place || !value->type.is_tensor();
    return is_whole ? c.given(value).re.value() : part_of(c, value, imaginary);
  });
}

Tensors of_part(const ComplexCall& c, bool imaginary) {
  std::vector<Arg> args;
  for (size_t i = 0; i < c.whole.args().size(); ++i) args.push_back(argument(c, i, imaginary));
  Tensors made;
  for (Value* result : c.builder.call(c.whole.op(), std::move(args))->results)
    made.emplace_back(c.builder, result);
  for (size_t i = 0; i < made.size(); ++i)
    made[i] = to(made[i], part_type(c.whole.result(i)->type.dtype));
  return made;
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

/// Of an operand that may be a number, which then has a tensor without dimensions.
ComplexParts parts_of(const ComplexCall& c, const Arg& arg, DType dtype) {
  if (!std::holds_alternative<Value*>(arg) || !std::get<Value*>(arg)->type.is_tensor()) {
    const Tensor re = call(c.builder, "aten.full", {ir::Sizes{}, arg, dtype});
    return {re, zeros_like(re)};
  }
  const ComplexParts given = c.given(std::get<Value*>(arg));
  const Tensor re = to(given.re, dtype);
  return {re, given.im ? to(given.im, dtype) : zeros_like(re)};
}

DType dtype_of_parts(const ComplexCall& c) { return part_type(c.whole.result()->type.dtype); }

/// Each part by itself, and then `op` of the two.
ComplexResults joined(const ComplexCall& c, std::string_view op) {
  const Tensor re = of_part(c, false)[0];
  return {{call(c.builder, op, {re, of_part(c, true)[0]}), {}}};
}

/// The quotient below, where w is a number that is not 0.
ComplexParts over_number(const ComplexParts& z, double n) {
  const double ratio = 0.0 / n;
  return {(z.re + z.im * ratio) * (1 / n), (z.im - z.re * ratio) * (1 / n)};
}

}  // namespace

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

Tensor stacked(const ComplexParts& z) {
  return call(z.re.builder(), "aten.stack", {Tensors{z.re, z.im}, -1});
}

ComplexResults complex_each(const ComplexCall& c) {
  const Tensors re = of_part(c, false);
  const Tensors im = of_part(c, true);
  ComplexResults results;
  for (size_t i = 0; i < re.size(); ++i) results.push_back({re[i], im[i]});
  return results;
}

ComplexResults complex_real(const ComplexCall& c) {
  const Tensor re = of_part(c, false)[0];
  return {{re, zeros_like(re)}};
}

/// Of numbers, and of real ones with complex ones, all four products, as in eager: 0 times infinity
/// is NaN. A product of matrices meets real ones only where a pass made them.
ComplexResults complex_product(const ComplexCall& c) {
  const Arg& right = c.whole.args()[1];
  const DType dtype = dtype_of_parts(c);
  if (c.whole.op().def->pointwise)
    return {product(parts_of(c, c.whole.args()[0], dtype), parts_of(c, right, dtype))};
  const ComplexParts x = c.given(std::get<Value*>(c.whole.args()[0]));
  const ComplexParts y = c.given(std::get<Value*>(right));
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

ComplexResults complex_sign(const ComplexCall& c) {
  const AwayFromZero z = away_from_zero(c);
  const Tensor size = call(c.builder, "aten.hypot", {z.parts.re, z.parts.im});
  return {{where(z.is_zero, 0.0, z.parts.re / size), where(z.is_zero, 0.0, z.parts.im / size)}};
}

ComplexResults complex_reciprocal(const ComplexCall& c) {
  const ComplexParts w = c.given("self");
  return {quotient({ones_like(w.re), zeros_like(w.re)}, w)};
}

ComplexResults complex_quotient(const ComplexCall& c) {
  const DType dtype = dtype_of_parts(c);
  if (const double* n = std::get_if<double>(&c.whole.args()[1]); n != nullptr && *n != 0)
    return {over_number(parts_of(c, c.whole.args()[0], dtype), *n)};
  const sym::Expr* n = std::get_if<sym::Expr>(&c.whole.args()[1]);
  if (n != nullptr && n->constant().value_or(0) != 0)
    return {
        over_number(parts_of(c, c.whole.args()[0], dtype), static_cast<double>(*n->constant()))};
  return {quotient(parts_of(c, c.whole.args()[0], dtype), parts_of(c, c.whole.args()[1], dtype))};
}

ComplexResults complex_conjugate(const ComplexCall& c) {
  const ComplexParts z = c.given("self");
  return {{z.re, z.im ? -z.im : Tensor()}};
}

ComplexResults complex_either(const ComplexCall& c) { return joined(c, "aten.logical_or"); }
ComplexResults complex_both(const ComplexCall& c) { return joined(c, "aten.logical_and"); }

Tensors truth_of_complex(ir::Builder& b, const ir::Call& c) {
  std::vector<Operand> args;
  for (const Arg& arg : c.args()) {
    Value* const* value = std::get_if<Value*>(&arg);
    const bool is_tensor = value != nullptr && (*value)->type.is_tensor();
    args.push_back(is_tensor ? Operand(compare("ne", Tensor(b, *value), 0.0)) : Operand(arg));
  }
  return call_many(b, c.op().name(), args);
}

}  // namespace tandem::ops
