// The threads that help a caller with a region.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>

#include <sys/types.h>

namespace tandem::runtime {

/// What a region computes: `run(object, lo, hi, thread)` on ranges that cover [0, tasks) once, with
/// `thread` below `threads`. It must not throw.
struct RegionWork {
  void (*run)(void* object, int64_t lo, int64_t hi, int thread) = nullptr;
  void* object = nullptr;
  int64_t tasks = 0;
  int threads = 1;
};

/// Blocks of one thread's part of a region that nobody has claimed. Its owner claims from the
/// front, others from the back. A claim names the region and fails when that is over, so a thread
/// that comes late touches nothing of the next one.
class alignas(64) Share {
 public:
  static constexpr int kMostBlocks = 8;

  void fill(uint64_t region, int blocks);
  uint64_t region() const;
  /// Number of a block, or -1 if none is left.
  int claim_front(uint64_t region);
  int claim_back(uint64_t region);

 private:
  std::atomic<uint64_t> word_{0};  // region << 16 | first << 8 | end
};

/// A place where one thread sleeps. To wake one that is awake costs a load.
class alignas(64) Sleeper {
 public:
  /// Returns when woken, or at once if `is_due()` holds after others can see that it sleeps.
  template <class IsDue>
  void sleep(const IsDue& is_due) {
    is_asleep_.store(1, std::memory_order_seq_cst);
    if (is_due())
      is_asleep_.store(0, std::memory_order_seq_cst);
    else
      is_asleep_.wait(1, std::memory_order_seq_cst);
  }
  /// `before_waking()` is called while it sleeps, where it does.
  template <class BeforeWaking>
  void wake(const BeforeWaking& before_waking) {
    if (is_asleep_.load(std::memory_order_seq_cst) == 0) return;
    if (is_asleep_.exchange(0, std::memory_order_seq_cst) != 1) return;
    before_waking();
    is_asleep_.notify_one();
  }

 private:
  std::atomic<int> is_asleep_{0};
};

/// Wakes a thread on another core than its caller's. Left alone, Linux may wake it on that same
/// core, where it waits for some 8 ms behind the caller that wants its help.
class Placement {
 public:
  /// By the thread that is placed, once.
  void introduce();
  /// By another thread: the one that is placed may not run on the caller's core when it wakes.
  void keep_off_this_core();
  /// By the thread that is placed: it may run where it could before.
  void release();

 private:
  std::atomic<pid_t> thread_{0};
  std::atomic<int> core_{-1};  // that it is kept off; -1: none
};

class Team {
 public:
  static constexpr int kMostThreads = 1024;  // of a region
  static constexpr int kMostRegions = 16;    // at a time; callers beyond them work alone

  /// Never destroyed: its threads sleep until the process ends, and exit handlers may compute.
  static Team& instance();
  /// Runs all of `work` and returns. The caller claims blocks like everybody else, and waits only
  /// for blocks that others have begun. Rounding and treatment of denormals are the caller's.
  void run(const RegionWork& work);

 private:
  struct Region;

  Region* take_region();
  void start_threads(int count);
  void publish(Region& region, const RegionWork& work);
  void serve(int thread);
  bool help(int thread);

  std::array<std::atomic<Region*>, kMostRegions> regions_{};
  std::atomic<int> region_count_{0};
  std::array<Sleeper, kMostThreads> sleepers_{};
  std::array<Placement, kMostThreads> placements_{};
  std::atomic<int> thread_count_{1};           // with the caller
  alignas(64) std::atomic<uint32_t> news_{0};  // regions that began
  std::mutex growing_;
};

}  // namespace tandem::runtime
