// exp, expm1, tanh, erf, log, log1p, log2 of f32 lanes.
//
// The exponentials split x = n ln2 + r, |r| <= ln2 / 2, with ln2 as a short head (n * head is
// exact) and a tail, then join 2^n and a polynomial in r. The logarithms split x = 2^e m, 2/3 <= m
// < 4/3, so that e = 0 around 1, where nothing may cancel. Coefficients are weighted minimax-like
// fits made for these intervals, each rounded to f32 before the next one was fitted.
//
// NaN: clamps let it pass, and it is only ever added or multiplied, never joined by integer
// arithmetic (an integer add on a NaN's bits could make a number of it). Signed zeros: n * constant
// adds a +0 to -0, so odd functions take the sign of x back at the end.
#include <array>
#include <limits>
#include <numeric>

#include "codegen/vector_math_lanes.h"
#include "llvm/IR/Function.h"
#include "llvm/IR/IntrinsicsX86.h"

namespace tandem::codegen {
namespace {

using llvm::Value;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kLog2E = 0x1.715476p+0;
constexpr double kLog2ETail = 2.49542431e-08;  // fitted together with kLog2Series
constexpr double kLn2Head = 0.693145752;
constexpr double kLn2Tail = 1.42860677e-06;
constexpr double kHalfLn2 = 0x1.62e43p-2;

// (exp(r) - 1 - r) / r^2, for a small relative error of exp(r) and of exp(r) - 1.
constexpr std::array kExpSeries{0.499999881, 0.166665182, 0.0416696519, 0.00836895127,
                                0.00137450406};
constexpr std::array kExpm1Series{0.5, 0.166665405, 0.0416664779, 0.00836682599, 0.00139336975};
// (tanh(x) - x) / x^3 in x^2, |x| <= 0.66; e^2r, |r| <= ln2 / 4.
constexpr std::array kTanhSeries{-0.333332568, 0.13330707, -0.0536758415, 0.0204264633,
                                 -0.00546561135};
constexpr std::array kExp2xSeries{1.0, 1.99999905, 1.99996543, 1.33345056, 0.670390487, 0.26434651};
// erf(x) / x - 1 in x^2, |x| <= 1; log2(erfc(x)), 1 <= x <= 4; 2^g, |g| <= 1/2.
constexpr std::array kErfSeries{0.128379166,   -0.376126289,    0.112836175,   -0.0268550664,
                                0.00519057596, -0.000802905415, 7.91385974e-05};
constexpr std::array kLogErfcSeries{0.000265891373, -1.62961233,    -0.913591385,
                                    -0.156364098,   0.0363362953,   -0.00605441397,
                                    0.000634438475, -3.10984615e-05};
constexpr std::array kExp2Series{1.0,          0.693146884,   0.24022238,
                                 0.0555085689, 0.00967170019, 0.00132289075};
// (log(1 + f) - f) / f^2 and (log2(1 + f) - f log2(e)) / f^2, |f| <= 1/3.
constexpr std::array kLogSeries{-0.5,        0.333332062,  -0.249998137, 0.200108558, -0.166798577,
                                0.139995858, -0.121920615, 0.140118852,  -0.128607333};
constexpr std::array kLog2Series{-0.72134757, 0.480895817, -0.360666752, 0.288718313, -0.240756169,
                                 0.20169799,  -0.17464967, 0.203244761,  -0.190122679};

constexpr double kLeastExponent = -0x1.9fe368p+6;  // the least float above -150 ln2
constexpr unsigned kRegisterLanes = 16;            // of AVX-512

bool has_scalef(Lanes& v) {
  auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(v.type());
  if (vector == nullptr || vector->getNumElements() % kRegisterLanes != 0) return false;
  llvm::Function* function = v.builder().GetInsertBlock()->getParent();
  llvm::StringRef features = function->getFnAttribute("target-features").getValueAsString();
  return features.contains("+avx512f");
}

/// p * 2^n for any number of registers, one instruction each.
Value* scalef(llvm::IRBuilderBase& b, Value* p, Value* n) {
  unsigned lanes = llvm::cast<llvm::FixedVectorType>(p->getType())->getNumElements();
  if (lanes > kRegisterLanes) {
    std::vector<int> all(lanes);
    std::iota(all.begin(), all.end(), 0);
    llvm::ArrayRef<int> low(all.data(), lanes / 2);
    llvm::ArrayRef<int> high(all.data() + lanes / 2, lanes / 2);
    Value* first = scalef(b, b.CreateShuffleVector(p, low), b.CreateShuffleVector(n, low));
    Value* second = scalef(b, b.CreateShuffleVector(p, high), b.CreateShuffleVector(n, high));
    return b.CreateShuffleVector(first, second, all);
  }
  constexpr int kCurrentRounding = 4;
  return b.CreateIntrinsic(llvm::Intrinsic::x86_avx512_mask_scalef_ps_512, {},
                           {p, n, p, b.getInt16(-1), b.getInt32(kCurrentRounding)});
}

/// p * 2^n, rounded once: 2^n goes in two halves, of which only the second product can leave the
/// normal numbers.
Value* scale(Lanes& v, Value* p, const Lanes::Rounded& n) {
  llvm::IRBuilderBase& b = v.builder();
  if (has_scalef(v)) return scalef(b, p, n.number);
  Value* exponent = b.CreateSub(v.bits(n.shifted), v.i32(0x4b400000));
  Value* half = b.CreateAShr(exponent, v.i32(1));
  Value* rest = b.CreateSub(exponent, half);
  return v.mul(v.mul(p, v.power_of_two_bits(half)), v.power_of_two_bits(rest));
}

struct Split {
  Value* exponent;  // e, as a float
  Value* fraction;  // m - 1
};

/// x = 2^e m; meaningless for x <= 0, infinity and NaN.
Split split(Lanes& v, Value* x) {
  llvm::IRBuilderBase& b = v.builder();
  Value* denormal = v.less(x, v.f32(0x1p-126));
  Value* normal = v.select(denormal, v.mul(x, v.f32(0x1p23)), x);
  Value* offset = b.CreateSub(v.bits(normal), v.i32(0x3f2aaaab));
  Value* shift = v.select(denormal, v.f32(-23.0), v.f32(0.0));
  Value* exponent = v.add(v.to_float(b.CreateAShr(offset, v.i32(23))), shift);
  Value* m = b.CreateSub(v.bits(normal), b.CreateAnd(offset, v.i32(0xff800000)));
  return {exponent, v.sub(v.from_bits(m), v.f32(1.0))};
}

/// e ln2 + log(1 + f).
Value* join_log(Lanes& v, const Split& s) {
  Value* square = v.mul(s.fraction, s.fraction);
  Value* series = v.polynomial(s.fraction, kLogSeries);
  Value* tail = v.fma(square, series, v.mul(s.exponent, v.f32(kLn2Tail)));
  return v.add(v.fma(s.exponent, v.f32(kLn2Head), s.fraction), tail);
}

/// A logarithm with its pole at x = pole: -inf there, NaN below and at NaN, +inf at +inf.
Value* log_specials(Lanes& v, Value* x, Value* result, double pole) {
  Value* outside = v.select(v.equal(x, v.f32(pole)), v.f32(-kInfinity),
                            v.f32(std::numeric_limits<double>::quiet_NaN()));
  Value* inside = v.select(v.less(v.f32(pole), x), result, outside);
  return v.select(v.equal(x, v.f32(kInfinity)), x, inside);
}

}  // namespace

Value* emit_exp(Lanes& v, Value* x) {
  // Above 89 the result rounds to infinity; the clamp keeps n * ln2 in range. Where it rounds to 0
  // nothing is scaled: an underflow takes processors of Intel 150 cycles, and masked scores are
  // -inf.
  Value* vanishes = v.less(x, v.f32(kLeastExponent));
  Value* clamped = v.select(vanishes, v.f32(0.0), v.at_most(x, 89.0));
  Lanes::Rounded n = v.nearest(clamped, kLog2E);
  Value* head = v.fma(n.number, v.f32(-kLn2Head), clamped);
  Value* r = v.fma(n.number, v.f32(-kLn2Tail), head);
  Value* p = v.fma(v.polynomial(r, kExpSeries), r, v.f32(1.0));
  return v.select(vanishes, v.f32(0.0), scale(v, v.fma(p, r, v.f32(1.0)), n));
}

Value* emit_expm1(Lanes& v, Value* x) {
  Value* clamped = v.at_least(v.at_most(x, 89.0), -18.0);
  Lanes::Rounded n = v.nearest(clamped, kLog2E);
  // r = head + correction; the head is exact and joins 2^n - 1 unrounded, all that is small goes in
  // last.
  Value* head = v.fma(n.number, v.f32(-kLn2Head), clamped);
  Value* correction = v.mul(n.number, v.f32(-kLn2Tail));
  Value* r = v.add(head, correction);
  Value* tail = v.fma(v.mul(r, r), v.polynomial(r, kExpm1Series), correction);
  // 2^128 is no float: 2^127 and one doubling instead, which is where overflow to infinity happens.
  Value* within = v.at_most(n.number, 127.0);
  Value* doubling = v.sub(n.number, within);
  Value* power = v.power_of_two({within, v.add(within, v.f32(0x1.8p23))});
  Value* whole = v.fma(power, head, v.sub(power, v.f32(1.0)));
  Value* result = v.fma(power, tail, whole);
  return v.with_sign(v.fma(result, doubling, result), v.sign_bit(x));
}

// tanh |x| = 1 - 2 / (e^2|x| + 1), or near 0 an odd polynomial.
Value* emit_tanh(Lanes& v, Value* x) {
  Value* magnitude = v.at_most(v.abs(x), 10.0);
  Lanes::Rounded n = v.nearest(magnitude, 2.0 * kLog2E);
  // Exact: n <= 29. The tail of ln2 / 2 matters only for large n, where 1 outweighs it.
  Value* r = v.fma(n.number, v.f32(-kHalfLn2), magnitude);
  Value* power = v.fma(v.polynomial(r, kExp2xSeries), v.power_of_two(n), v.f32(1.0));
  Value* far = v.add(v.div(v.f32(-2.0), power), v.f32(1.0));

  Value* square = v.mul(magnitude, magnitude);
  Value* cube = v.mul(magnitude, square);
  Value* near = v.fma(cube, v.polynomial(square, kTanhSeries), magnitude);
  return v.with_sign(v.select(v.less(v.f32(0.66), magnitude), far, near), v.sign_bit(x));
}

Value* emit_erf(Lanes& v, Value* x) {
  Value* magnitude = v.abs(x);
  Value* near = v.fma(x, v.polynomial(v.mul(x, x), kErfSeries), x);
  // Far: 1 - 2^log2(erfc). At 4 erfc is below half an ulp of 1.
  Value* log_erfc = v.polynomial(v.at_most(magnitude, 4.0), kLogErfcSeries);
  Lanes::Rounded n = v.nearest(log_erfc, 1.0);
  Value* power = v.polynomial(v.sub(log_erfc, n.number), kExp2Series);
  Value* far = v.fma(v.neg(v.power_of_two(n)), power, v.f32(1.0));
  return v.select(v.less(magnitude, v.f32(1.0)), near, v.with_sign(far, v.sign_bit(x)));
}

Value* emit_log(Lanes& v, Value* x) { return log_specials(v, x, join_log(v, split(v, x)), 0.0); }

// 1 + x would lose x's low bits, so it only chooses e; m - 1 = 2^-e x + (2^-e - 1) is rounded once.
// Scaling by 2^-e is an integer subtraction: e != 0 only for |x| > 1/4, so x and 2^-e x are normal
// numbers.
Value* emit_log1p(Lanes& v, Value* x) {
  llvm::IRBuilderBase& b = v.builder();
  Value* offset = b.CreateSub(v.bits(v.add(x, v.f32(1.0))), v.i32(0x3f2aaaab));
  Value* exponent_bits = b.CreateAnd(offset, v.i32(0xff800000));
  Value* scaled = v.from_bits(b.CreateSub(v.bits(x), exponent_bits));
  // 4 * 2^-e: 2^-e alone is denormal at e = 128.
  Value* unit = v.from_bits(b.CreateSub(v.i32(0x40800000), exponent_bits));
  Value* fraction = v.add(scaled, v.fma(unit, v.f32(0.25), v.f32(-1.0)));
  Value* exponent = v.to_float(b.CreateAShr(offset, v.i32(23)));
  Value* result = v.with_sign(join_log(v, {exponent, fraction}), v.sign_bit(x));
  return log_specials(v, x, result, -1.0);
}

Value* emit_log2(Lanes& v, Value* x) {
  Split s = split(v, x);
  Value* series = v.fma(v.polynomial(s.fraction, kLog2Series), s.fraction, v.f32(kLog2ETail));
  Value* log_m = v.fma(s.fraction, v.f32(kLog2E), v.mul(s.fraction, series));
  return log_specials(v, x, v.add(s.exponent, log_m), 0.0);
}

}  // namespace tandem::codegen
