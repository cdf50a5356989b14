// parallel_for and size code.
#include <emmintrin.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <latch>
#include <mutex>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/diagnostic.h"
#include "runtime/allocator.h"
#include "runtime/fork.h"
#include "runtime/parallel_for.h"
#include "runtime/size_code.h"

namespace tandem::runtime {
namespace {

class ParallelForTest : public ::testing::Test {
 protected:
  ParallelForTest() : saved_(threads()) {}
  ~ParallelForTest() override { set_threads(saved_); }

 private:
  int saved_;
};

TEST_F(ParallelForTest, CoversEveryTaskOnce) {
  for (const int count : {1, 2, 3, 8}) {
    set_threads(count);
    for (const int64_t tasks : {0, 1, 2, 5, 8, 1000}) {
      std::vector<std::atomic<int>> seen(static_cast<size_t>(tasks));
      parallel_for(tasks, [&](int64_t lo, int64_t hi) {
        EXPECT_LT(lo, hi);
        EXPECT_LT(thread_index(), count);
        for (int64_t i = lo; i < hi; ++i) ++seen[static_cast<size_t>(i)];
      });
      for (const std::atomic<int>& times : seen) EXPECT_EQ(times, 1);
    }
  }
}

TEST_F(ParallelForTest, RethrowsTheLowestError) {
  set_threads(4);
  for (int round = 0; round < 20; ++round) {
    std::atomic<int64_t> lowest{100};
    try {
      parallel_for(100, [&](int64_t lo, int64_t) {
        if (lo == 0) return;
        for (int64_t seen = lowest; lo < seen && !lowest.compare_exchange_weak(seen, lo);) {
        }
        throw std::runtime_error(std::to_string(lo));
      });
      FAIL();
    } catch (const std::runtime_error& error) {
      EXPECT_EQ(error.what(), std::to_string(lowest));
    }
  }
  std::atomic<int64_t> sum{0};
  parallel_for(100, [&](int64_t lo, int64_t hi) { sum += hi - lo; });
  EXPECT_EQ(sum, 100);
}

TEST_F(ParallelForTest, RangesFollowFromTasksAndThreads) {
  set_threads(3);
  const auto ranges = [] {
    std::mutex mutex;
    std::set<std::pair<int64_t, int64_t>> seen;
    parallel_for(1000, [&](int64_t lo, int64_t hi) {
      const std::lock_guard<std::mutex> lock(mutex);
      seen.insert({lo, hi});
    });
    return seen;
  };
  const std::set<std::pair<int64_t, int64_t>> first = ranges();
  EXPECT_GT(first.size(), 3);  // small enough that a thread off its core holds little
  for (int round = 0; round < 50; ++round) EXPECT_EQ(ranges(), first);
}

TEST_F(ParallelForTest, NestedRunsSerially) {
  set_threads(3);
  std::atomic<int> calls{0};
  parallel_for(3, [&](int64_t, int64_t) {
    parallel_for(10, [&](int64_t lo, int64_t hi) {
      EXPECT_EQ(lo, 0);
      EXPECT_EQ(hi, 10);
      ++calls;
    });
  });
  EXPECT_EQ(calls, 3);
}

TEST_F(ParallelForTest, TwoCallers) {
  set_threads(2);
  const auto work = [] {
    for (int i = 0; i < 200; ++i) {
      std::atomic<int64_t> sum{0};
      parallel_for(64, [&](int64_t lo, int64_t hi) { sum += hi - lo; });
      EXPECT_EQ(sum, 64);
    }
  };
  std::thread other(work);
  work();
  other.join();
}

TEST_F(ParallelForTest, TeamOfOneCallIsNotChangedByOthers) {
  set_threads(3);
  {
    const TeamSize team(2);
    set_threads(8);
    EXPECT_EQ(threads(), 2);
    std::thread([] { EXPECT_EQ(threads(), 8); }).join();
    parallel_for(64, [](int64_t, int64_t) { EXPECT_LT(thread_index(), 2); });
    const TeamSize inner(0);
    EXPECT_EQ(threads(), 1);
  }
  EXPECT_EQ(threads(), 8);
  set_threads(0);  // what OpenMP has
  EXPECT_EQ(set_number_of_threads(), 0);
  EXPECT_GE(threads(), 1);
}

// Two tasks that wait for each other, so that a helper runs one of them; `body` runs in both.
template <class F>
void with_a_helper(const F& body) {
  std::latch both(2);
  parallel_for(2, [&](int64_t, int64_t) {
    both.arrive_and_wait();
    body();
  });
}

TEST_F(ParallelForTest, NobodyWaitsForAThreadThatHasNotBegun) {
  set_threads(2);
  std::latch busy(3);
  std::latch done(1);
  std::thread other([&] {
    parallel_for(2, [&](int64_t, int64_t) {
      busy.arrive_and_wait();
      done.wait();
    });
  });
  busy.arrive_and_wait();  // now the one helper there is holds a block of the other caller
  std::atomic<int64_t> sum{0};
  for (int i = 0; i < 100; ++i) parallel_for(1000, [&](int64_t lo, int64_t hi) { sum += hi - lo; });
  EXPECT_EQ(sum, 100 * 1000);
  done.count_down();
  other.join();
}

TEST_F(ParallelForTest, MoreCallersThanRegionsAtATime) {
  constexpr int kCallers = 40;
  set_threads(3);
  std::latch all(kCallers);
  std::atomic<int64_t> sum{0};
  const auto work = [&] {
    parallel_for(100, [&](int64_t lo, int64_t hi) {
      if (lo == 0) all.count_down();
      sum += hi - lo;
      if (thread_index() == 0) all.wait();  // so all regions are open at once
    });
  };
  std::vector<std::thread> callers;
  for (int i = 0; i < kCallers; ++i) callers.emplace_back(work);
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(sum, kCallers * 100);
}

TEST_F(ParallelForTest, TeamsOfManySizesAtOnce) {
  const auto work = [](unsigned seed) {
    std::minstd_rand random(seed);
    for (int round = 0; round < 2000; ++round) {
      const int count = static_cast<int>(random() % 6) + 1;
      const TeamSize team(count);
      std::array<int, 200> seen{};
      const int64_t tasks = static_cast<int64_t>(random() % seen.size());
      std::atomic<bool> is_inside{true};
      parallel_for(tasks, [&](int64_t lo, int64_t hi) {
        if (thread_index() >= count) is_inside = false;
        for (int64_t i = lo; i < hi; ++i) ++seen[static_cast<size_t>(i)];
      });
      EXPECT_TRUE(is_inside);
      EXPECT_EQ(std::count(seen.begin(), seen.end(), 1), tasks);
    }
  };
  std::vector<std::thread> callers;
  for (unsigned seed = 1; seed <= 4; ++seed) callers.emplace_back(work, seed);
  for (std::thread& caller : callers) caller.join();
}

TEST_F(ParallelForTest, HelpersThatSleepAreWoken) {
  set_threads(2);
  for (int round = 0; round < 20; ++round) {
    with_a_helper([] {});
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

TEST_F(ParallelForTest, HelpersComputeAsTheCaller) {
  set_threads(2);
  const unsigned saved = _mm_getcsr();
  for (const unsigned mode : {0x8040U, 0x6000U, 0U}) {  // denormals are zero; towards zero; usual
    _mm_setcsr((saved & ~0xe040U) | mode);
    std::atomic<int> right{0};
    with_a_helper([&] {
      if ((_mm_getcsr() & 0xe040U) == mode) ++right;
    });
    _mm_setcsr(saved);
    EXPECT_EQ(right, 2);
  }
}

TEST_F(ParallelForTest, SignalsAreForTheProgramsThreads) {
  set_threads(2);
  std::atomic<int> right{0};
  with_a_helper([&] {
    sigset_t blocked;
    pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
    const bool is_helper = thread_index() > 0;
    const bool is_right = (sigismember(&blocked, SIGINT) == 1) == is_helper &&
                          (sigismember(&blocked, SIGUSR1) == 1) == is_helper &&
                          sigismember(&blocked, SIGSEGV) == 0;
    if (is_right) ++right;
  });
  EXPECT_EQ(right, 2);
}

/// Exit status of a child that runs `body`, which says whether all is well.
template <class F>
int status_of_child(const F& body) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(30);
    _exit(body() ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  return status;
}

TEST_F(ParallelForTest, ForkWaitsForLocks) {
  std::atomic<bool> stop{false};
  const auto churn = [&] {
    while (!stop) {
      const std::lock_guard<std::mutex> lock(mutex_of(ForkLock::executions));
      void* const block = allocator().allocate(4096);
      allocator().release(block, 4096);
    }
  };
  const auto compile = [&] {
    while (!stop) {
      const ForkHold hold;
      const std::lock_guard<std::mutex> lock(mutex_of(ForkLock::plans));
    }
  };
  std::thread first(churn);
  std::thread second(churn);
  std::thread third(compile);
  std::thread fourth(compile);
  for (int round = 0; round < 50; ++round) {
    const int status = status_of_child([] {
      const ForkHold hold;
      for (const ForkLock lock : {ForkLock::plans, ForkLock::executions, ForkLock::memory})
        const std::lock_guard<std::mutex> guard(mutex_of(lock));
      void* const block = allocator().allocate(4096);
      allocator().release(block, 4096);
      return is_forked_child();
    });
    EXPECT_EQ(status, 0);
  }
  stop = true;
  for (std::thread* thread : {&first, &second, &third, &fourth}) thread->join();
  EXPECT_FALSE(is_forked_child());
}

TEST_F(ParallelForTest, ForkedChildRunsSerially) {
  set_threads(2);
  parallel_for(8, [](int64_t, int64_t) {});
  EXPECT_EQ(status_of_child([] {
              int64_t sum = 0;
              parallel_for(8, [&](int64_t lo, int64_t hi) { sum += hi - lo; });
              return sum == 8 && is_team_lost();
            }),
            0);
}

TEST_F(ParallelForTest, PrintsTheCostOfARegion) {
  set_threads(2);
  parallel_for(2, [](int64_t, int64_t) {});
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 2000; ++i) parallel_for(2, [](int64_t, int64_t) {});
  const std::chrono::duration<double, std::micro> spent = std::chrono::steady_clock::now() - start;
  std::printf("one region: %.2f us\n", spent.count() / 2000);
}

using Op = abi::SizeInstruction::Op;

TEST(SizeCodeTest, Evaluates) {
  const std::vector<int64_t> slots = {5, -7};
  EXPECT_EQ(evaluate({{Op::constant, 3}}, slots), 3);
  EXPECT_EQ(evaluate({{Op::slot, 1}}, slots), -7);
  EXPECT_EQ(evaluate({{Op::slot, 0}, {Op::slot, 1}, {Op::add}}, slots), -2);
  EXPECT_EQ(
      evaluate({{Op::slot, 0}, {Op::slot, 1}, {Op::mul}, {Op::constant, 1}, {Op::add}}, slots),
      -34);
  EXPECT_EQ(evaluate({{Op::slot, 1}, {Op::constant, 2}, {Op::floor_div}}, slots), -4);
  EXPECT_EQ(evaluate({{Op::slot, 1}, {Op::constant, 3}, {Op::mod}}, slots), 2);
  EXPECT_EQ(evaluate({{Op::slot, 0}, {Op::slot, 1}, {Op::min}}, slots), -7);
  EXPECT_EQ(evaluate({{Op::slot, 0}, {Op::slot, 1}, {Op::max}}, slots), 5);
  EXPECT_EQ(to_text({{Op::slot, 0}, {Op::constant, 2}, {Op::mul}}), "(s0 * 2)");
}

TEST(SizeCodeTest, LongCode) {
  abi::SizeCode code;
  for (int i = 0; i < 500; ++i) code.push_back({Op::constant, i});
  for (int i = 0; i < 499; ++i) code.push_back({Op::add, 0});
  EXPECT_EQ(evaluate(code, {}), 499 * 500 / 2);
  EXPECT_TRUE(is_well_formed(code, 0));
}

TEST(SizeCodeTest, OutOfRangeIsAUserError) {
  const std::vector<int64_t> slots = {INT64_MAX, 0};
  EXPECT_THROW(evaluate({{Op::slot, 0}, {Op::slot, 0}, {Op::mul}}, slots), UserError);
  EXPECT_THROW(evaluate({{Op::slot, 0}, {Op::constant, 1}, {Op::add}}, slots), UserError);
  EXPECT_THROW(evaluate({{Op::slot, 0}, {Op::slot, 1}, {Op::floor_div}}, slots), UserError);
  EXPECT_THROW(evaluate({{Op::slot, 0}, {Op::slot, 1}, {Op::mod}}, slots), UserError);
}

TEST(SizeCodeTest, WellFormed) {
  EXPECT_FALSE(is_well_formed({}, 1));
  EXPECT_FALSE(is_well_formed({{Op::add, 0}}, 1));
  EXPECT_FALSE(is_well_formed({{Op::slot, 1}}, 1));
  EXPECT_FALSE(is_well_formed({{Op::slot, 0}, {Op::slot, 0}}, 1));
  EXPECT_TRUE(is_well_formed({{Op::slot, 0}}, 1));
}

}  // namespace
}  // namespace tandem::runtime
