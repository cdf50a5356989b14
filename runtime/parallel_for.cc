// One team for everything: torch and oneDNN in the same process use libgomp, and a second pool that
// spins beside it costs milliseconds. The team always has its full size, because libgomp ends
// threads when a region asks for fewer. Two cases cannot use libgomp: ThreadSanitizer does not
// understand its barriers and LeakSanitizer crashes at exit on workers that are just ending
// (TANDEM_STD_THREADS selects plain std::thread for both), and a forked child waits for ever for
// workers that were not forked (there everything runs serially, and one line says so).
#include "runtime/parallel_for.h"

#include <omp.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/fork.h"

namespace tandem::runtime {
namespace {

std::atomic<int> g_threads{0};  // 0: not set
thread_local int t_team = 0;    // of the running call; 0: none
thread_local bool t_inside = false;
thread_local int t_index = 0;

// Never destroyed, so that exit handlers may still compute.
std::mutex& team_mutex() {
  static std::mutex* const mutex = new std::mutex;
  return *mutex;
}

// Runs ranges of one region and keeps the exception of the lowest one.
class Region {
 public:
  Region(int64_t tasks, RangeBody body) : tasks_(tasks), body_(body) {}

  void run(int index, int count) {
    const int64_t lo = border(index, count);
    const int64_t hi = border(index + 1, count);
    if (lo == hi) return;
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
  int64_t border(int index, int count) const {
    const int64_t share = tasks_ / count;
    const int64_t rest = tasks_ % count;
    return share * index + std::min<int64_t>(index, rest);
  }
  void keep(int64_t lo, std::exception_ptr error) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (error_ != nullptr && error_at_ < lo) return;
    error_ = std::move(error);
    error_at_ = lo;
  }

  int64_t tasks_;
  RangeBody body_;
  std::mutex mutex_;
  std::exception_ptr error_;
  int64_t error_at_ = 0;
};

#if defined(TANDEM_STD_THREADS)

void run_team(Region& region, int count) {
  std::vector<std::thread> others;
  for (int i = 1; i < count; ++i)
    others.emplace_back([&region, i, count] { region.run(i, count); });
  region.run(0, count);
  for (std::thread& other : others) other.join();
}

#else

void run_team(Region& region, int count) {
#pragma omp parallel num_threads(count)
  region.run(omp_get_thread_num(), omp_get_num_threads());
}

#endif

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
  Region region(tasks, body);
  {
    const std::lock_guard<std::mutex> lock(team_mutex());
    run_team(region, count);
  }
  region.finish();
}

}  // namespace tandem::runtime
