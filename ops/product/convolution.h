// What aten::convolution and the ops that come down to it share: reading arguments, result sizes.
#pragma once

#include "ops/families.h"
#include "ops/window.h"

namespace tandem::ops::convolution {

std::vector<int64_t> padding_list(const Call& call, size_t dims);
/// output_padding: elements that a transposed convolution has behind its last window. As in eager
/// fewer than the stride or the dilation.
std::vector<int64_t> extra_list(const Call& call, size_t dims);

/// Refuses dtypes that differ and a bias that does not fit `channels`.
void check_operands(const Call& call, Expr channels);

/// Result sizes for an input of those sizes, which begin with a batch.
Sizes forward_sizes(const Call& call, const Sizes& input, const std::vector<int64_t>& padding);
Sizes transposed_sizes(const Call& call, const Sizes& input);

}  // namespace tandem::ops::convolution
