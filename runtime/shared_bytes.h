// Whether two strided arrays have a byte in common.
#pragma once

#include <cstdint>

#include "runtime/array.h"

namespace tandem::runtime {

enum class Sharing : uint8_t {
  apart,
  shared,
  unknown  // the steps given did not suffice
};

/// Exact for any strides and element sizes, gaps and interleaved rows included; an empty array
/// shares nothing. The question is NP-hard for many dimensions, so there is a bound on the numbers
/// that are tried: views as programs take them need a few.
Sharing sharing_of(const Array& first, const Array& second, int64_t most_steps = 1 << 14);

}  // namespace tandem::runtime
