// Reductions over dimensions of one operand: what every op of that kind shares.
#pragma once

#include "ops/elements.h"

namespace tandem::ops {

/// Dimensions that a call reduces: its `dim` argument wrapped, all of them when it has none or it
/// is empty.
std::vector<int64_t> reduced_dims(const ir::Call& call);
bool keeps_dims(const ir::Call& call);
/// Sizes after reducing `dims`.
ir::Sizes reduced_sizes(const ir::Sizes& sizes, const std::vector<int64_t>& dims, bool keepdim);
Types reduced_types(const ir::Call& call, DType dtype);
/// Number of elements that one result combines.
sym::Expr reduced_count(const ir::Call& call);
/// Refuses an empty dimension: of a reduction without an identity.
void need_elements(const ir::Call& call);
/// A result with self's reduced dimensions put back, to be broadcast against self.
Tensor against_self(Tensor x, const ir::Call& call);

/// The definition of a reduction of `self`: `input` gives the combiner's inputs for an element of
/// self in `dtype` at its full index; `finish` as in Definition.
Definition reduce_self(
    Lowering& lowering, const ir::Call& call, const std::vector<int64_t>& dims, bool keepdim,
    loop::Combiner combiner, DType dtype,
    const std::function<std::vector<loop::Val>(Element, const Index&)>& input = nullptr,
    std::function<std::vector<loop::Val>(std::span<const loop::Val>, const Index&)> finish =
        nullptr);

}  // namespace tandem::ops
