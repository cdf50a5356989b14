// fork() copies memory while other threads run: what they have under work is half done in the
// child, and what they have locked stays locked. So the handler of fork waits for the few places
// that matter, all of which are short or need nothing of the thread that forks. A running call
// is not waited for: it goes on in the parent, and the child never looks at its execution.
#include "runtime/fork.h"

#include <pthread.h>

#include <array>
#include <atomic>

#include "runtime/parallel_for.h"

namespace tandem::runtime {
namespace {

std::atomic<bool> g_forked{false};
std::atomic<bool> g_team_lost{false};

// Never destroyed, so that exit handlers may still compute.
std::array<std::mutex, 3>& mutexes() {
  static std::array<std::mutex, 3>* const all = new std::array<std::mutex, 3>;
  return *all;
}

/// Those who compile are counted, and who forks waits until there are none. All come in by `door`,
/// which a fork that waits keeps shut: threads that compile one thing after another would never let
/// it in. No shared_mutex: glibc knows its owner by a number that the child does not have.
struct Compiling {
  std::mutex door;
  std::atomic<int> running{0};
};

Compiling& compiling() {
  static Compiling* const all = new Compiling;
  return *all;
}

void lock_all() {
  compiling().door.lock();
  std::atomic<int>& running = compiling().running;
  for (int some = running.load(); some != 0; some = running.load()) running.wait(some);
  for (std::mutex& mutex : mutexes()) mutex.lock();
}

void unlock_all() {
  for (std::mutex& mutex : mutexes()) mutex.unlock();
  compiling().door.unlock();
}

void begin_child() {
  g_forked.store(true, std::memory_order_relaxed);
  if (threads() > 1) g_team_lost.store(true, std::memory_order_relaxed);
  unlock_all();
}

// From the time that the library is loaded: torch may have a team before we use one.
[[maybe_unused]] const int kWatching = pthread_atfork(lock_all, unlock_all, begin_child);

}  // namespace

bool is_forked_child() { return g_forked.load(std::memory_order_relaxed); }

bool is_team_lost() { return g_team_lost.load(std::memory_order_relaxed); }

ForkHold::ForkHold() {
  const std::lock_guard<std::mutex> in_turn(compiling().door);
  ++compiling().running;
}

ForkHold::~ForkHold() {
  if (--compiling().running == 0) compiling().running.notify_all();
}

std::mutex& mutex_of(ForkLock lock) { return mutexes()[static_cast<size_t>(lock)]; }

}  // namespace tandem::runtime
