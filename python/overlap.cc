// Ranges in the order of their addresses, then one walk. An optimizer's step has hundreds of
// arguments, and but for the gradients they lie where they lay: the order of the last call is tried
// first. Where ranges overlap, pairs of arguments are asked whether they share a byte: columns of
// one matrix do not.
#include "python/overlap.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>

namespace tandem::python {

using runtime::Argument;
using runtime::Array;

namespace {

/// Runs of `length` bytes, `count` of them, `stride` bytes apart.
struct Runs {
  const std::byte* begin = nullptr;
  int64_t length = 0;
  int64_t count = 1;
  int64_t stride = 0;
};

/// Nothing where the places of an array are no such runs.
std::optional<Runs> runs_of(const Array& array) {
  std::vector<std::pair<int64_t, int64_t>> dims;  // stride, size; inner ones last
  for (size_t i = 0; i < array.sizes().size(); ++i)
    if (array.sizes()[i] != 1) dims.emplace_back(array.strides()[i], array.sizes()[i]);
  std::sort(dims.begin(), dims.end(), std::greater<>());
  const int64_t bytes = size_of(array.dtype());
  Runs runs{static_cast<const std::byte*>(array.raw()), bytes, 1, 0};
  for (size_t i = dims.size(); i-- > 0;) {
    const int64_t stride = dims[i].first * bytes;
    if (runs.count == 1 && stride == runs.length) {
      runs.length *= dims[i].second;
    } else if (runs.count == 1 && stride > runs.length) {
      runs.count = dims[i].second;
      runs.stride = stride;
    } else if (stride == runs.count * runs.stride) {
      runs.count *= dims[i].second;
    } else {
      return std::nullopt;
    }
  }
  return runs;
}

/// False only where no byte is in both. With a common stride s, a run of b begins r = d mod s
/// behind one of a, and ends before the next one: len(a) <= r and r + len(b) <= s.
bool may_share(const Array& first, const Array& second) {
  std::optional<Runs> a = runs_of(first);
  std::optional<Runs> b = runs_of(second);
  if (!a || !b) return true;
  if (a->begin > b->begin) std::swap(a, b);
  const int64_t stride = std::max(a->stride, b->stride);
  for (const Runs& runs : {*a, *b})
    if ((runs.count > 1 && runs.stride != stride) || runs.length > stride) return true;
  const int64_t rest = (b->begin - a->begin) % stride;
  return rest < a->length || rest + b->length > stride;
}

}  // namespace

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
    if (range.begin < written_end || (range.is_written && range.begin < end))
      return found_by_pairs(arguments);
    end = std::max(end, range.end);
    if (range.is_written) written_end = std::max(written_end, range.end);
  }
  return false;
}

bool Overlap::found_by_pairs(std::span<const Argument> arguments) const {
  for (size_t written : written_)
    for (size_t other = 0; other < ranges_.size(); ++other) {
      const Range& a = ranges_[written];
      const Range& b = ranges_[other];
      if (other == written || a.begin >= b.end || b.begin >= a.end) continue;
      if (may_share(std::get<Array>(arguments[written]), std::get<Array>(arguments[other])))
        return true;
    }
  return false;
}

}  // namespace tandem::python
