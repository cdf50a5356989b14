// sin, cos and pow of f32 lanes, computed in f64 where f32 has too few bits.
//
// sin, cos: 1 / (2 pi) is cut into pieces of 29 bits, so that x * piece is exact in f64 and its
// whole turns can be thrown away exactly. That holds for every finite x: large ones only take other
// pieces. pow: |x|^y = 2^(y log2 |x|) with log2 good to 2^-37 and one rounding to f32 at the end,
// which also makes overflow, infinities and denormal results right; signs and the special cases of
// C99 are selected around it.
#include <array>
#include <limits>

#include "codegen/vector_math_lanes.h"

namespace tandem::codegen {
namespace {

using llvm::Value;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// 1 / (2 pi) in pieces for angles below and from 2^79 on. For the latter the bits down to 2^-56 are
// left out: they give whole turns. The 53 bits that follow the last piece give less than 2^-10
// turns.
struct TurnPieces {
  std::array<double, 3> exact;
  double rest;
};
constexpr double kFar = 0x1p79;
constexpr TurnPieces kNearPieces{{0x1.45f306dp-3, 0x1.9391054p-32, 0x1.4fe13abp-61},
                                 0x1.d1f534ddc0db6p-90};
constexpr TurnPieces kFarPieces{{0x1.29fc274p-58, 0x1.7d1f534p-86, 0x1.bb81b6cp-115},
                                0x1.4acc9e21c821p-145};
constexpr double kTwoPi = 0x1.921fb54442d18p+2;

// (sin(r) - r) / r^3 and (cos(r) - 1 + r^2 / 2) / r^4 in r^2, |r| <= pi / 4.
constexpr std::array kSinSeries{-0.166666552, 0.00833219197, -0.000195187517};
constexpr std::array kCosSeries{0.0416666456, -0.00138873106, 2.44325456e-05};
// log2(1 + f) / f, |f| <= 1/3; 2^g, |g| <= 1/2.
constexpr std::array kLog2Series{
    0x1.71547652bc293p+0, -0x1.71547652f17fbp-1, 0x1.ec709d8d4e1e2p-2, -0x1.715475bd91ce3p-2,
    0x1.2776e34a23a5ep-2, -0x1.ec710dc0187f9p-3, 0x1.a60ad1503fa33p-3, -0x1.714201209daabp-3,
    0x1.49875055496b8p-3, -0x1.29039a49981c6p-3, 0x1.f9bce1f88c1a2p-4, -0x1.c94520c5ca587p-4,
    0x1.4336466d7e37dp-3, -0x1.34e3c8d2c7715p-3};
constexpr std::array kExp2Series{1.0,
                                 0x1.62e430c688ed4p-1,
                                 0x1.ebfbdcf8b4486p-3,
                                 0x1.c6aed61c2af16p-5,
                                 0x1.3b2cc347135d2p-7,
                                 0x1.5f44dc126b0e5p-10,
                                 0x1.4258d7d758223p-13};

struct Angle {
  Value* quadrant;  // integer q modulo 4 (as an integer congruent to it)
  Value* rest;      // magnitude - q pi / 2, within pi / 4
};

/// Infinity and NaN give a NaN rest.
Angle reduce_angle(Lanes& v, Value* magnitude) {
  Value* x = v.widen(magnitude);
  Value* far = v.less(v.f64(kFar), x);
  auto piece = [&](double a, double b) { return v.select(far, v.f64(b), v.f64(a)); };
  Value* last = v.mul(x, piece(kNearPieces.rest, kFarPieces.rest));
  std::array<Value*, 3> turns{};
  for (size_t i = 0; i < turns.size(); ++i) {
    Value* product = v.mul(x, piece(kNearPieces.exact[i], kFarPieces.exact[i]));
    turns[i] = v.sub(product, v.rint(product));
  }
  Value* rough = v.add(v.add(turns[0], turns[1]), v.add(turns[2], last));
  Value* quadrant = v.rint(v.mul(rough, v.f64(4.0)));
  // Summed again with the quadrant taken off first and large pieces before small ones: whatever
  // cancels then does so before it can round away the bits of a rest near 0.
  Value* rest = v.fma(quadrant, v.f64(-0.25), turns[0]);
  rest = v.add(v.add(v.add(rest, turns[1]), turns[2]), last);
  return {v.to_int(quadrant), v.narrow(v.mul(rest, v.f64(kTwoPi)))};
}

/// sin(rest + quadrant pi / 2) with `sign` flipped in.
Value* sine_of(Lanes& v, const Angle& angle, Value* quadrant, Value* sign) {
  llvm::IRBuilderBase& b = v.builder();
  Value* r = angle.rest;
  Value* square = v.mul(r, r);
  Value* sine = v.fma(v.mul(r, square), v.polynomial(square, kSinSeries), r);
  Value* fourth = v.fma(v.polynomial(square, kCosSeries), square, v.f32(-0.5));
  Value* cosine = v.fma(square, fourth, v.f32(1.0));
  Value* odd = b.CreateICmpNE(b.CreateAnd(quadrant, v.i32(1)), v.i32(0));
  Value* flip = b.CreateShl(b.CreateAnd(quadrant, v.i32(2)), v.i32(30));
  if (sign != nullptr) flip = b.CreateXor(flip, sign);
  return v.from_bits(b.CreateXor(v.bits(v.select(odd, cosine, sine)), flip));
}

/// log2 of a magnitude in f64, where every f32 denormal is a normal number. Zero, infinity, NaN:
/// themselves'.
Value* wide_log2(Lanes& v, Value* magnitude) {
  llvm::IRBuilderBase& b = v.builder();
  constexpr int64_t kOne = 0x3ffLL << 52;
  constexpr int64_t kTwoThirds = 0x3fe5555555555555;
  Value* x = v.widen(magnitude);
  // The biased exponent of x / m, 2/3 <= m < 4/3, turned to f64 by way of 2^52 + exponent.
  Value* shifted = b.CreateAdd(v.bits(x), v.i64(kOne - kTwoThirds));
  Value* biased = b.CreateLShr(shifted, v.i64(52));
  Value* wide = v.from_bits(b.CreateOr(biased, v.i64(0x433LL << 52)));
  Value* exponent = v.sub(wide, v.f64(0x1p52 + 1023.0));
  Value* low = b.CreateAnd(shifted, v.i64((1LL << 52) - 1));
  Value* f = v.sub(v.from_bits(b.CreateAdd(low, v.i64(kTwoThirds))), v.f64(1.0));
  Value* result = v.fma(f, v.polynomial(f, kLog2Series), exponent);
  result = v.select(v.less(x, v.f64(kInfinity)), result, x);
  return v.select(v.equal(x, v.f64(0.0)), v.f64(-kInfinity), result);
}

/// 2^x rounded to f32: infinity and 0 far out, NaN at NaN.
Value* narrow_exp2(Lanes& v, Value* x) {
  Value* clamped = v.at_least(v.at_most(x, 200.0), -200.0);
  Lanes::Rounded n = v.nearest(clamped, 1.0);
  Value* power = v.polynomial(v.sub(clamped, n.number), kExp2Series);
  return v.narrow(v.mul(power, v.power_of_two(n)));
}

}  // namespace

// |x| is reduced and the sign flipped in afterwards: -0 gives -0.
Value* emit_sin(Lanes& v, Value* x) {
  Angle angle = reduce_angle(v, v.abs(x));
  return sine_of(v, angle, angle.quadrant, v.sign_bit(x));
}

Value* emit_cos(Lanes& v, Value* x) {
  Angle angle = reduce_angle(v, v.abs(x));
  return sine_of(v, angle, v.builder().CreateAdd(angle.quadrant, v.i32(1)), nullptr);
}

Value* emit_pow(Lanes& v, Value* x, Value* y) {
  llvm::IRBuilderBase& b = v.builder();
  // An infinite y acts as the largest float: an even integer, and 1^y stays 1 rather than 2^(0 *
  // inf).
  constexpr double kMaximum = std::numeric_limits<float>::max();
  Value* exponent = v.at_least(v.at_most(y, kMaximum), -kMaximum);
  Value* power = narrow_exp2(v, v.mul(v.widen(exponent), wide_log2(v, v.abs(x))));

  Value* whole = v.equal(v.rint(exponent), exponent);
  Value* half = v.mul(exponent, v.f32(0.5));
  Value* odd = b.CreateAnd(whole, b.CreateFCmpONE(v.rint(half), half));
  Value* with_sign = v.with_sign(power, v.select(odd, v.sign_bit(x), v.i32(0)));

  Value* negative = b.CreateAnd(v.less(x, v.f32(0.0)), v.less(v.f32(-kInfinity), x));
  Value* undefined = b.CreateAnd(negative, b.CreateNot(whole));
  Value* nan = v.f32(std::numeric_limits<double>::quiet_NaN());
  Value* result = v.select(undefined, nan, with_sign);
  Value* one = b.CreateOr(v.equal(x, v.f32(1.0)), v.equal(y, v.f32(0.0)));
  return v.select(one, v.f32(1.0), result);
}

}  // namespace tandem::codegen
