// How weights of 4 or 8 bits lie, to be read by one row.
#pragma once

#include <cstdint>

namespace tandem::ops {

constexpr int64_t kPanelRows = 32;  // rows side by side: two registers of AVX-512
/// Terms of a row in 32 bits.
constexpr int64_t terms_of_number(int64_t bits) { return 32 / bits; }
/// The most terms of a group: sums of so many of 255 * 32767 fit 32 bits.
constexpr int64_t kMostGroupTerms = 256;

}  // namespace tandem::ops
