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

/// Locks that fork() takes before it copies the process, so that what they guard is whole in the
/// child and nobody who is not there holds them. Who holds one takes later ones only, and calls
/// nothing of Python.
enum class ForkLock : uint8_t {
  compile,     // the compiler and its libraries
  plans,       // making primitives of a library
  executions,  // idle executions of every program
  memory,      // free lists of the allocator
};
std::mutex& mutex_of(ForkLock lock);

}  // namespace tandem::runtime
