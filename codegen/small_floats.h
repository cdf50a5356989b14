// Floats that are carried as bits: bf16 and the two of 8 bits.
#pragma once

#include "base/dtype.h"
#include "codegen/llvm_headers.h"

namespace tandem::codegen {

/// Whether values of this type are integers of its width in LLVM. f16 is LLVM's half.
bool is_stored_as_bits(DType dtype);

/// `scalar`, or as many of it as `value` has lanes.
llvm::Type* like_lanes(llvm::Type* scalar, llvm::Value* value);

/// The f32 that the bits of such a type are; exact. One or many lanes.
llvm::Value* widen_small(llvm::IRBuilderBase& ir, llvm::Value* bits, DType dtype);
/// The bits of an f32 rounded to such a type, to nearest even, as loop/small_floats.h has it.
llvm::Value* round_small(llvm::IRBuilderBase& ir, llvm::Value* value, DType dtype);

}  // namespace tandem::codegen
