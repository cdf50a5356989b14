// Where a thread that is woken may run: not on the core of who wants its help, and afterwards
// wherever it could before.
#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <latch>
#include <thread>

#include "runtime/team.h"

namespace tandem::runtime {
namespace {

cpu_set_t cores_of(pid_t thread) {
  cpu_set_t cores;
  EXPECT_EQ(sched_getaffinity(thread, sizeof(cores), &cores), 0);
  return cores;
}

/// The calling thread may run on one core only, as long as this lives.
class OnOneCore {
 public:
  explicit OnOneCore(int core) : saved_(cores_of(0)) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<size_t>(core), &one);
    EXPECT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  }
  OnOneCore(const OnOneCore&) = delete;
  OnOneCore& operator=(const OnOneCore&) = delete;
  ~OnOneCore() { sched_setaffinity(0, sizeof(saved_), &saved_); }

 private:
  cpu_set_t saved_;
};

TEST(Placement, KeepsOffTheCallersCoreUntilReleased) {
  const cpu_set_t before = cores_of(0);
  Placement placement;
  pid_t helper = 0;
  std::latch introduced(1), placed(1), released(1), checked(1);
  std::thread thread([&] {
    helper = gettid();
    placement.introduce();
    introduced.count_down();
    placed.wait();
    placement.release();
    placement.release();  // of nothing
    released.count_down();
    checked.wait();
  });
  introduced.wait();
  const int core = sched_getcpu();
  const OnOneCore pinned(core);
  placement.keep_off_this_core();
  cpu_set_t expected = before;
  if (CPU_COUNT(&before) > 1) CPU_CLR(static_cast<size_t>(core), &expected);
  cpu_set_t found = cores_of(helper);
  EXPECT_TRUE(CPU_EQUAL(&found, &expected));
  placed.count_down();
  released.wait();
  found = cores_of(helper);
  EXPECT_TRUE(CPU_EQUAL(&found, &before));
  checked.count_down();
  thread.join();
}

TEST(Placement, AThreadOfOneCoreStaysThere) {
  const OnOneCore pinned(sched_getcpu());
  Placement placement;
  placement.introduce();
  placement.keep_off_this_core();
  const cpu_set_t found = cores_of(0);
  EXPECT_EQ(CPU_COUNT(&found), 1);
}

TEST(Placement, NobodyIsIntroduced) {
  const cpu_set_t before = cores_of(0);
  Placement placement;
  placement.keep_off_this_core();
  placement.release();
  const cpu_set_t found = cores_of(0);
  EXPECT_TRUE(CPU_EQUAL(&found, &before));
}

}  // namespace
}  // namespace tandem::runtime
