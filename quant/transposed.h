// Transposed convolutions of dequantized factors as ordinary ones.
#pragma once

#include <string>

#include "quant/product_match.h"

namespace tandem::quant {

/// Of a product of kind `transposed`: why it cannot be an ordinary convolution; empty if it can.
std::string why_not_ordinary(const ir::Node& product, const ProductMatch& match);

/// Puts an aten.convolution, and views of its result, in the place of `product`. The convolution;
/// its factors are dequantized as those of `product` were. Requires why_not_ordinary() to be empty.
ir::Node* make_ordinary(ir::Graph& graph, ir::Node& product, const ProductMatch& match);

}  // namespace tandem::quant
