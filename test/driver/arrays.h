// Small arrays of floats, made and read.
#pragma once

#include <algorithm>
#include <array>
#include <variant>
#include <vector>

#include "driver/api.h"

namespace tandem::test {

inline runtime::Array vector_of(const std::vector<float>& numbers) {
  runtime::Array array =
      runtime::Array::empty(DType::f32, std::array{static_cast<int64_t>(numbers.size())});
  std::ranges::copy(numbers, array.data<float>());
  return array;
}

inline float element(const runtime::Array& array, int64_t i) { return array.data<float>()[i]; }
inline float element(const runtime::Result& result, int64_t i) {
  return element(std::get<runtime::Array>(result), i);
}

}  // namespace tandem::test
