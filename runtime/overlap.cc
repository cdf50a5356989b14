// Ranges in the order of their addresses, then one walk. An optimizer's step has hundreds of
// arguments, and but for the gradients they lie where they lay: the order of the last call is tried
// first. Where ranges meet, pairs of arguments are asked whether they share a byte: columns of
// one matrix do not.
#include "runtime/overlap.h"

#include <algorithm>
#include <numeric>

#include "runtime/shared_bytes.h"

namespace tandem::runtime {

void Overlap::set_ranges(std::span<const Argument> arguments) {
  ranges_.assign(arguments.size(), {});
  for (size_t i = 0; i < arguments.size(); ++i) {
    const Array* array = std::get_if<Array>(&arguments[i]);
    if (array == nullptr) continue;
    const int64_t bytes = extent(array->sizes(), array->strides()) * size_of(array->dtype());
    const std::byte* begin = static_cast<const std::byte*>(array->raw());
    if (bytes > 0) ranges_[i] = {begin, begin + bytes, false};
  }
  for (size_t number : written_) ranges_.at(number).is_written = true;
  if (order_.size() != ranges_.size()) {
    order_.resize(ranges_.size());
    std::iota(order_.begin(), order_.end(), 0);
  }
  const auto before = [&](uint32_t a, uint32_t b) { return ranges_[a].begin < ranges_[b].begin; };
  if (!std::is_sorted(order_.begin(), order_.end(), before))
    std::sort(order_.begin(), order_.end(), before);
}

/// The range of one that is written meets another one.
bool Overlap::may_meet() {
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

std::optional<Overlap::Pair> Overlap::pair_with(std::span<const Argument> arguments,
                                                size_t written) const {
  for (size_t other = 0; other < ranges_.size(); ++other) {
    const Range& a = ranges_[written];
    const Range& b = ranges_[other];
    if (other == written || a.begin >= b.end || b.begin >= a.end) continue;
    if (sharing_of(std::get<Array>(arguments[written]), std::get<Array>(arguments[other])) !=
        Sharing::apart)
      return Pair{written, other};
  }
  return std::nullopt;
}

std::optional<Overlap::Pair> Overlap::find(std::span<const Argument> arguments) {
  if (written_.empty()) return std::nullopt;
  set_ranges(arguments);
  if (!may_meet()) return std::nullopt;
  for (size_t written : written_)
    if (std::optional<Pair> pair = pair_with(arguments, written)) return pair;
  return std::nullopt;
}

std::vector<std::vector<size_t>> Overlap::groups(std::span<const Argument> arguments) {
  set_ranges(arguments);
  std::vector<std::vector<size_t>> groups;
  const std::byte* end = nullptr;
  for (uint32_t number : order_) {
    const Range& range = ranges_[number];
    if (range.begin == range.end) continue;
    if (range.begin >= end) groups.emplace_back();
    groups.back().push_back(number);
    end = std::max(end, range.end);
  }
  std::erase_if(groups, [&](const std::vector<size_t>& group) {
    return std::ranges::none_of(group, [&](size_t number) {
      return ranges_[number].is_written && pair_with(arguments, number);
    });
  });
  for (std::vector<size_t>& group : groups) std::ranges::sort(group);
  std::ranges::sort(groups);
  return groups;
}

void copy_shared(const std::vector<size_t>& written, std::vector<Argument>& arguments) {
  const auto is_written = [&](size_t number) { return std::ranges::count(written, number) > 0; };
  for (size_t number : written)
    for (size_t other = 0; other < arguments.size(); ++other) {
      const Array* array = std::get_if<Array>(&arguments[other]);
      if (array == nullptr || is_written(other)) continue;
      if (sharing_of(*array, std::get<Array>(arguments[number])) == Sharing::apart) continue;
      Array copy = Array::empty(array->dtype(), array->sizes());
      copy.copy_from(*array);
      arguments[other] = std::move(copy);
    }
}

void refuse_overlap(const abi::Program& program, Overlap& overlap,
                    std::span<const Argument> arguments) {
  const std::optional<Overlap::Pair> pair = overlap.find(arguments);
  if (!pair) return;
  throw OverlapError(
      "program '" + program.name + "': input '" + program.inputs[pair->written].name +
      "', which it writes, shares memory with input '" + program.inputs[pair->other].name +
      "', and it was compiled for inputs that do not; a copy of one of them is "
      "accepted");
}

}  // namespace tandem::runtime
