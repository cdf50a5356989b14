// What starting a group's kernel takes: tasks, scratch, and about how long it runs.
#pragma once

#include <string>

#include "schedule/kernel_graph.h"

namespace tandem::schedule {

/// None where no result has elements and nothing can fail: the loops could be long all the same.
sym::Expr tasks_of(const Group& group);
/// Bytes in that space, each buffer on a line of its own.
sym::Expr scratch_bytes(const loop::Kernel& kernel, loop::Space space);
/// Nanoseconds on one core, roughly: enough to decide whether a team is worth waking.
sym::Expr work_of(const loop::Kernel& kernel);
/// The ops of the members, and where the first one comes from.
std::string label_of(const Group& group);

}  // namespace tandem::schedule
