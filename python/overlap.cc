// Ranges in the order of their addresses, then one walk. An optimizer's step has hundreds of
// arguments, and but for the gradients they lie where they lay: the order of the last call is tried
// first.
#include "python/overlap.h"

#include <algorithm>
#include <numeric>

namespace tandem::python {

using runtime::Argument;
using runtime::Array;

void Overlap::set_ranges(std::span<const Argument> arguments) {
  ranges_.assign(arguments.size(), {});
  for (size_t i = 0; i < arguments.size(); ++i) {
    const Array* array = std::get_if<Array>(&arguments[i]);
    if (array == nullptr) continue;
    const int64_t bytes =
        runtime::extent(array->sizes(), array->strides()) * size_of(array->dtype());
    const std::byte* begin = static_cast<const std::byte*>(array->raw());
    if (bytes > 0) ranges_[i] = {begin, begin + bytes, false};
  }
  for (size_t number : written_) ranges_.at(number).is_written = true;
}

bool Overlap::found(std::span<const Argument> arguments) {
  if (written_.empty()) return false;
  set_ranges(arguments);
  if (order_.size() != ranges_.size()) {
    order_.resize(ranges_.size());
    std::iota(order_.begin(), order_.end(), 0);
  }
  const auto before = [&](uint32_t a, uint32_t b) { return ranges_[a].begin < ranges_[b].begin; };
  if (!std::is_sorted(order_.begin(), order_.end(), before))
    std::sort(order_.begin(), order_.end(), before);
  const std::byte* end = nullptr;          // of what began before
  const std::byte* written_end = nullptr;  // of what is written and began before
  for (uint32_t number : order_) {
    const Range& range = ranges_[number];
    if (range.begin == range.end) continue;
    if (range.begin < written_end || (range.is_written && range.begin < end)) return true;
    end = std::max(end, range.end);
    if (range.is_written) written_end = std::max(written_end, range.end);
  }
  return false;
}

}  // namespace tandem::python
