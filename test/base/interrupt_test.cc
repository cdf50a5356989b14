// Asking whether to go on: who is asked, how often, and what a no does.
#include "base/interrupt.h"

#include <gtest/gtest.h>

#include <chrono>
#include <stdexcept>
#include <thread>

namespace tandem {
namespace {

int g_asked = 0;
void count() { ++g_asked; }
void refuse() { throw std::runtime_error("no"); }

/// Polls for so long that everybody who may be asked is.
void poll_for(std::chrono::milliseconds time) {
  const auto end = std::chrono::steady_clock::now() + time;
  while (std::chrono::steady_clock::now() < end) poll_interrupt();
}

TEST(InterruptTest, NobodyIsAskedOutside) {
  g_asked = 0;
  {
    const Interruptible scope(&count);
  }
  poll_for(std::chrono::milliseconds(150));
  EXPECT_EQ(g_asked, 0);
}

TEST(InterruptTest, AsksNowAndThen) {
  g_asked = 0;
  const Interruptible scope(&count);
  poll_for(std::chrono::milliseconds(350));
  EXPECT_GE(g_asked, 1);
  EXPECT_LE(g_asked, 5);
}

TEST(InterruptTest, ThrowsWhatTheCallerThrows) {
  const Interruptible scope(&refuse);
  EXPECT_THROW(poll_for(std::chrono::milliseconds(250)), std::runtime_error);
}

TEST(InterruptTest, AsksOnlyTheThreadThatAllowsIt) {
  const Interruptible scope(&refuse);
  std::thread([] { poll_for(std::chrono::milliseconds(150)); }).join();
  const Interruptible inner(nullptr);
  poll_for(std::chrono::milliseconds(150));
}

}  // namespace
}  // namespace tandem
