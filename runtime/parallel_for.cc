// Who may use several threads, and what a range may do: throw, and call parallel_for again (which
// then runs serially). The threads are runtime/team.h. libgomp, whose team torch and oneDNN use, is
// only asked how many there should be: its regions begin and end with all threads, so that one that
// is off its core stops the others. A forked child has no team, and one line says so.
#include "runtime/parallel_for.h"

#include <omp.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "runtime/fork.h"
#include "runtime/team.h"

namespace tandem::runtime {
namespace {

std::atomic<int> g_threads{0};  // 0: not set
thread_local int t_team = 0;    // of the running call; 0: none
thread_local bool t_inside = false;
thread_local int t_index = 0;

// Runs ranges of one region and keeps the exception of the lowest one.
class Region {
 public:
  explicit Region(RangeBody body) : body_(body) {}

  void run(int64_t lo, int64_t hi, int index) {
    t_inside = true;
    t_index = index;
    try {
      body_(lo, hi);
    } catch (...) {
      keep(lo, std::current_exception());
    }
    t_inside = false;
    t_index = 0;
  }

  void finish() const {
    if (error_ != nullptr) std::rethrow_exception(error_);
  }

 private:
  void keep(int64_t lo, std::exception_ptr error) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (error_ != nullptr && error_at_ < lo) return;
    error_ = std::move(error);
    error_at_ = lo;
  }

  RangeBody body_;
  std::mutex mutex_;
  std::exception_ptr error_;
  int64_t error_at_ = 0;
};

void run_range(void* region, int64_t lo, int64_t hi, int index) {
  static_cast<Region*>(region)->run(lo, hi, index);
}

}  // namespace

int threads() {
  if (t_team > 0) return t_team;
  const int count = set_number_of_threads();
  return count > 0 ? count : std::max(1, omp_get_max_threads());
}

void set_threads(int count) { g_threads.store(std::max(0, count), std::memory_order_relaxed); }

int set_number_of_threads() { return g_threads.load(std::memory_order_relaxed); }

void warn_of_fork() {
  static std::atomic<bool> warned{false};
  if (warned.exchange(true)) return;
  std::fputs(
      "tandem: this process is a fork, and threads are not forked: here compiled programs run on "
      "one thread\n",
      stderr);
}

TeamSize::TeamSize(int count) : outer_(t_team) { t_team = std::max(1, count); }

TeamSize::~TeamSize() { t_team = outer_; }

int machine_cores() {
  static const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  return cores;
}

int thread_index() { return t_index; }

void parallel_for(int64_t tasks, RangeBody body) {
  if (tasks <= 0) return;
  const int count = threads();
  const bool is_serial = tasks == 1 || count == 1 || t_inside || omp_in_parallel() != 0;
  if (is_serial || is_forked_child()) {
    if (!is_serial) warn_of_fork();
    body(0, tasks);
    return;
  }
  Region region(body);
  const int64_t most = std::min<int64_t>(tasks, Team::kMostThreads);
  Team::instance().run(
      {&run_range, &region, tasks, static_cast<int>(std::min<int64_t>(count, most))});
  region.finish();
}

}  // namespace tandem::runtime
