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
/// returns when all are done. The result must not depend on where ranges end. When bodies throw,
/// the exception of the lowest range is rethrown here. Inside a region, in a forked child and with
/// one task: one call body(0, tasks) on the calling thread. Two callers take turns at the team.
void parallel_for(int64_t tasks, RangeBody body);

/// Threads of the team; at first what OpenMP has (OMP_NUM_THREADS or the number of cores).
int threads();
/// `count` < 1 means 1. Not while a program runs: what it holds per thread is counted by
/// `threads()`.
void set_threads(int count);

/// Cores of the machine, whatever the team: how work is cut may depend on it without results
/// depending on the number of threads.
int machine_cores();

/// Number of the calling thread within its region, 0 outside; below `threads()`.
int thread_index();

}  // namespace tandem::runtime
