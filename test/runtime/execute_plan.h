// A library plan's call, and that it takes as much memory as it says.
#pragma once

#include <gtest/gtest.h>

#include <span>

#include "runtime/allocator.h"
#include "runtime/library.h"

namespace tandem::runtime {

inline void execute(LibraryPlan& plan, std::span<void* const> operands) {
  allocator().reset_peak();
  const int64_t before = allocator().counters().live_bytes;
  plan.execute(operands);
  EXPECT_EQ(allocator().counters().peak_live_bytes - before, plan.working_bytes());
}

}  // namespace tandem::runtime
