// Products of dequantized factors, as integer_products finds them.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ops/opdef.h"

namespace tandem::quant {

/// Whether the node is a view that swaps the two dimensions of a matrix.
bool turns(const ir::Node& node);

/// How a factor came to be dequantized.
struct Source {
  const ir::Node* dequantize = nullptr;  // null: it is not
  std::vector<const ir::Value*> views;   // from the factor down to the dequantization
  ops::Scales scales() const { return ops::def_of(*dequantize).dequantizes; }
};

struct ProductMatch {
  ops::ProductKind kind = ops::ProductKind::none;
  ops::ProductFactors names;
  Source left, right;
  std::string reason;  // why it stays in floats; empty where integers can be multiplied
};

/// Whether a value depends on constants alone.
using IsKnown = std::function<bool(const ir::Value*)>;

/// Nothing where neither factor is dequantized, or the node is no product.
std::optional<ProductMatch> match_product(const ir::Node& node, const IsKnown& is_known);

/// What the integers are at most, as whoever quantized them says (types hold quant_min and
/// quant_max to what the dtype has, so nothing wraps); nothing where that is not known.
std::optional<int64_t> greatest_of(const ir::Value* integers);

/// Terms of one sum.
sym::Expr terms_of(const ir::Node& product);

/// Of a convolution: whether it sees places beside its image.
bool has_border(const ir::Node& convolution);

bool is_tensor(const ir::Arg& arg);
/// Zero points that are promised to be zeros, or views of such.
bool is_known_zero(const ir::Arg& zero);
/// Of addmm and baddbmm: whether beta and alpha are 1.
bool adds_plainly(const ir::Node& product);

}  // namespace tandem::quant
