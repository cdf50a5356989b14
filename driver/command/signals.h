// A key press that ends long work at a place where nothing is half done.
#pragma once

#include <stdexcept>

#include "base/interrupt.h"

namespace tandem::driver::command {

class Interrupted : public std::runtime_error {
 public:
  Interrupted() : std::runtime_error("interrupted: nothing was written") {}
};

/// While it lives, the first SIGINT or SIGTERM makes this thread's next poll_interrupt throw
/// Interrupted; a second one ends the process, as it would without.
class Signals {
 public:
  Signals();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;
  ~Signals();

 private:
  Interruptible asks_;
};

}  // namespace tandem::driver::command
