// Numbers for tests of the library: their drawing and converting must not take longer than what is
// tested, under sanitizers and without optimisation.
#pragma once

#include <bit>
#include <cstdint>
#include <random>

namespace tandem::runtime {

inline float to_float(uint16_t bf16) {
  return std::bit_cast<float>(static_cast<uint32_t>(bf16) << 16);
}

/// The nearest one, ties to even; of numbers.
inline uint16_t to_bf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

/// In [-1, 1), by a linear congruential generator (Numerical Recipes, "quick and dirty").
class Numbers {
 public:
  explicit Numbers(std::mt19937& random) : state_(static_cast<uint32_t>(random())) {}
  float next() {
    state_ = state_ * 1664525u + 1013904223u;
    return static_cast<float>(static_cast<int32_t>(state_)) * 0x1p-31f;
  }

 private:
  uint32_t state_;
};

}  // namespace tandem::runtime
