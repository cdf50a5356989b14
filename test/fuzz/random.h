// Random numbers that are the same everywhere: an input is named by its engine, seed and number.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace tandem::fuzz {

class Random {
 public:
  explicit Random(uint64_t seed) : seed_(seed), state_(seed * 0x9E3779B97F4A7C15 + 1) {}
  /// Inputs in a row have seeds in a row: what takes turns asks for it.
  uint64_t seed() const { return seed_; }
  uint64_t next() {  // splitmix64
    uint64_t z = state_ += 0x9E3779B97F4A7C15;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    return z ^ (z >> 31);
  }
  /// In [0, count); 0 where count is 0.
  size_t below(size_t count) { return count == 0 ? 0 : next() % count; }
  bool one_in(size_t count) { return below(count) == 0; }
  template <class T>
  const T& pick(const std::vector<T>& list) {
    return list[below(list.size())];
  }

 private:
  uint64_t seed_;
  uint64_t state_;
};

}  // namespace tandem::fuzz
