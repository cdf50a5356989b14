// Mapping of pointwise kernels that run along a library call: a task is a line of the call's
// result, whose elements follow one another in memory, and lanes run along its last axis.
#include "schedule/axes.h"
#include "schedule/map.h"

namespace tandem::schedule {

using loop::Kernel;
using loop::Stage;

namespace {

/// Makes the widest axes tasks until these are `lines`; what is left of an axis, and those behind
/// it, go into the task.
Misfit take_lines(Kernel& kernel, int64_t lines) {
  Stage& stage = kernel.stages[0];
  size_t number = 0;
  for (; lines > 1; ++number) {
    if (number == kernel.outer.size()) return "it has fewer points than lines";
    const std::optional<int64_t> extent = kernel.outer[number].extent.constant();
    if (!extent || *extent == 0) return "it has axes of unknown size";
    if (lines % *extent == 0) {
      lines /= *extent;
      continue;
    }
    if (*extent % lines != 0) return "its axes do not come in lines";
    stage.axes = {take_block(kernel, number, *extent / lines, {&stage})};
    lines = 1;
  }
  const auto inside = kernel.outer.begin() + static_cast<ptrdiff_t>(number);
  stage.axes.insert(stage.axes.end(), inside, kernel.outer.end());
  kernel.outer.erase(inside, kernel.outer.end());
  return stage.axes.empty() ? "a line is one element" : nullptr;
}

}  // namespace

Misfit map_lines(Kernel& kernel, int64_t lines, const Target& target) {
  Kernel trial = kernel;
  trial.target = target.features;
  split_by_divisors(trial);
  order_axes(trial);
  merge_axes(trial);
  if (const Misfit misfit = take_lines(trial, lines)) return misfit;
  Stage& stage = trial.stages[0];
  if (!long_enough(stage.axes.back(), target.lanes()))
    return "lines have few elements side by side";
  all_tasks(trial.outer);
  make_vector(stage.axes.back(), stage, target, false);
  kernel = std::move(trial);
  return nullptr;
}

}  // namespace tandem::schedule
