// How weights of 4 bits lie.
#pragma once

#include <cstdint>

namespace tandem::ops {

constexpr int64_t kNibbles = 8;       // in 32 bits, of one row of the weight
constexpr int64_t kNibblePanel = 32;  // rows side by side: two registers of AVX-512

}  // namespace tandem::ops
