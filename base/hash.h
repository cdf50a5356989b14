// A sum over bytes, for names of files and to find damage; not against who wants two that are
// equal.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace tandem {

/// Eight bytes a step: a program's entry has megabytes. Each step is one-to-one in the word that it
/// takes, so a change within one word always changes the sum.
inline uint64_t hash_bytes(std::string_view text) {
  constexpr uint64_t kPrime = 0x9E3779B97F4A7C15;
  uint64_t hash = 0xCBF29CE484222325 ^ text.size();
  while (!text.empty()) {
    uint64_t word = 0;
    const size_t count = std::min(text.size(), sizeof(word));
    std::memcpy(&word, text.data(), count);
    hash = (hash ^ word) * kPrime;
    hash ^= hash >> 29;
    text.remove_prefix(count);
  }
  return hash;
}

}  // namespace tandem
