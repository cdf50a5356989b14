// What holds while a call from Python computes without the interpreter's lock.
#pragma once

#include <nanobind/nanobind.h>

#include "driver/face.h"

namespace tandem::python {

namespace nb = nanobind;

/// `callable()` is torch's number of threads for the calling thread.
void use_torch_threads(nb::object callable);
/// From here on calls of that thread, Python's main one, see its signals.
void watch_signals(unsigned long thread);

/// The lock is free, the team has its size, and a key press (SIGINT) ends the work: what Python's
/// handler raises is thrown. As hidden as what it holds of nanobind.
class [[gnu::visibility("hidden")]] CallScope {
 public:
  /// `threads`: 0 is what tandem.set_threads said, else torch's number.
  explicit CallScope(int threads = 0);

 private:
  driver::TeamSize team_;
  Interruptible interruptible_;
  nb::gil_scoped_release release_;
};

}  // namespace tandem::python
