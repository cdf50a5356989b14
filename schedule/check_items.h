// Items of a text against the operators of their nodes.
#pragma once

#include "schedule/problem.h"

namespace tandem::schedule {

/// What a text may not say of an item: another kind, other results, other sizes or types than its
/// operator has. Its scalars are its own. To be asked of what was read, before anything else.
Problems problems_of_items(KernelGraph& graph);

/// Rules that the loops of a definition break.
std::vector<std::string> problems_of_definition(const loop::Kernel& kernel, const Item& item);

}  // namespace tandem::schedule
