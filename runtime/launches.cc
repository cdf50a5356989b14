// Kernels and library calls of a call, on one thread or the team. Launches side by side are one
// region. One that runs along a library call is part of it: threads that have computed some lines
// of the result run the tasks of these lines.
#include <algorithm>
#include <mutex>

#include "base/check.h"
#include "base/diagnostic.h"
#include "runtime/execution.h"
#include "runtime/parallel_for.h"
#include "runtime/signals.h"

namespace tandem::runtime {

void Execution::point_launch(LaunchState& state) const {
  const std::vector<uint32_t>& buffers = state.launch->buffers;
  for (size_t i = 0; i < buffers.size(); ++i) state.pointers[i] = bases_[buffers[i]];
}

// One region for all. A thread takes an equal share of the work, which is laid out launch after
// launch: the part of one that it covers is a range of its tasks.
void Execution::run_beside(std::span<LaunchState> launches) const {
  int64_t work = 0;
  for (LaunchState& state : launches) {
    point_launch(state);
    work += state.work;
  }
  const auto run = [&](int64_t lo, int64_t hi) {
    std::byte* const own = scratch_.of_thread(thread_index());
    int64_t begin = 0;  // of the launch's work
    for (const LaunchState& state : launches) {
      const auto task = [&](int64_t at) {
        return std::clamp<int64_t>(at - begin, 0, state.work) * state.tasks / state.work;
      };
      const int64_t first = task(lo);
      const int64_t end = task(hi);
      if (first < end) state.kernel(state.pointers.data(), state.sizes.data(), first, end, own);
      begin += state.work;
    }
  };
  if (work > kParallelNanoseconds) {
    parallel_for(work, run);
  } else {
    run(0, work);
  }
}

void Execution::run_launch(LaunchState& state) const {
  if (state.tasks <= 0) return;
  point_launch(state);
  int64_t status = 0;
  if (!state.is_parallel) {
    status = state.kernel(state.pointers.data(), state.sizes.data(), 0, state.tasks, scratch_.data);
  } else {
    status = run_team(state);
  }
  if (status == 0) [[likely]]
    return;
  const size_t number = static_cast<size_t>(status - 1);
  TD_CHECK(number < state.launch->errors.size()) << state.launch->label << " status " << status;
  throw DataError(state.launch->errors[number]);
}

int64_t Execution::run_team(const LaunchState& state) const {
  std::mutex mutex;
  int64_t failed_at = INT64_MAX;
  int64_t failed_status = 0;
  parallel_for(state.tasks, [&](int64_t lo, int64_t hi) {
    std::byte* const own = scratch_.of_thread(thread_index());
    const int64_t status = state.kernel(state.pointers.data(), state.sizes.data(), lo, hi, own);
    if (status == 0) return;
    const std::lock_guard<std::mutex> lock(mutex);
    if (lo >= failed_at) return;
    failed_at = lo;
    failed_status = status;
  });
  return failed_status;
}

void Execution::run_library(LibraryState& state) {
  for (size_t i = 0; i < state.views.size(); ++i) state.pointers[i] = address(state.views[i]);
  if (!state.plan->packed_layout().empty()) state.pointers[1] = state.packed.raw();
  // A key press, a timer, a child that ended: see OneThread.
  const WithoutSignals blocked(WithoutSignals::Profiler::waits);
  state.follower == kNoLaunch ? state.plan->execute(state.pointers) : run_followed(state);
}

// A plan that does not compute line by line leaves all of them.
void Execution::run_followed(LibraryState& state) {
  LaunchState& launch = launches_[state.follower];
  point_launch(launch);
  const auto then = [&](int64_t lo, int64_t hi) {
    std::byte* const own = scratch_.of_thread(thread_index());
    launch.kernel(launch.pointers.data(), launch.sizes.data(), lo, hi, own);
  };
  if (!state.plan->execute_in_lines(state.pointers, launch.tasks, then)) run_launch(launch);
}

}  // namespace tandem::runtime
