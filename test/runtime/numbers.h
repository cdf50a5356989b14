// Numbers for tests of the library: their drawing must not take longer than what is tested, under
// sanitizers and without optimisation.
#pragma once

#include <cstdint>
#include <random>

namespace tandem::runtime {

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
