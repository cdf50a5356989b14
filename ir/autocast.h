// Automatic mixed precision: which operands of an op are cast where a region asks for it.
#pragma once

#include <vector>

#include "ir/builder.h"

namespace tandem::ir {

/// Casts the operands of a call in an autocast region of `dtype` (bf16 or f16), as the op's policy
/// says; new nodes go where the builder is. f64, integers and bools stay as they are.
void autocast(Builder& builder, const Op& op, std::vector<Arg>& args, DType dtype);

}  // namespace tandem::ir
