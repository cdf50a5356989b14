// One group as an unmapped kernel of the loop IR.
#pragma once

#include "schedule/fuse.h"
#include "schedule/schedule.h"

namespace tandem::schedule {

Group build_kernel(Plan& plan, GraphLowering& lowering, const Draft& draft, const Drafts& drafts);

/// Sums of few products that only windows read are computed where they are read: in memory they
/// would be far more than what they are made from. sum_on_the_way.cc
void sum_on_the_way(Plan& plan, GraphLowering& lowering, const Drafts& drafts,
                    std::vector<Group>& groups);

}  // namespace tandem::schedule
