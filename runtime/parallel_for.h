// The one way to use several threads.
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>

namespace tandem::runtime {

/// A borrowed callable of signature void(int64_t lo, int64_t hi); must not outlive what it refers
/// to.
class RangeBody {
 public:
  template <class F>
    requires(!std::is_same_v<std::remove_cvref_t<F>, RangeBody>)
  RangeBody(F&& body)  // NOLINT(google-explicit-constructor): a lambda is passed in place
      : object_(const_cast<void*>(static_cast<const void*>(std::addressof(body)))),
        call_([](void* object, int64_t lo, int64_t hi) {
          (*static_cast<std::remove_reference_t<F>*>(object))(lo, hi);
        }) {}
  void operator()(int64_t lo, int64_t hi) const { call_(object_, lo, hi); }

 private:
  void* object_;
  void (*call_)(void*, int64_t, int64_t);
};

/// Calls `body` on contiguous ranges that cover [0, tasks) once, on up to `threads()` threads;
/// returns when all are done. A thread gets several ranges, and which ones differs from call to
/// call: the result must not depend on that. Where ranges end follows from `tasks` and `threads()`.
/// When bodies throw, the exception of the lowest range is rethrown here. Inside a region, in a
/// forked child and with one task: one call body(0, tasks) on the calling thread. Several callers
/// share the team.
void parallel_for(int64_t tasks, RangeBody body);

/// Size of the team: the running call's, else what set_threads says, else what OpenMP has for the
/// calling thread (OMP_NUM_THREADS or the number of cores; torch.set_num_threads sets it).
int threads();
/// For calls that begin later, of all threads. 0: not set.
void set_threads(int count);
/// What set_threads said, 0 if nothing.
int set_number_of_threads();

/// The team of the calling thread while it lives. Every call of a program has one, because what it
/// holds per thread is counted by `threads()`.
class TeamSize {
 public:
  explicit TeamSize(int count);
  TeamSize(const TeamSize&) = delete;
  TeamSize& operator=(const TeamSize&) = delete;
  ~TeamSize();

 private:
  int outer_;
};

/// One line on stderr, once: in this forked child there is no team.
void warn_of_fork();

/// Cores of the machine, whatever the team: how work is cut may depend on it without results
/// depending on the number of threads.
int machine_cores();

/// Number of the calling thread within its region, 0 outside; below `threads()`.
int thread_index();

}  // namespace tandem::runtime
