// Whether two kernels are one.
#pragma once

#include <optional>

#include "loop/kernel.h"

namespace tandem::loop {

/// Nothing where they differ in more than the names of their axes, of places from data, and of what
/// comes from outside: sizes and launch numbers. Of these, what stands in `b` for what in `a`; no
/// pairs of the same. Labels, names and texts of errors do not count. Both are over one pool of
/// symbols and well formed. Kernels whose terms stand in another order are taken for two.
std::optional<sym::Substitution> matched(const Kernel& a, const Kernel& b);

}  // namespace tandem::loop
