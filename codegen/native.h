// LLVM's code generator for processors like this one. Internal to this room.
#pragma once

#include "codegen/llvm_headers.h"

namespace tandem::codegen {

/// Made ready at the first use; threads may ask at once.
const llvm::Target& native();

}  // namespace tandem::codegen
