// Which products can be sums of integers, and why the others cannot: the factors' types, along
// which dimension their scales run, how many terms there are, what is added.
#include "quant/product_match.h"

#include <fmt/format.h>

#include <algorithm>

#include "quant/transposed.h"

namespace tandem::quant {

using ir::Node;
using ir::Value;
using ops::ProductKind;
using ops::Scales;

bool is_tensor(const ir::Arg& arg) { return std::holds_alternative<Value*>(arg); }

bool turns(const Node& node) {
  const ops::OpDef& def = ops::def_of(node);
  return def.order != nullptr && def.order(node.call()) == std::vector<int64_t>{1, 0};
}

bool is_known_zero(const ir::Arg& zero) {
  Value* const* given = std::get_if<Value*>(&zero);
  if (given == nullptr) return false;
  const Value* at = *given;
  while (at->node != nullptr && at->node->op->is_view()) at = std::get<Value*>(at->node->args[0]);
  return at->constant && at->zeros;
}

bool adds_plainly(const Node& product) {
  const ir::Call call = product.call();
  if (product.op->schema.find("beta") < 0) return true;
  return call.arg("beta") == ir::Arg(sym::Expr(1)) && call.arg("alpha") == ir::Arg(sym::Expr(1));
}

sym::Expr terms_of(const Node& product) {
  const ir::Sizes& sizes = product.call().type(ops::factors_of(*product.op).right).sizes;
  const ProductKind kind = ops::def_of(product).multiplies;
  if (kind == ProductKind::matrix) return sizes[sizes.size() - 2];
  if (kind == ProductKind::transposed) {
    const sym::Expr kernel = sym::product(ir::Sizes(sizes.begin() + 2, sizes.end()));
    return sym::floor_div(sizes[0], product.call().integer("groups")) * kernel;
  }
  return sym::product(ir::Sizes(sizes.begin() + 1, sizes.end()));
}

std::optional<int64_t> greatest_of(const Value* integers) {
  const DType dtype = integers->type.dtype;
  while (integers->node != nullptr && integers->node->op->is_view())
    integers = std::get<Value*>(integers->node->args[0]);
  const Node* const made = integers->node;
  // Signed bytes that are viewed as unsigned ones have eight bits.
  if (made == nullptr || !ops::def_of(*made).quantizes || integers->type.dtype != dtype)
    return std::nullopt;
  const sym::Expr* const most = std::get_if<sym::Expr>(&made->call().arg("quant_max"));
  return most == nullptr ? std::nullopt : most->constant();
}

bool has_border(const Node& convolution) {
  return std::ranges::any_of(convolution.call().constants("padding"),
                             [](int64_t each) { return each != 0; });
}

namespace {

constexpr int64_t kMostTerms = 65793;  // 255 * 128 each fit an i32

Source source_of(const Value* factor) {
  Source source;
  const Value* at = factor;
  while (at->node != nullptr && ops::def_of(*at->node).dequantizes == Scales::none) {
    const bool casts = ops::def_of(*at->node).casts && is_float(at->type.dtype);
    if (!casts && !at->node->op->is_view()) break;
    if (!casts) source.views.push_back(at);
    at = std::get<Value*>(at->node->args[0]);
  }
  if (at->node != nullptr && ops::def_of(*at->node).dequantizes != Scales::none)
    source.dequantize = at->node;
  return source;
}

/// Why these integers cannot be multiplied.
std::string why_not(const Source& source) {
  if (source.dequantize == nullptr) return "is not dequantized";
  const ir::Call call = source.dequantize->call();
  const DType dtype = call.type("input").dtype;
  if (dtype != DType::u8 && dtype != DType::i8) return fmt::format("is {}", name_of(dtype));
  const Scales scales = source.scales();
  if (scales != Scales::tensor && !source.views.empty()) return "is viewed after dequantization";
  // Sums and borders are of 8-bit zero points.
  const bool is_whole = scales == Scales::tensor && !is_tensor(call.arg("zero_point"));
  const int64_t zero = is_whole ? call.constant("zero_point") : 0;
  const bool is_signed = dtype == DType::i8;
  if (zero < (is_signed ? -128 : 0) || zero > (is_signed ? 127 : 255))
    return fmt::format("has a zero point {} that no {} is", zero, name_of(dtype));
  return "";
}

std::string why_not_image(const Node& product, const ProductMatch& match) {
  const ir::Call call = product.call();
  const bool is_transposed = match.kind == ProductKind::transposed;
  if (is_transposed) {
    if (std::string reason = why_not_ordinary(product, match); !reason.empty()) return reason;
  } else if (call.boolean("transposed")) {
    return "it is transposed";
  }
  return "";
}

/// Around an image whose zero point only a call tells, sums of the weight differ from place to
/// place: they must be made once.
std::string why_not_border(const Node& product, const ProductMatch& match,
                           const IsKnown& is_known) {
  const bool is_seen = match.kind == ProductKind::transposed || has_border(product);
  if (!is_seen || !is_tensor(match.left.dequantize->call().arg("zero_point"))) return "";
  const ir::Sizes& image = product.call().type(match.names.left).sizes;
  const bool has_sizes = std::all_of(image.begin() + 1, image.end(),
                                     [](sym::Expr size) { return size.constant().has_value(); });
  if (has_sizes && is_known(match.right.dequantize->call().value("input"))) return "";
  return fmt::format("its border is a zero point that only a call tells, and {}",
                     has_sizes ? "its right factor is no constant" : "sizes are not known");
}

bool is_image(const ProductMatch& match) {
  return match.kind == ProductKind::convolution || match.kind == ProductKind::transposed;
}

std::string why_not_scales(const Node& product, const ProductMatch& match) {
  if (match.left.scales() == Scales::block) return "its left factor has a scale for each block";
  if (match.right.scales() == Scales::block) return "its right factor has a scale for each block";
  if (match.left.scales() == Scales::channel) return "its left factor has a scale for each channel";
  if (match.left.scales() == Scales::token && is_image(match)) return "an image has no tokens";
  if (match.right.scales() == Scales::token) return "its right factor has a scale for each token";
  if (match.right.scales() != Scales::channel) return "";
  const int64_t rank = product.call().type(match.names.right).rank();
  const int64_t results = match.kind == ProductKind::matrix       ? rank - 1
                          : match.kind == ProductKind::transposed ? 1
                                                                  : 0;
  return match.right.dequantize->call().dim("axis", rank) == results
             ? ""
             : "the scales of its right factor run along its terms";
}

std::string why_not(const Node& product, const ProductMatch& match, const IsKnown& is_known) {
  if (std::string reason = why_not(match.left); !reason.empty()) return "its left factor " + reason;
  if (std::string reason = why_not(match.right); !reason.empty())
    return "its right factor " + reason;
  if (std::string reason = why_not_scales(product, match); !reason.empty()) return reason;
  const DType dtype = product.results[0]->type.dtype;
  if (!is_float(dtype) || dtype == DType::f64)
    return fmt::format("its result is {}", name_of(dtype));
  const std::optional<int64_t> terms = terms_of(product).constant();
  if (!terms) return "the number of its terms is not known";
  if (*terms > kMostTerms) return "its sums may not fit 32 bits";
  if (!adds_plainly(product)) return "beta and alpha are not 1";
  if (!is_image(match)) return "";
  if (std::string reason = why_not_image(product, match); !reason.empty()) return reason;
  return why_not_border(product, match, is_known);
}

}  // namespace

std::optional<ProductMatch> match_product(const Node& node, const IsKnown& is_known) {
  ProductMatch match{ops::def_of(node).multiplies, ops::factors_of(*node.op), {}, {}, ""};
  if (match.kind == ProductKind::none) return std::nullopt;
  match.left = source_of(node.call().value(match.names.left));
  match.right = source_of(node.call().value(match.names.right));
  if (match.left.dequantize == nullptr && match.right.dequantize == nullptr) return std::nullopt;
  match.reason = why_not(node, match, is_known);
  return match;
}

}  // namespace tandem::quant
