// Object code of kernels. Internal to this room.
#pragma once

#include <string>

#include "base/target.h"
#include "loop/kernel.h"

namespace tandem::codegen {

/// Machine code of a kernel for `target`, at LLVM's level 0 to 3: an object file with one symbol,
/// the kernel's name. The same kernel gives the same bytes, whatever was compiled before. Threads
/// may ask at once.
std::string object_code(const loop::Kernel& kernel, const Target& target, int level);

}  // namespace tandem::codegen
