// Problem: one place that says what every opcode computes, bit for bit, including wrap-around, NaN,
// zero divisors and out-of-range conversions. Approach: floats are unpacked to float or double
// (small ones compute in float and round), operated on by one library call, and packed again, so
// nothing can be contracted or kept in higher precision. Integers are computed modulo 2^64 and
// wrapped to their width.
#include "loop/evaluate.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "loop/small_floats.h"

namespace tandem::loop {
namespace {

constexpr int64_t kMinI64 = std::numeric_limits<int64_t>::min();
constexpr int64_t kMaxI64 = std::numeric_limits<int64_t>::max();

Bits wrap(DType dtype, int64_t value) {
  switch (dtype) {
    case DType::boolean: return value != 0;
    case DType::i8: return static_cast<int8_t>(value);
    case DType::u8: return static_cast<uint8_t>(value);
    case DType::i16: return static_cast<int16_t>(value);
    case DType::i32: return static_cast<int32_t>(value);
    default: return value;
  }
}

float to_float(DType dtype, Bits x) {
  if (dtype == DType::f32) return std::bit_cast<float>(static_cast<uint32_t>(x));
  return small_to_f32(dtype, static_cast<uint32_t>(x));
}

Bits from_float(DType dtype, float x) {
  if (dtype == DType::f32) return std::bit_cast<uint32_t>(x);
  return f32_to_small(dtype, x);
}

double to_double(Bits x) { return std::bit_cast<double>(x); }
Bits from_double(double x) { return std::bit_cast<Bits>(x); }

template <class T>
T float_unary(Opcode opcode, T x) {
  switch (opcode) {
    case Opcode::neg: return -x;
    case Opcode::abs: return std::fabs(x);
    case Opcode::sqrt: return std::sqrt(x);
    case Opcode::exp: return std::exp(x);
    case Opcode::expm1: return std::expm1(x);
    case Opcode::log: return std::log(x);
    case Opcode::log1p: return std::log1p(x);
    case Opcode::log2: return std::log2(x);
    case Opcode::sin: return std::sin(x);
    case Opcode::cos: return std::cos(x);
    case Opcode::tanh: return std::tanh(x);
    case Opcode::lgamma: return static_cast<T>(std::lgamma(static_cast<double>(x)));
    case Opcode::erf: return std::erf(x);
    case Opcode::ceil: return std::ceil(x);
    case Opcode::floor: return std::floor(x);
    case Opcode::round: return std::nearbyint(x);
    case Opcode::trunc: return std::trunc(x);
    default: TD_CHECK(false) << name_of(opcode) << " of a float";
  }
  return x;
}

/// Of equal operands (also +0 and -0) min and max give the first.
template <class T>
T float_binary(Opcode opcode, T a, T b) {
  switch (opcode) {
    case Opcode::add: return a + b;
    case Opcode::sub: return a - b;
    case Opcode::mul: return a * b;
    case Opcode::div: return a / b;
    case Opcode::fmod: return std::fmod(a, b);
    case Opcode::pow: return std::pow(a, b);
    case Opcode::min: return std::isnan(a) ? a : std::isnan(b) ? b : b < a ? b : a;
    case Opcode::max: return std::isnan(a) ? a : std::isnan(b) ? b : a < b ? b : a;
    default: TD_CHECK(false) << name_of(opcode) << " of floats";
  }
  return a;
}

template <class T>
bool compare(Opcode opcode, T a, T b) {
  switch (opcode) {
    case Opcode::eq: return a == b;
    case Opcode::ne: return a != b;
    case Opcode::lt: return a < b;
    case Opcode::le: return a <= b;
    case Opcode::gt: return a > b;
    default: return a >= b;
  }
}

int64_t wrapping(Opcode opcode, int64_t a, int64_t b) {
  uint64_t x = static_cast<uint64_t>(a);
  uint64_t y = static_cast<uint64_t>(b);
  uint64_t result = opcode == Opcode::add ? x + y : opcode == Opcode::sub ? x - y : x * y;
  return static_cast<int64_t>(result);
}

/// Divisor 0 gives 0; the smallest number over -1 wraps.
int64_t divide(Opcode opcode, int64_t a, int64_t b) {
  if (b == 0) return 0;
  if (b == -1) return opcode == Opcode::fmod ? 0 : wrapping(Opcode::sub, 0, a);
  int64_t rest = a % b;
  if (opcode == Opcode::fmod) return rest;
  bool below = opcode == Opcode::floor_div && rest != 0 && (rest < 0) != (b < 0);
  return a / b - (below ? 1 : 0);
}

/// Negative exponents: the true power truncated, so 0 unless the base is 1 or -1.
int64_t int_pow(int64_t base, int64_t exponent) {
  if (exponent < 0) return base == 1 ? 1 : base == -1 ? (exponent % 2 != 0 ? -1 : 1) : 0;
  int64_t result = 1;
  for (; exponent != 0; exponent >>= 1) {
    if ((exponent & 1) != 0) result = wrapping(Opcode::mul, result, base);
    base = wrapping(Opcode::mul, base, base);
  }
  return result;
}

/// A distance outside [0, width) shifts everything out.
int64_t shift(Opcode opcode, DType dtype, int64_t a, int64_t distance) {
  int64_t width = size_of(dtype) * 8;
  bool all = distance < 0 || distance >= width;
  if (opcode == Opcode::shift_right) return all ? (a < 0 ? -1 : 0) : a >> distance;
  return all ? 0 : static_cast<int64_t>(static_cast<uint64_t>(a) << distance);
}

int64_t int_binary(Opcode opcode, DType dtype, int64_t a, int64_t b) {
  switch (opcode) {
    case Opcode::add:
    case Opcode::sub:
    case Opcode::mul: return wrapping(opcode, a, b);
    case Opcode::div:
    case Opcode::floor_div:
    case Opcode::fmod: return divide(opcode, a, b);
    case Opcode::pow: return int_pow(a, b);
    case Opcode::min: return b < a ? b : a;
    case Opcode::max: return a < b ? b : a;
    case Opcode::bit_and: return a & b;
    case Opcode::bit_or: return a | b;
    case Opcode::bit_xor: return a ^ b;
    case Opcode::shift_left:
    case Opcode::shift_right: return shift(opcode, dtype, a, b);
    default: TD_CHECK(false) << name_of(opcode) << " of integers";
  }
  return 0;
}

int64_t int_unary(Opcode opcode, DType dtype, int64_t x) {
  switch (opcode) {
    case Opcode::neg: return wrapping(Opcode::sub, 0, x);
    case Opcode::abs: return x < 0 ? wrapping(Opcode::sub, 0, x) : x;
    case Opcode::logical_not: return x == 0;
    case Opcode::bit_not: return dtype == DType::boolean ? x == 0 : ~x;
    default: TD_CHECK(false) << name_of(opcode) << " of an integer";
  }
  return 0;
}

/// As cvttsd2si: the smallest integer where it does not fit. Types below 32 bits take the low bits
/// of i32.
Bits truncate(double x, DType to) {
  if (to == DType::boolean) return x != 0;
  double limit = to == DType::i64 ? 0x1p63 : 0x1p31;
  double whole = std::trunc(x);
  bool fits = whole >= -limit && whole < limit;
  if (!fits) return wrap(to, to == DType::i64 ? kMinI64 : std::numeric_limits<int32_t>::min());
  return wrap(to, static_cast<int64_t>(whole));
}

bool is_nan(DType dtype, Bits x) {
  if (!is_float(dtype)) return false;
  return dtype == DType::f64 ? std::isnan(to_double(x)) : std::isnan(to_float(dtype, x));
}

Bits extreme(DType dtype, bool largest) {
  if (is_float(dtype)) {
    double infinity = std::numeric_limits<double>::infinity();
    return cast_bits(from_double(largest ? infinity : -infinity), DType::f64, dtype);
  }
  if (dtype == DType::boolean) return largest;
  if (dtype == DType::u8) return largest ? 255 : 0;
  int64_t shift_by = 64 - size_of(dtype) * 8;
  return (largest ? kMaxI64 : kMinI64) >> shift_by;
}

bool is_argument(Combiner combiner) {
  return combiner == Combiner::argmin || combiner == Combiner::argmax;
}

/// True when b replaces a: NaN before numbers, the better number, the lower index among equals.
bool replaces(Combiner combiner, DType dtype, const std::vector<Bits>& a,
              const std::vector<Bits>& b) {
  bool a_nan = is_nan(dtype, a[0]);
  bool b_nan = is_nan(dtype, b[0]);
  if (a_nan != b_nan) return b_nan;
  if (a_nan || binary_bits(Opcode::eq, dtype, a[0], b[0]) != 0) return b[1] < a[1];
  Opcode better = combiner == Combiner::argmin ? Opcode::lt : Opcode::gt;
  return binary_bits(better, dtype, b[0], a[0]) != 0;
}

Opcode opcode_of(Combiner combiner) {
  switch (combiner) {
    case Combiner::sum:
    case Combiner::dot:
    case Combiner::dot4:
    case Combiner::dot4_saturating:
    case Combiner::dot2:
    case Combiner::dot_bf16: return Opcode::add;  // how partial results combine
    case Combiner::prod: return Opcode::mul;
    case Combiner::min:
    case Combiner::argmin: return Opcode::min;
    case Combiner::max:
    case Combiner::logaddexp:
    case Combiner::argmax: return Opcode::max;
    case Combiner::any: return Opcode::bit_or;
    case Combiner::all: return Opcode::bit_and;
  }
  return Opcode::add;
}

// log(exp a + exp b) = m + log(1 + exp(n - m)), m the greater one; of equal infinities that one.
Bits log_add_exp(DType dtype, Bits a, Bits b) {
  const Bits most = binary_bits(Opcode::max, dtype, a, b);
  const Bits least = binary_bits(Opcode::min, dtype, a, b);
  const Bits apart = binary_bits(Opcode::sub, dtype, least, most);
  const bool is_same = binary_bits(Opcode::eq, dtype, most, least) != 0;
  if (is_same && is_nan(dtype, apart)) return most;
  const Bits more = unary_bits(Opcode::log1p, dtype, unary_bits(Opcode::exp, dtype, apart));
  return binary_bits(Opcode::add, dtype, most, more);
}

}  // namespace

Bits constant_bits(Val constant) {
  if (!is_float(constant->dtype)) return constant->integer;
  return cast_bits(from_double(constant->number), DType::f64, constant->dtype);
}

Bits read_element(const void* base, DType dtype, int64_t index) {
  uint64_t raw = 0;
  int64_t size = size_of(dtype);
  std::memcpy(&raw, static_cast<const char*>(base) + index * size, static_cast<size_t>(size));
  return is_float(dtype) ? static_cast<Bits>(raw) : wrap(dtype, static_cast<int64_t>(raw));
}

void write_element(void* base, DType dtype, int64_t index, Bits value) {
  int64_t size = size_of(dtype);
  std::memcpy(static_cast<char*>(base) + index * size, &value, static_cast<size_t>(size));
}

Bits unary_bits(Opcode opcode, DType dtype, Bits x) {
  if (dtype == DType::f64) return from_double(float_unary(opcode, to_double(x)));
  if (is_float(dtype)) return from_float(dtype, float_unary(opcode, to_float(dtype, x)));
  return wrap(dtype, int_unary(opcode, dtype, x));
}

Bits binary_bits(Opcode opcode, DType dtype, Bits a, Bits b) {
  bool compares = opcode >= Opcode::eq && opcode <= Opcode::ge;
  if (dtype == DType::f64) {
    if (compares) return compare(opcode, to_double(a), to_double(b));
    return from_double(float_binary(opcode, to_double(a), to_double(b)));
  }
  if (is_float(dtype)) {
    float x = to_float(dtype, a);
    float y = to_float(dtype, b);
    return compares ? compare(opcode, x, y) : from_float(dtype, float_binary(opcode, x, y));
  }
  return compares ? compare(opcode, a, b) : wrap(dtype, int_binary(opcode, dtype, a, b));
}

/// To and from 16-bit and 8-bit floats everything goes through f32 (f64 rounds twice, as in
/// PyTorch).
Bits cast_bits(Bits x, DType from, DType to) {
  if (from == to) return x;
  if (!is_float(from)) {
    if (!is_float(to)) return wrap(to, x);
    if (to == DType::f64) return from_double(static_cast<double>(x));
    return from_float(to, static_cast<float>(x));
  }
  double value = from == DType::f64 ? to_double(x) : static_cast<double>(to_float(from, x));
  if (to == DType::f64) return from_double(value);
  return is_float(to) ? from_float(to, static_cast<float>(value)) : truncate(value, to);
}

Bits bitcast_bits(Bits x, DType to) {
  if (!is_float(to)) return wrap(to, x);
  int64_t unused = 64 - size_of(to) * 8;
  return static_cast<Bits>((static_cast<uint64_t>(x) << unused) >> unused);
}

std::vector<Bits> identity_of(Combiner combiner, DType dtype) {
  switch (combiner) {
    case Combiner::sum:
    case Combiner::dot:
    case Combiner::dot4:
    case Combiner::dot4_saturating:
    case Combiner::dot2:
    case Combiner::dot_bf16: return {0};
    case Combiner::prod: return {cast_bits(1, DType::i64, dtype)};
    case Combiner::min: return {extreme(dtype, true)};
    case Combiner::max:
    case Combiner::logaddexp: return {extreme(dtype, false)};
    case Combiner::argmin: return {extreme(dtype, true), kMaxI64};
    case Combiner::argmax: return {extreme(dtype, false), kMaxI64};
    case Combiner::any: return {0};
    case Combiner::all: return {1};
  }
  return {0};
}

Bits multiply_add_bits(DType dtype, Bits a, Bits b, Bits c) {
  if (dtype == DType::f64) return from_double(std::fma(to_double(a), to_double(b), to_double(c)));
  if (is_float(dtype)) {
    float sum = std::fma(to_float(dtype, a), to_float(dtype, b), to_float(dtype, c));
    return from_float(dtype, sum);
  }
  return binary_bits(Opcode::add, dtype, binary_bits(Opcode::mul, dtype, a, b), c);
}

Bits pack_bits(std::span<const Bits> parts) {
  const size_t width = 32 / parts.size();
  const uint64_t mask = (uint64_t{1} << width) - 1;
  uint64_t bits = 0;
  for (size_t i = parts.size(); i-- > 0;)
    bits = (bits << width) | (static_cast<uint64_t>(parts[i]) & mask);
  return static_cast<int32_t>(bits);
}

namespace {

Bits packed_product(DType left, DType right, Bits a, Bits b) {
  const int64_t width = size_of(right) * 8;
  int64_t sum = 0;
  for (int64_t at = 0; at < 32; at += width) sum += wrap(left, a >> at) * wrap(right, b >> at);
  return sum;
}

/// Of bytes, two products at a time.
Bits saturating_product(Bits a, Bits b) {
  constexpr Bits kHalf = 0xffff;
  Bits sum = 0;
  for (int64_t at = 0; at < 32; at += 16) {
    const Bits two = packed_product(DType::u8, DType::i8, (a >> at) & kHalf, (b >> at) & kHalf);
    sum += std::clamp<Bits>(two, INT16_MIN, INT16_MAX);
  }
  return sum;
}

float or_zero(float x) { return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0F, x) : x; }

/// One of the two bf16 in the bits of an f32.
float half_of(Bits word, int number) {
  const uint32_t bits = static_cast<uint32_t>(word);
  return or_zero(std::bit_cast<float>(number == 0 ? bits << 16 : bits & 0xffff0000U));
}

Bits add_bf16_products(Bits a, Bits b, Bits sum) {
  float result = or_zero(to_float(DType::f32, sum));
  for (const int number : {1, 0})
    result = or_zero(std::fma(half_of(a, number), half_of(b, number), result));
  return from_float(DType::f32, result);
}

}  // namespace

void accumulate_bits(Combiner combiner, DType dtype, std::vector<Bits>& into,
                     const std::vector<Bits>& inputs) {
  if (combiner == Combiner::dot)
    into[0] = multiply_add_bits(dtype, inputs[0], inputs[1], into[0]);
  else if (combiner == Combiner::dot4)
    into[0] = wrap(dtype, into[0] + packed_product(DType::u8, DType::i8, inputs[0], inputs[1]));
  else if (combiner == Combiner::dot4_saturating)
    into[0] = wrap(dtype, into[0] + saturating_product(inputs[0], inputs[1]));
  else if (combiner == Combiner::dot2)
    into[0] = wrap(dtype, into[0] + packed_product(DType::i16, DType::i16, inputs[0], inputs[1]));
  else if (combiner == Combiner::dot_bf16)
    into[0] = add_bf16_products(inputs[0], inputs[1], into[0]);
  else
    combine_bits(combiner, dtype, into, inputs);
}

void combine_bits(Combiner combiner, DType dtype, std::vector<Bits>& into,
                  const std::vector<Bits>& from) {
  if (combiner == Combiner::logaddexp) {
    into[0] = log_add_exp(dtype, into[0], from[0]);
  } else if (!is_argument(combiner)) {
    into[0] = binary_bits(opcode_of(combiner), dtype, into[0], from[0]);
  } else if (replaces(combiner, dtype, into, from)) {
    into = from;
  }
}

}  // namespace tandem::loop
