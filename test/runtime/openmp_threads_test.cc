// Which threads of OpenMP a call ends before it begins: the calling thread's, where the call is
// long and takes several threads.
#include "runtime/openmp_threads.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <mutex>
#include <set>
#include <thread>

#include "base/flags.h"
#include "runtime/parallel_for.h"

// libgomp's entry for `#pragma omp parallel`.
extern "C" void GOMP_parallel(void (*body)(void*), void* object, unsigned threads, unsigned flags);

namespace tandem::runtime {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

struct Region {
  std::mutex mutex;
  std::set<pid_t> threads;
};

void note_thread(void* region) {
  Region& seen = *static_cast<Region*>(region);
  const std::lock_guard<std::mutex> lock(seen.mutex);
  seen.threads.insert(gettid());
}

/// Those of a region of three, but for the calling thread.
std::set<pid_t> workers_of_region() {
  Region region;
  GOMP_parallel(&note_thread, &region, 3, 0);
  region.threads.erase(gettid());
  EXPECT_EQ(region.threads.size(), 2u);
  return region.threads;
}

bool exists(pid_t thread) {
  return std::filesystem::exists("/proc/self/task/" + std::to_string(thread));
}

size_t alive(const std::set<pid_t>& threads) {
  size_t count = 0;
  for (const pid_t thread : threads) count += exists(thread) ? 1 : 0;
  return count;
}

size_t left_by_call(int64_t last_duration, int team) {
  const std::set<pid_t> workers = workers_of_region();
  std::atomic<int64_t> duration{last_duration};
  const TeamSize size(team);
  const CallBesideOpenMP call(duration);
  return alive(workers);
}

TEST(OpenMPThreads, EndBeforeALongCall) { EXPECT_EQ(left_by_call(kSecond, 2), 0u); }

TEST(OpenMPThreads, StayBesideAShortCall) { EXPECT_EQ(left_by_call(1000, 2), 2u); }

TEST(OpenMPThreads, StayBesideACallOfUnknownLength) { EXPECT_EQ(left_by_call(0, 2), 2u); }

TEST(OpenMPThreads, StayWhereTheFlagSaysSo) {
  const FlagOverride off(Flag::openmp, "0");
  EXPECT_EQ(left_by_call(kSecond, 2), 2u);
}

TEST(OpenMPThreads, StayBesideACallOfOneThread) { EXPECT_EQ(left_by_call(kSecond, 1), 2u); }

TEST(OpenMPThreads, ComeBackWithTheNextRegion) {
  for (int i = 0; i < 100; ++i) EXPECT_EQ(left_by_call(kSecond, 2), 0u);
}

TEST(OpenMPThreads, OfAnotherThreadStay) {
  const std::set<pid_t> workers = workers_of_region();
  std::thread([] {
    std::atomic<int64_t> duration{kSecond};
    const TeamSize size(2);
    const CallBesideOpenMP call(duration);
  }).join();
  EXPECT_EQ(alive(workers), 2u);
}

void call_inside_of_region(void* ended) {
  std::atomic<int64_t> duration{kSecond};
  const TeamSize size(2);
  const CallBesideOpenMP call(duration);
  static_cast<std::atomic<int>*>(ended)->fetch_add(1);
}

TEST(OpenMPThreads, ACallInsideOfARegionLeavesItAlone) {
  std::atomic<int> ended{0};
  GOMP_parallel(&call_inside_of_region, &ended, 3, 0);
  EXPECT_EQ(ended.load(), 3);
}

TEST(OpenMPThreads, ACallTellsHowLongItTook) {
  std::atomic<int64_t> duration{0};
  {
    const CallBesideOpenMP call(duration);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  EXPECT_GE(duration.load(), 2'000'000);
  EXPECT_LT(duration.load(), 60 * kSecond);
}

// The list of threads is copied, the threads are not: without a look at that it would wait for
// ever.
TEST(OpenMPThreads, AForkedChildEndsNone) {
  workers_of_region();
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    std::atomic<int64_t> duration{kSecond};
    const TeamSize size(2);
    {
      const CallBesideOpenMP call(duration);
    }
    _exit(0);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

}  // namespace
}  // namespace tandem::runtime
