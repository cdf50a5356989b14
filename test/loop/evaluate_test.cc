// Arithmetic of the opcodes at its edges, and the 16-bit conversions over all values.
#include "loop/evaluate.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "loop/small_floats.h"

namespace tandem::loop {
namespace {

constexpr int64_t kMin = std::numeric_limits<int64_t>::min();

Bits f32(float value) { return std::bit_cast<uint32_t>(value); }
Bits f64(double value) { return std::bit_cast<Bits>(value); }

TEST(Half, EveryF16GoesThroughF32AndBack) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    uint16_t half = static_cast<uint16_t>(bits);
    float wide = f16_to_f32(half);
    uint16_t quiet = std::isnan(wide) ? static_cast<uint16_t>(half | 0x200) : half;
    EXPECT_EQ(f32_to_f16(wide), quiet);
    float from_bf16 = bf16_to_f32(half);
    EXPECT_EQ(f32_to_bf16(from_bf16), std::isnan(from_bf16) ? 0x7FC0 : half);
  }
}

TEST(Half, RoundsToNearestEvenHalfWayBetweenAnyTwo) {
  for (uint32_t bits = 0; bits < 0x7BFF; ++bits) {
    uint16_t low = static_cast<uint16_t>(bits);
    uint16_t high = static_cast<uint16_t>(bits + 1);
    float middle = (f16_to_f32(low) + f16_to_f32(high)) / 2;
    EXPECT_EQ(f32_to_f16(middle), bits % 2 == 0 ? low : high);
    EXPECT_EQ(f32_to_f16(std::nextafter(middle, 0.0f)), low);
    EXPECT_EQ(f32_to_f16(std::nextafter(middle, 1e9f)), high);
  }
  EXPECT_EQ(f32_to_f16(65519.0f), 0x7BFF);
  EXPECT_EQ(f32_to_f16(65520.0f), 0x7C00);
  EXPECT_EQ(f32_to_bf16(std::numeric_limits<float>::max()), 0x7F80);
  EXPECT_EQ(f32_to_bf16(-std::numeric_limits<float>::quiet_NaN()), 0x7FC0);
}

constexpr DType kFloats8[] = {DType::f8e4m3fn, DType::f8e5m2};

TEST(Float8, EveryOneGoesThroughF32AndBack) {
  for (DType dtype : kFloats8)
    for (uint32_t bits = 0; bits < 0x100; ++bits) {
      const float wide = f8_to_f32(dtype, static_cast<uint8_t>(bits));
      EXPECT_EQ(f32_to_f8(dtype, wide), std::isnan(wide) ? (bits | 0x7F) : bits) << bits;
    }
  EXPECT_EQ(f8_to_f32(DType::f8e4m3fn, 0x01), 0x1p-9F);
  EXPECT_EQ(f8_to_f32(DType::f8e4m3fn, 0x7E), 448.0F);
  EXPECT_EQ(f8_to_f32(DType::f8e5m2, 0x01), 0x1p-16F);
  EXPECT_EQ(f8_to_f32(DType::f8e5m2, 0x7B), 57344.0F);
}

TEST(Float8, RoundsToNearestEvenHalfWayBetweenAnyTwo) {
  for (DType dtype : kFloats8) {
    const uint32_t last = dtype == DType::f8e4m3fn ? 0x7E : 0x7B;
    for (uint32_t low = 0; low < last; ++low) {
      const float below = f8_to_f32(dtype, static_cast<uint8_t>(low));
      const float above = f8_to_f32(dtype, static_cast<uint8_t>(low + 1));
      const float middle = (below + above) / 2;
      EXPECT_EQ(f32_to_f8(dtype, middle), low % 2 == 0 ? low : low + 1);
      EXPECT_EQ(f32_to_f8(dtype, std::nextafter(middle, 0.0F)), low);
      EXPECT_EQ(f32_to_f8(dtype, std::nextafter(middle, 1e9F)), low + 1);
      EXPECT_EQ(f32_to_f8(dtype, -middle), 0x80 | (low % 2 == 0 ? low : low + 1));
    }
  }
}

TEST(Float8, WhatIsTooLargeIsTheLargestOrInfinity) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(f32_to_f8(DType::f8e4m3fn, 464), 0x7E);
  EXPECT_EQ(f32_to_f8(DType::f8e4m3fn, std::nextafter(464.0F, 465.0F)), 0x7E);
  EXPECT_EQ(f32_to_f8(DType::f8e4m3fn, -infinity), 0xFE);
  EXPECT_EQ(f32_to_f8(DType::f8e5m2, std::nextafter(61440.0F, 0.0F)), 0x7B);
  EXPECT_EQ(f32_to_f8(DType::f8e5m2, 61440), 0x7C);
  EXPECT_EQ(f32_to_f8(DType::f8e5m2, infinity), 0x7C);
  EXPECT_EQ(f32_to_f8(DType::f8e5m2, std::numeric_limits<float>::quiet_NaN()), 0x7F);
}

TEST(Evaluate, IntegersWrap) {
  EXPECT_EQ(binary_bits(Opcode::add, DType::i8, 127, 1), -128);
  EXPECT_EQ(binary_bits(Opcode::mul, DType::u8, 16, 17), 16);
  EXPECT_EQ(binary_bits(Opcode::sub, DType::i64, kMin, 1), std::numeric_limits<int64_t>::max());
  EXPECT_EQ(unary_bits(Opcode::neg, DType::i32, std::numeric_limits<int32_t>::min()),
            std::numeric_limits<int32_t>::min());
  EXPECT_EQ(unary_bits(Opcode::abs, DType::i8, -128), -128);
  EXPECT_EQ(binary_bits(Opcode::pow, DType::i32, 3, 4), 81);
  EXPECT_EQ(binary_bits(Opcode::pow, DType::i32, -1, -3), -1);
  EXPECT_EQ(binary_bits(Opcode::pow, DType::i32, 2, -3), 0);
}

TEST(Evaluate, FusedMultiplyAddRoundsOnce) {
  float a = 1.0f + 0x1p-12f;
  EXPECT_EQ(multiply_add_bits(DType::f32, f32(a), f32(a), f32(-1.0f)), f32(0x1p-11f + 0x1p-24f));
  EXPECT_EQ(multiply_add_bits(DType::i8, 16, 16, 3), 3);
}

TEST(Evaluate, IntegerDivision) {
  EXPECT_EQ(binary_bits(Opcode::div, DType::i32, -7, 2), -3);
  EXPECT_EQ(binary_bits(Opcode::floor_div, DType::i32, -7, 2), -4);
  EXPECT_EQ(binary_bits(Opcode::floor_div, DType::i32, 7, -2), -4);
  EXPECT_EQ(binary_bits(Opcode::fmod, DType::i32, -7, 2), -1);
  EXPECT_EQ(binary_bits(Opcode::div, DType::i32, 7, 0), 0);
  EXPECT_EQ(binary_bits(Opcode::div, DType::i64, kMin, -1), kMin);
  EXPECT_EQ(binary_bits(Opcode::fmod, DType::i64, kMin, -1), 0);
}

TEST(Evaluate, ShiftsPastTheWidth) {
  EXPECT_EQ(binary_bits(Opcode::shift_left, DType::i32, 1, 31),
            std::numeric_limits<int32_t>::min());
  EXPECT_EQ(binary_bits(Opcode::shift_left, DType::i32, 1, 32), 0);
  EXPECT_EQ(binary_bits(Opcode::shift_right, DType::i8, -128, 7), -1);
  EXPECT_EQ(binary_bits(Opcode::shift_right, DType::i8, -128, 99), -1);
  EXPECT_EQ(binary_bits(Opcode::shift_right, DType::u8, 255, 4), 15);
  EXPECT_EQ(binary_bits(Opcode::shift_right, DType::i32, 8, -1), 0);
}

TEST(Evaluate, NanWinsAndComparesFalse) {
  Bits nan = f32(std::numeric_limits<float>::quiet_NaN());
  for (Opcode opcode : {Opcode::min, Opcode::max}) {
    EXPECT_EQ(binary_bits(opcode, DType::f32, nan, f32(1)), nan);
    EXPECT_EQ(binary_bits(opcode, DType::f32, f32(1), nan), nan);
  }
  for (Opcode opcode : {Opcode::eq, Opcode::lt, Opcode::le, Opcode::gt, Opcode::ge})
    EXPECT_EQ(binary_bits(opcode, DType::f32, nan, nan), 0);
  EXPECT_EQ(binary_bits(Opcode::ne, DType::f32, nan, nan), 1);
}

TEST(Evaluate, FloatsDoNotGainPrecision) {
  float a = 1.0f + 0x1p-23f;
  EXPECT_EQ(binary_bits(Opcode::mul, DType::f32, f32(a), f32(a)), f32(1.0f + 0x1p-22f));
  EXPECT_EQ(unary_bits(Opcode::round, DType::f32, f32(2.5f)), f32(2.0f));
  EXPECT_EQ(unary_bits(Opcode::round, DType::f64, f64(-0.5)), f64(-0.0));
}

TEST(Evaluate, CastsLikeX86) {
  EXPECT_EQ(cast_bits(f32(-3.9f), DType::f32, DType::i32), -3);
  EXPECT_EQ(cast_bits(f32(3e9f), DType::f32, DType::i32), std::numeric_limits<int32_t>::min());
  EXPECT_EQ(cast_bits(f32(kMin), DType::f32, DType::i64), kMin);
  EXPECT_EQ(cast_bits(f32(std::nanf("")), DType::f32, DType::i64), kMin);
  EXPECT_EQ(cast_bits(f32(300.0f), DType::f32, DType::u8), 44);
  EXPECT_EQ(cast_bits(f32(-1.0f), DType::f32, DType::u8), 255);
  EXPECT_EQ(cast_bits(f32(0.5f), DType::f32, DType::boolean), 1);
  EXPECT_EQ(cast_bits(f32(-0.0f), DType::f32, DType::boolean), 0);
  EXPECT_EQ(cast_bits(16777217, DType::i64, DType::f32), f32(16777216.0f));
  EXPECT_EQ(cast_bits(f64(0.1), DType::f64, DType::bf16), 0x3DCD);
  EXPECT_EQ(bitcast_bits(f32(-1.0f), DType::i32), static_cast<int32_t>(0xBF800000));
  EXPECT_EQ(bitcast_bits(-1, DType::f32), 0xFFFFFFFF);
}

TEST(Evaluate, ElementsKeepTheirBits) {
  int8_t bytes[2] = {-1, 5};
  EXPECT_EQ(read_element(bytes, DType::i8, 0), -1);
  EXPECT_EQ(read_element(bytes, DType::u8, 0), 255);
  EXPECT_EQ(read_element(bytes, DType::boolean, 1), 1);
  uint32_t signalling = 0x7F800001;
  write_element(bytes, DType::bf16, 0, 0x3F80);
  EXPECT_EQ(read_element(bytes, DType::bf16, 0), 0x3F80);
  EXPECT_EQ(read_element(&signalling, DType::f32, 0), signalling);
}

/// A step of dot rounds once: (1 + e)^2 - (1 + 2e) is e^2, which two roundings lose.
TEST(Evaluate, DotRoundsOnce) {
  const float e = 0x1p-20f;
  std::vector<Bits> sum{f32(-(1 + 2 * e))};
  accumulate_bits(Combiner::dot, DType::f32, sum, {f32(1 + e), f32(1 + e)});
  EXPECT_EQ(sum, std::vector<Bits>{f32(e * e)});
  std::vector<Bits> wrapped{100};
  accumulate_bits(Combiner::dot, DType::i8, wrapped, {100, 3});
  EXPECT_EQ(wrapped, std::vector<Bits>{-112});
  combine_bits(Combiner::dot, DType::f32, sum, {f32(1)});
  EXPECT_EQ(sum, std::vector<Bits>{f32(1)});
}

TEST(Evaluate, LogAddExp) {
  const double inf = std::numeric_limits<double>::infinity();
  const auto combined = [](double a, double b) {
    std::vector<Bits> into{f64(a)};
    combine_bits(Combiner::logaddexp, DType::f64, into, {f64(b)});
    return into[0];
  };
  EXPECT_EQ(combined(3, 3), f64(3 + std::log1p(1.0)));
  EXPECT_EQ(combined(-1000, 1000), f64(1000));
  EXPECT_EQ(combined(-inf, -inf), f64(-inf));
  EXPECT_EQ(combined(-inf, 2), f64(2));
  EXPECT_EQ(combined(inf, inf), f64(inf));
  EXPECT_EQ(combined(inf, -inf), f64(inf));
  EXPECT_EQ(identity_of(Combiner::logaddexp, DType::f64)[0], f64(-inf));
}

TEST(Evaluate, Identities) {
  EXPECT_EQ(identity_of(Combiner::dot, DType::f32)[0], 0);
  EXPECT_EQ(identity_of(Combiner::min, DType::u8)[0], 255);
  EXPECT_EQ(identity_of(Combiner::max, DType::i16)[0], -32768);
  EXPECT_EQ(identity_of(Combiner::max, DType::bf16)[0], 0xFF80);
  EXPECT_EQ(identity_of(Combiner::prod, DType::f64)[0], f64(1));
  EXPECT_EQ(identity_of(Combiner::any, DType::boolean)[0], 0);
  EXPECT_EQ(identity_of(Combiner::all, DType::boolean)[0], 1);
}

}  // namespace
}  // namespace tandem::loop
