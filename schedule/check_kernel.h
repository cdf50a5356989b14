// Every kernel obeys the loop IR's rules from its making on.
#pragma once

#include <string_view>
#include <vector>

#include "loop/kernel.h"

namespace tandem::schedule {

/// Symbols that a kernel's indices and extents use and that are no axes of it: sizes of the graph
/// and scalar inputs, in order of first use.
std::vector<sym::Expr> size_symbols(const loop::Kernel& kernel);

/// With TANDEM_VERIFY, and in builds with assertions: a failed check, with the kernel's text, where
/// `step` left a kernel that breaks a rule.
void check_kernel(const loop::Kernel& kernel, std::string_view step);

}  // namespace tandem::schedule
