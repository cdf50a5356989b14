// The printer behind to_string and identity.
#pragma once

#include <string>

#include "loop/kernel.h"

namespace tandem::loop {

/// With names: kernel name, buffer labels and error texts, which the identity leaves out.
std::string print_kernel(const Kernel& kernel, bool with_names);

/// The value of a constant: what stands between the parentheses of `f32(0.5)`. Reads back exactly.
std::string literal(Val constant);

}  // namespace tandem::loop
