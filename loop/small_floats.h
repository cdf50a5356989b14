// Floats of 16 and 8 bits as storage: conversions to and from f32, to nearest even.
#pragma once

#include <bit>
#include <cstdint>

#include "base/dtype.h"

namespace tandem::loop {

inline float bf16_to_f32(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

/// Every NaN becomes the positive quiet one, as in PyTorch.
inline uint16_t f32_to_bf16(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  if (value != value) return 0x7FC0;
  return static_cast<uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

inline float f16_to_f32(uint16_t half) {
  uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16;
  uint32_t exponent = (half >> 10) & 31;
  uint32_t fraction = half & 0x3FF;
  if (exponent == 31) {
    uint32_t quiet = fraction != 0 ? 0x400000 : 0;
    return std::bit_cast<float>(sign | 0x7F800000 | quiet | (fraction << 13));
  }
  // Subnormals are fraction * 2^-24, exact in f32.
  if (exponent == 0) {
    float magnitude = static_cast<float>(fraction) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (fraction << 13));
}

/// NaN keeps its sign and the top of its payload, as vcvtps2ph does.
inline uint16_t f32_to_f16(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  uint32_t sign = (bits >> 16) & 0x8000;
  uint32_t magnitude = bits & 0x7FFFFFFF;
  if (magnitude > 0x7F800000)
    return static_cast<uint16_t>(sign | 0x7E00 | ((magnitude >> 13) & 0x1FF));
  if (magnitude >= 0x47800000) return static_cast<uint16_t>(sign | 0x7C00);  // 2^16 and up
  if (magnitude < 0x38800000) {
    // Below 2^-14: adding 0.5 leaves the result, rounded by the adder, in the low bits.
    float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3F000000));
  }
  uint32_t rounded = magnitude + 0xFFF + ((magnitude >> 13) & 1);
  return static_cast<uint16_t>(sign | ((rounded - 0x38000000) >> 13));
}

/// How an 8-bit float is laid out: a sign, exponent bits of this bias, `fraction` bits below.
struct Float8Format {
  uint32_t fraction, bias;
  float too_large;   // magnitudes from here on become `overflow`; below, rounding decides
  uint8_t overflow;  // infinity, or the largest number where the format has none, as in PyTorch
};
inline constexpr uint8_t kFloat8NaN = 0x7F;

inline constexpr Float8Format float8_format(DType dtype) {
  return dtype == DType::f8e4m3fn ? Float8Format{3, 7, 464, 0x7E}
                                  : Float8Format{2, 15, 65536, 0x7C};
}

/// Both formats are f16 with bits missing: e5m2 below, e4m3fn below and one of the exponent above,
/// so that its numbers are 2^8 times what the bits say there, and its only NaN has bits of its own.
inline float f8_to_f32(DType dtype, uint8_t bits) {
  if (dtype == DType::f8e5m2) return f16_to_f32(static_cast<uint16_t>(bits << 8));
  const uint32_t sign = static_cast<uint32_t>(bits & 0x80) << 8;
  const uint32_t magnitude = bits & 0x7F;
  const uint32_t half = magnitude == kFloat8NaN ? 0x7E00 : magnitude << 7;
  return f16_to_f32(static_cast<uint16_t>(sign | half)) * 0x1p8f;
}

/// A NaN keeps its sign. Below the least normal number, 2^(1 - bias), the sum with a power of two
/// whose last bit is worth the least subnormal leaves the result, rounded by the adder, in the low
/// bits; above it half an ulp is added, less one bit where the kept one is even.
inline uint8_t f32_to_f8(DType dtype, float value) {
  const Float8Format format = float8_format(dtype);
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint8_t sign = static_cast<uint8_t>((bits >> 24) & 0x80);
  const uint32_t magnitude = bits & 0x7FFFFFFF;
  const uint32_t drop = 23 - format.fraction;
  if (magnitude > 0x7F800000) return sign | kFloat8NaN;
  if (magnitude >= std::bit_cast<uint32_t>(format.too_large)) return sign | format.overflow;
  if (magnitude < (128 - format.bias) << 23) {
    const uint32_t step = (128 - format.bias + drop) << 23;
    const float sum = std::bit_cast<float>(magnitude) + std::bit_cast<float>(step);
    return static_cast<uint8_t>(sign | (std::bit_cast<uint32_t>(sum) - step));
  }
  const uint32_t odd = (magnitude >> drop) & 1;
  const uint32_t half = (1U << (drop - 1)) - 1 + odd;
  return static_cast<uint8_t>(sign | ((magnitude + half - ((127 - format.bias) << 23)) >> drop));
}

/// Of a float type that is stored in less than 32 bits.
inline float small_to_f32(DType dtype, uint32_t bits) {
  if (is_float8(dtype)) return f8_to_f32(dtype, static_cast<uint8_t>(bits));
  const uint16_t half = static_cast<uint16_t>(bits);
  return dtype == DType::bf16 ? bf16_to_f32(half) : f16_to_f32(half);
}

inline uint32_t f32_to_small(DType dtype, float value) {
  if (is_float8(dtype)) return f32_to_f8(dtype, value);
  return dtype == DType::bf16 ? f32_to_bf16(value) : f32_to_f16(value);
}

}  // namespace tandem::loop
