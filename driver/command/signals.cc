// A handler may only set a flag; the flag must be the process's.
#include "driver/command/signals.h"

#include <csignal>

namespace tandem::driver::command {
namespace {

volatile std::sig_atomic_t g_came = 0;

constexpr int kSignals[] = {SIGINT, SIGTERM};

void note(int) { g_came = 1; }

void ask() {
  if (g_came != 0) throw Interrupted();
}

}  // namespace

Signals::Signals() : asks_(ask) {
  g_came = 0;
  struct sigaction action{};
  action.sa_handler = note;
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);
  for (const int number : kSignals) sigaction(number, &action, nullptr);
}

Signals::~Signals() {
  for (const int number : kSignals) std::signal(number, SIG_DFL);
}

}  // namespace tandem::driver::command
