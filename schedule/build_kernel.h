// One group as an unmapped kernel of the loop IR.
#pragma once

#include "schedule/fuse.h"
#include "schedule/schedule.h"

namespace tandem::schedule {

Group build_kernel(Plan& plan, GraphLowering& lowering, const Draft& draft, const Drafts& drafts);

}  // namespace tandem::schedule
