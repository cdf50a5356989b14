// One group as an unmapped kernel of the loop IR, and all of them as a program.
#pragma once

#include "schedule/fuse.h"
#include "schedule/schedule.h"

namespace tandem::schedule {

Group build_kernel(Plan& plan, GraphLowering& lowering, const Draft& draft, const Drafts& drafts);

/// Sums of few products that only windows read are computed where they are read: in memory they
/// would be far more than what they are made from. sum_on_the_way.cc
void sum_on_the_way(Plan& plan, GraphLowering& lowering, const Drafts& drafts,
                    std::vector<Group>& groups);

/// Buffers, size code, instructions in the order given, epilogue, for mapped kernels.
Scheduled emit_program(Plan& plan, GraphLowering& lowering, std::vector<Group> groups,
                       const Drafts& drafts, const LaunchOrder& order);

}  // namespace tandem::schedule
