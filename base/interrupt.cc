// Asking takes a lock of the caller's (Python's), so a clock decides when; the coarse one is read
// in a few nanoseconds.
#include "base/interrupt.h"

#include <ctime>

#include <cstdint>

namespace tandem {
namespace {

constexpr int64_t kPeriod = 100;  // milliseconds

thread_local Interruptible::Ask t_ask = nullptr;
thread_local int64_t t_next = 0;

int64_t milliseconds() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
}

}  // namespace

Interruptible::Interruptible(Ask ask) : outer_(t_ask) { t_ask = ask; }

Interruptible::~Interruptible() { t_ask = outer_; }

void poll_interrupt() {
  if (t_ask == nullptr) return;
  const int64_t now = milliseconds();
  if (now < t_next) return;
  t_next = now + kPeriod;
  t_ask();
}

}  // namespace tandem
