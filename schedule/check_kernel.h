// Every kernel obeys the loop IR's rules from its making on.
#pragma once

#include <string>
#include <vector>

#include "loop/kernel.h"

namespace tandem::schedule {

/// Symbols that a kernel's indices and extents use and that are no axes of it: sizes of the graph
/// and scalar inputs, in order of first use.
std::vector<sym::Expr> size_symbols(const loop::Kernel& kernel);

/// Rules of the loop IR that a kernel breaks whose sizes are no arguments yet.
std::vector<std::string> problems_of(const loop::Kernel& kernel);

}  // namespace tandem::schedule
