// Long work that its caller may end: a key press in Python, while it compiles or computes.
#pragma once

namespace tandem {

/// While it lives, long work of the calling thread asks about ten times a second whether to go on.
/// `ask` throws to say no.
class Interruptible {
 public:
  using Ask = void (*)();
  /// Null: nobody is asked.
  explicit Interruptible(Ask ask);
  Interruptible(const Interruptible&) = delete;
  Interruptible& operator=(const Interruptible&) = delete;
  ~Interruptible();

 private:
  Ask outer_;
};

/// Between the steps of long work, where nothing is half done: some nanoseconds, and whatever the
/// caller's `ask` throws.
void poll_interrupt();

}  // namespace tandem
