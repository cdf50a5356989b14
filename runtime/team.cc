// On a machine with neighbours some thread of a team is nearly always off its core, and a region
// that waits for all of them costs a time slice. So nobody is waited for who has not begun: a
// region is cut into small blocks, threads claim them, and the caller runs what no one has claimed.
// Each thread begins with a part of its own, the same one in every region of that shape: what it
// wrote is in its caches when it reads it. Only then does it take from others.
//
// A thread with nothing to do looks for news for a while and then sleeps. Looking on would take the
// core from others and from threads of this process; sleeping at once costs the time that a core
// takes to wake up, many times a small region. Shorter times and times that depend on whether the
// thread was interrupted lately lost beside neighbours too (docs/measured.md): who sleeps comes
// back only when the neighbour's slice is over.
#include "runtime/team.h"

#include <emmintrin.h>
#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <system_error>
#include <thread>

#include "runtime/signals.h"

namespace tandem::runtime {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::microseconds kPatience{200};

/// Whether `is_due()` came to hold before `end`.
template <class IsDue>
bool look_until(Clock::time_point end, const IsDue& is_due) {
  do {
    for (int i = 0; i < 16; ++i) {
      if (is_due()) return true;
      _mm_pause();
    }
  } while (Clock::now() < end);
  return false;
}

constexpr uint64_t kOneFromFront = uint64_t{1} << 8;
uint64_t region_of(uint64_t word) { return word >> 16; }
int first_of(uint64_t word) { return static_cast<int>(word >> 8 & 0xff); }
int end_of(uint64_t word) { return static_cast<int>(word & 0xff); }

}  // namespace

void Share::fill(uint64_t region, int blocks) {
  word_.store(region << 16 | static_cast<uint64_t>(blocks), std::memory_order_release);
}

uint64_t Share::region() const { return region_of(word_.load(std::memory_order_relaxed)); }

int Share::claim_front(uint64_t region) {
  uint64_t word = word_.load(std::memory_order_relaxed);
  while (region_of(word) == region && first_of(word) < end_of(word))
    if (word_.compare_exchange_weak(word, word + kOneFromFront, std::memory_order_acq_rel))
      return first_of(word);
  return -1;
}

int Share::claim_back(uint64_t region) {
  uint64_t word = word_.load(std::memory_order_relaxed);
  while (region_of(word) == region && first_of(word) < end_of(word))
    if (word_.compare_exchange_weak(word, word - 1, std::memory_order_acq_rel))
      return end_of(word) - 1;
  return -1;
}

// Kept for the next caller when its own is done. `work` and `float_mode` are written while nobody
// has a claim, and read by who has one.
struct Team::Region {
  std::atomic<bool> is_taken{true};
  uint64_t number = 0;
  RegionWork work;
  uint32_t float_mode = 0;
  std::atomic<int> parts{0};
  std::atomic<int64_t> unfinished{0};  // blocks
  Sleeper caller;
  std::array<Share, kMostThreads> shares;

  int64_t border(int part) const {
    const int64_t size = work.tasks / work.threads;
    return size * part + std::min<int64_t>(part, work.tasks % work.threads);
  }
  int blocks_of(int part) const {
    const int64_t size = border(part + 1) - border(part);
    return static_cast<int>(std::min<int64_t>(size, Share::kMostBlocks));
  }
  void run_block(int part, int block, int thread) const {
    const int64_t lo = border(part);
    const int64_t size = border(part + 1) - lo;
    const int64_t blocks = blocks_of(part);
    work.run(work.object, lo + size * block / blocks, lo + size * (block + 1) / blocks, thread);
  }
  int64_t run_part(uint64_t region, int part, int thread);
  int64_t run_blocks(uint64_t region, int thread);
  void wait() {
    const auto is_done = [&] { return unfinished.load(std::memory_order_seq_cst) == 0; };
    if (look_until(Clock::now() + kPatience, is_done)) return;
    while (!is_done()) caller.sleep(is_done);
  }
};

// Blocks that it ran. A helper's floating point mode is left as it is: it computes for regions
// only.
int64_t Team::Region::run_part(uint64_t region, int part, int thread) {
  for (int64_t done = 0;; ++done) {
    Share& share = shares[static_cast<size_t>(part)];
    const int block = part == thread ? share.claim_front(region) : share.claim_back(region);
    if (block < 0) return done;
    if (thread != 0) _mm_setcsr(float_mode);
    run_block(part, block, thread);
  }
}

int64_t Team::Region::run_blocks(uint64_t region, int thread) {
  int64_t done = 0;
  const int count = parts.load(std::memory_order_relaxed);
  for (int i = 0; i < count; ++i) done += run_part(region, (thread + i) % count, thread);
  return done;
}

void Placement::introduce() { thread_.store(gettid(), std::memory_order_release); }

// Without success where there are more cores than a cpu_set_t has; then the system decides. The
// one core is added again, not the whole set restored: others may change it meanwhile.
void Placement::keep_off_this_core() {
  const pid_t thread = thread_.load(std::memory_order_acquire);
  const int core = sched_getcpu();
  cpu_set_t cores;
  if (thread == 0 || core < 0 || sched_getaffinity(thread, sizeof(cores), &cores) != 0) return;
  const size_t number = static_cast<size_t>(core);
  if (!CPU_ISSET(number, &cores) || CPU_COUNT(&cores) == 1) return;
  CPU_CLR(number, &cores);
  if (sched_setaffinity(thread, sizeof(cores), &cores) == 0)
    core_.store(core, std::memory_order_release);
}

void Placement::release() {
  if (core_.load(std::memory_order_relaxed) < 0) return;
  const int core = core_.exchange(-1, std::memory_order_acq_rel);
  cpu_set_t cores;
  if (core < 0 || sched_getaffinity(0, sizeof(cores), &cores) != 0) return;
  CPU_SET(static_cast<size_t>(core), &cores);
  sched_setaffinity(0, sizeof(cores), &cores);
}

Team& Team::instance() {
  static Team* const team = new Team;
  return *team;
}

Team::Region* Team::take_region() {
  for (std::atomic<Region*>& place : regions_) {
    Region* const region = place.load(std::memory_order_acquire);
    if (region == nullptr) break;
    if (!region->is_taken.exchange(true, std::memory_order_acquire)) return region;
  }
  const std::lock_guard<std::mutex> lock(growing_);
  const int count = region_count_.load(std::memory_order_relaxed);
  if (count == kMostRegions) return nullptr;
  Region* const region = new Region;
  regions_[static_cast<size_t>(count)].store(region, std::memory_order_release);
  region_count_.store(count + 1, std::memory_order_release);
  return region;
}

void Team::start_threads(int count) {
  if (thread_count_.load(std::memory_order_relaxed) >= count) return;
  const std::lock_guard<std::mutex> lock(growing_);
  // They leave signals to the program's own threads; a profiler sees them.
  const WithoutSignals blocked(WithoutSignals::Profiler::goes_on);
  try {
    for (int i = thread_count_.load(std::memory_order_relaxed); i < count; ++i) {
      std::thread([this, i] { serve(i); }).detach();
      thread_count_.store(i + 1, std::memory_order_relaxed);
    }
  } catch (const std::system_error&) {
    // The system gives no more threads: those that there are do the work.
  }
}

void Team::publish(Region& region, const RegionWork& work) {
  region.work = work;
  region.float_mode = _mm_getcsr();
  region.parts.store(work.threads, std::memory_order_relaxed);
  int64_t blocks = 0;
  for (int i = 0; i < work.threads; ++i) blocks += region.blocks_of(i);
  region.unfinished.store(blocks, std::memory_order_relaxed);
  ++region.number;
  for (int i = 0; i < work.threads; ++i)
    region.shares[static_cast<size_t>(i)].fill(region.number, region.blocks_of(i));
  news_.fetch_add(1, std::memory_order_seq_cst);
  const int helpers = std::min(work.threads, thread_count_.load(std::memory_order_relaxed));
  for (size_t i = 1; i < static_cast<size_t>(helpers); ++i)
    sleepers_[i].wake([&] { placements_[i].keep_off_this_core(); });
}

void Team::run(const RegionWork& work) {
  start_threads(work.threads);
  Region* const region = take_region();
  if (region == nullptr) return work.run(work.object, 0, work.tasks, 0);
  publish(*region, work);
  const int64_t done = region->run_blocks(region->number, 0);
  if (region->unfinished.fetch_sub(done, std::memory_order_seq_cst) != done) region->wait();
  region->is_taken.store(false, std::memory_order_release);
}

// Whether there was something to do. A thread is of a region if its own share is; from its first
// claim until it says what it has done, the region cannot end.
bool Team::help(int thread) {
  bool has_helped = false;
  const int count = region_count_.load(std::memory_order_acquire);
  for (int i = 0; i < count; ++i) {
    Region& region = *regions_[static_cast<size_t>(i)].load(std::memory_order_acquire);
    const uint64_t number = region.shares[static_cast<size_t>(thread)].region();
    const int64_t done = region.run_blocks(number, thread);
    if (done == 0) continue;
    has_helped = true;
    if (region.unfinished.fetch_sub(done, std::memory_order_seq_cst) == done)
      region.caller.wake([] {});
  }
  return has_helped;
}

void Team::serve(int thread) {
  pthread_setname_np(pthread_self(), "tandem");
  Sleeper& own = sleepers_[static_cast<size_t>(thread)];
  Placement& placement = placements_[static_cast<size_t>(thread)];
  placement.introduce();
  Clock::time_point end = Clock::now() + kPatience;
  for (;;) {
    const uint32_t seen = news_.load(std::memory_order_seq_cst);
    if (help(thread)) {
      placement.release();  // it may have been awake before its waker had placed it
      end = Clock::now() + kPatience;
      continue;
    }
    const auto is_due = [&] { return news_.load(std::memory_order_seq_cst) != seen; };
    if (look_until(end, is_due)) continue;
    own.sleep(is_due);
    placement.release();
    end = Clock::now() + kPatience;
  }
}

}  // namespace tandem::runtime
