// Which threads of OpenMP a call ends before it begins: the calling thread's, where the call is
// long and takes several threads.
#include "runtime/openmp_threads.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <set>
#include <thread>

#include "base/flags.h"
#include "runtime/parallel_for.h"

// libgomp's entry for `#pragma omp parallel`.
extern "C" void GOMP_parallel(void (*body)(void*), void* object, unsigned threads, unsigned flags);

namespace tandem::runtime {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

// Where the threads of a region write: atomic, and never on a stack. The thread sanitizer does not
// see how libgomp waits for its threads, and would call everything else a race.
constexpr unsigned kTeam = 3;
std::array<std::atomic<pid_t>, kTeam> g_seen;
std::atomic<unsigned> g_count;

void note_thread(void* /*object*/) { g_seen[g_count.fetch_add(1)] = gettid(); }

/// Those of a region of three, but for the calling thread.
std::set<pid_t> workers_of_region() {
  g_count = 0;
  GOMP_parallel(&note_thread, nullptr, kTeam, 0);
  EXPECT_EQ(g_count, kTeam);
  std::set<pid_t> workers(g_seen.begin(), g_seen.end());
  workers.erase(gettid());
  EXPECT_EQ(workers.size(), kTeam - 1);
  return workers;
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

void call_inside_of_region(void* /*object*/) {
  std::atomic<int64_t> duration{kSecond};
  const TeamSize size(2);
  const CallBesideOpenMP call(duration);
  g_count.fetch_add(1);
}

TEST(OpenMPThreads, ACallInsideOfARegionLeavesItAlone) {
  g_count = 0;
  GOMP_parallel(&call_inside_of_region, nullptr, kTeam, 0);
  EXPECT_EQ(g_count, kTeam);
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
