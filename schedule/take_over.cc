// Problem: the gradient of a network's largest value is as large, and its elements are often made
// of the same elements of that value, which nobody reads afterwards: one memory would hold both.
// Approach: nothing is asked of ops, a kernel's addresses say it. A result's elements are stored
// once each, by one store whose address counts the points of its loops like digits of a number;
// later stages may add to them. An operand that is read at that very address in that stage, and in
// earlier stages along the same row, is read before it is written over, whatever the order of
// points, lanes and tasks.
#include "schedule/take_over.h"

#include <algorithm>
#include <optional>

#include "loop/stage.h"

namespace tandem::schedule {
namespace {

using loop::Access;
using loop::Axis;
using loop::Kernel;
using loop::Stage;
using loop::Store;
using sym::Expr;

std::vector<Axis> loops_of(const Stage& stage) {
  std::vector<Axis> axes = stage.axes;
  axes.insert(axes.end(), stage.reduce_axes.begin(), stage.reduce_axes.end());
  return axes;
}

struct Load {
  size_t stage = 0;
  loop::Val value = nullptr;
};

std::vector<Load> loads_of(const Kernel& kernel) {
  std::vector<Load> loads;
  for (size_t i = 0; i < kernel.stages.size(); ++i)
    for (const loop::Val value : loop::all_scalars_of(*kernel.scalars, kernel.stages[i]))
      if (value->opcode == loop::Opcode::load) loads.push_back({i, value});
  return loads;
}

/// A store, and the loops of its stage around it.
struct Place {
  size_t stage = 0;
  Expr index;
  std::vector<Axis> axes;
};

/// Every store to a buffer, and whether it adds.
std::vector<std::pair<Place, bool>> stores_to(const Kernel& kernel, int32_t buffer) {
  std::vector<std::pair<Place, bool>> found;
  for (size_t i = 0; i < kernel.stages.size(); ++i) {
    const Stage& stage = kernel.stages[i];
    const auto look = [&](const std::vector<Store>& stores, const std::vector<Axis>& axes) {
      for (const Store& store : stores)
        if (store.buffer == buffer)
          found.emplace_back(Place{i, store.index, axes}, store.accumulate);
    };
    look(stage.body, loops_of(stage));
    look(stage.after, stage.axes);
  }
  return found;
}

/// The store that gives a buffer its elements, to which later stages at most add; none where there
/// are several, or where it adds itself. An element is there before anything is added to it.
std::optional<Place> first_store(const Kernel& kernel, int32_t buffer) {
  const std::vector<std::pair<Place, bool>> stores = stores_to(kernel, buffer);
  if (stores.empty() || stores[0].second) return std::nullopt;
  const Place& first = stores[0].first;
  const bool is_first = std::ranges::all_of(
      stores.begin() + 1, stores.end(),
      [&](const auto& later) { return later.second && later.first.stage > first.stage; });
  return is_first ? std::optional(first) : std::nullopt;
}

struct Digit {
  int64_t weight = 0;
  int64_t most = 0;  // one less than the largest extent
};

/// The axis's part of an address, which is taken out of it; none where it is no known number.
std::optional<Digit> take_digit(Expr& address, const Axis& axis) {
  const int64_t most = axis.extent.range().hi - 1;
  const std::optional<sym::Affine> affine = sym::affine_in(address, axis.index);
  if (!affine) return std::nullopt;
  const std::optional<int64_t> weight = affine->coefficient.constant();
  if (!weight || (*weight <= 0 && most > 0)) return std::nullopt;
  address = affine->rest;
  return Digit{*weight, std::max<int64_t>(most, 0)};
}

/// Whether each digit steps over all that the smaller ones reach. How far the last one goes, which
/// may be anywhere, does not matter.
bool counts_once(std::vector<Digit> digits) {
  std::erase_if(digits, [](const Digit& digit) { return digit.most == 0; });
  std::ranges::sort(digits, {}, &Digit::weight);
  int64_t reached = 0;
  for (const Digit& digit : digits) {
    int64_t span = 0;
    if (digit.weight <= reached) return false;
    if (&digit != &digits.back() && (__builtin_mul_overflow(digit.weight, digit.most, &span) ||
                                     __builtin_add_overflow(reached, span, &reached)))
      return false;
  }
  return true;
}

/// Whether no two points of the loops have the same address. Of symbolic strides nothing is said.
bool is_stored_once(const Kernel& kernel, const Place& place) {
  std::vector<Axis> axes = kernel.outer;
  axes.insert(axes.end(), place.axes.begin(), place.axes.end());
  Expr rest = place.index;
  std::vector<Digit> digits;
  for (const Axis& axis : axes) {
    const std::optional<Digit> digit = take_digit(rest, axis);
    if (!digit) return false;
    digits.push_back(*digit);
  }
  return rest.constant() && counts_once(std::move(digits));
}

/// An address of an earlier stage with the loops of the store's stage for its own; none where they
/// are other loops.
std::optional<Expr> along_same_row(const Stage& stage, const Place& place, Expr index) {
  const std::vector<Axis> axes = loops_of(stage);
  if (axes.size() != place.axes.size()) return std::nullopt;
  sym::Substitution map;
  for (size_t i = 0; i < axes.size(); ++i) {
    if (axes[i].extent != place.axes[i].extent) return std::nullopt;
    map.emplace_back(axes[i].index, place.axes[i].index);
  }
  return sym::substitute(index, map);
}

/// Whether what is loaded lies where the store has not been yet, or is at the moment.
bool comes_before(const Kernel& kernel, const Load& load, const Place& place) {
  if (load.stage > place.stage) return false;
  if (load.stage == place.stage) return load.value->index == place.index;
  return along_same_row(kernel.stages[load.stage], place, load.value->index) == place.index;
}

/// Of all that the kernel reads of the buffer.
bool reads_before(const Kernel& kernel, const std::vector<Load>& loads, size_t buffer,
                  const Place& place) {
  return std::ranges::all_of(loads, [&](const Load& load) {
    return static_cast<size_t>(load.value->slot) != buffer ||
           (load.value->dtype == kernel.buffers[buffer].dtype && comes_before(kernel, load, place));
  });
}

/// Places of buffers among the arguments of a launch, which has none for scratch.
std::vector<uint32_t> argument_numbers(const Kernel& kernel) {
  std::vector<uint32_t> numbers;
  uint32_t next = 0;
  for (const loop::Buffer& buffer : kernel.buffers) {
    numbers.push_back(next);
    next += buffer.access == Access::scratch ? 0 : 1;
  }
  return numbers;
}

bool is_for_blocks_or_windows(const Kernel& kernel) {
  return kernel.threads > 0 || std::ranges::any_of(kernel.stages, [](const Stage& stage) {
           return stage.kind != loop::StageKind::loops;
         });
}

}  // namespace

std::vector<abi::TakeOver> takeovers(const Kernel& kernel) {
  std::vector<abi::TakeOver> found;
  if (is_for_blocks_or_windows(kernel)) return found;
  const std::vector<uint32_t> numbers = argument_numbers(kernel);
  const std::vector<Load> loads = loads_of(kernel);
  for (size_t w = 0; w < kernel.buffers.size(); ++w) {
    const loop::Buffer& written = kernel.buffers[w];
    if (written.access != Access::write) continue;
    const std::optional<Place> place = first_store(kernel, static_cast<int32_t>(w));
    if (!place || !is_stored_once(kernel, *place)) continue;
    for (size_t r = 0; r < kernel.buffers.size(); ++r) {
      const loop::Buffer& read = kernel.buffers[r];
      if (read.access == Access::read && size_of(read.dtype) == size_of(written.dtype) &&
          reads_before(kernel, loads, r, *place))
        found.push_back({numbers[w], numbers[r]});
    }
  }
  return found;
}

}  // namespace tandem::schedule
