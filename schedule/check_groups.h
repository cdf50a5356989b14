// What groups say, against their members: what build_kernels, chains and programs rely on.
#pragma once

#include "schedule/problem.h"

namespace tandem::schedule {

/// - Members fill the group's space; what one reads of another is computed at that very place, in a
///   stage or a line before.
/// - A group says all that its members read, and which groups make it; what is read in another one
///   is stored.
/// - An input that a member writes over is read by no group behind it, and in its own group at the
///   place that is written.
/// - A kernel's buffers have the types of what they hold; it writes what its members are and reads
///   what its group says.
Problems problems_of_groups(const KernelGraph& graph);

/// What kernels must be before they are joined or mapped. check_unmapped.cc
Problems problems_of_unmapped(const KernelGraph& graph);

}  // namespace tandem::schedule
