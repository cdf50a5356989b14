// The random stream every engine draws from: Philox 4x32-10 (Salmon et al., "Parallel random
// numbers: as easy as 1, 2, 3", 2011), keyed by seed, one stream per random op, addressed by
// logical element.
#pragma once

#include <array>
#include <cstdint>

namespace tandem::loop {

/// Element e uses word (e / 16) % 4 of counter {(e / 64) * 16 + e % 16, stream}: 64 neighbours
/// share 16 counters, so a vector of 64 costs one 16-lane Philox.
struct PhiloxAddress {
  uint64_t counter;
  uint32_t word;
};
inline PhiloxAddress philox_address(uint64_t element) {
  return {(element / 64) * 16 + element % 16, static_cast<uint32_t>((element / 16) % 4)};
}

inline constexpr uint32_t kPhiloxM0 = 0xD2511F53;
inline constexpr uint32_t kPhiloxM1 = 0xCD9E8D57;
inline constexpr uint32_t kPhiloxW0 = 0x9E3779B9;
inline constexpr uint32_t kPhiloxW1 = 0xBB67AE85;
inline constexpr int kPhiloxRounds = 10;

/// The four words of one counter block.
inline std::array<uint32_t, 4> philox_block(uint64_t seed, uint64_t stream, uint64_t counter) {
  std::array<uint32_t, 4> c = {static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32),
                               static_cast<uint32_t>(stream), static_cast<uint32_t>(stream >> 32)};
  uint32_t k0 = static_cast<uint32_t>(seed);
  uint32_t k1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < kPhiloxRounds; ++round) {
    uint64_t p0 = static_cast<uint64_t>(kPhiloxM0) * c[0];
    uint64_t p1 = static_cast<uint64_t>(kPhiloxM1) * c[2];
    c = {static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ k0, static_cast<uint32_t>(p1),
         static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ k1, static_cast<uint32_t>(p0)};
    k0 += kPhiloxW0;
    k1 += kPhiloxW1;
  }
  return c;
}

inline uint32_t philox(uint64_t seed, uint64_t stream, uint64_t element) {
  PhiloxAddress address = philox_address(element);
  return philox_block(seed, stream, address.counter)[address.word];
}

}  // namespace tandem::loop
