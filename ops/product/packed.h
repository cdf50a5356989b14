// Several small integers in one of 32 bits, as products of them read their factors.
#pragma once

#include <functional>

#include "ops/opdef.h"

namespace tandem::ops {

/// How products of so many parts are added. `saturates`: vpmaddubsw's way, of four.
loop::Combiner packed_combiner(int64_t parts, bool saturates);

/// What a part of a pack of so many is: of two 16 bits.
DType part_type(int64_t parts, DType from);

/// Parts number first, first + 1, … of `extent`, at the places that `at` says; 0 behind the end.
loop::Val packed_parts(Lowering& lowering, const ir::Value* from, int64_t parts, sym::Expr first,
                       sym::Expr extent, loop::Val inside,
                       const std::function<Index(sym::Expr)>& at);

}  // namespace tandem::ops
