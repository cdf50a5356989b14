// 16-bit floats as storage: conversions to and from f32, to nearest even.
#pragma once

#include <bit>
#include <cstdint>

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

}  // namespace tandem::loop
