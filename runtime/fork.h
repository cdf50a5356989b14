// A process that forks: what the child may rely on.
#pragma once

#include <cstdint>
#include <mutex>

namespace tandem::runtime {

/// This process was forked from one that had loaded Tandem. Threads of OpenMP were not forked, and
/// who asks it for a team waits for ever.
bool is_forked_child();
/// And there the thread that forked would have had a team.
bool is_team_lost();

/// While one lives, fork() waits: who compiles is inside of libraries whose locks a child would
/// find taken for ever. Any number of threads hold one at once, and fork() comes before those that
/// begin later; a thread holds one at a time. Who holds one takes the locks below only.
class ForkHold {
 public:
  ForkHold();
  ForkHold(const ForkHold&) = delete;
  ForkHold& operator=(const ForkHold&) = delete;
  ~ForkHold();
};

/// Locks that fork() takes before it copies the process, so that what they guard is whole in the
/// child and nobody who is not there holds them. Who holds one takes later ones only, and calls
/// nothing of Python.
enum class ForkLock : uint8_t {
  plans,       // making primitives of a library
  executions,  // idle executions of every program
  memory,      // free lists of the allocator
};
std::mutex& mutex_of(ForkLock lock);

}  // namespace tandem::runtime
