// Problem: a weight of 4 bits comes as bytes with a range, dequantized in groups by one of several
// ops, cast and turned; or packed by PyTorch; one of 8 bits as the factor of an op of its own
// (weight_only.cc makes that). Approach: walk from the product's factor to the dequantization; what
// its arguments say is read by their names.
#include "quant/narrow_weight.h"

#include <cmath>

#include "ops/opdef.h"
#include "ops/product/group_sums.h"
#include "quant/product_match.h"

namespace tandem::quant {
namespace {

using ir::Node;
using ir::Value;
using ops::ProductKind;

constexpr int64_t kNibbleValues = 16;
constexpr int64_t kByteValues = 256;
constexpr int64_t kFewestTerms = 32;  // of a group: what is done once for each must pay

/// Down to the dequantization in blocks; null where there is none. `turned`: [terms, columns].
const Node* dequantization_of(Value* at, bool turned) {
  while (at->node != nullptr && at->type.rank() == 2 && is_float(at->type.dtype)) {
    const Node& node = *at->node;
    if (ops::def_of(node).dequantizes == ops::Scales::block) return turned ? nullptr : &node;
    const bool casts = ops::def_of(node).casts;
    if (!casts && !turns(node)) return nullptr;
    turned ^= !casts;
    at = std::get<Value*>(node.args[0]);
  }
  return nullptr;
}

/// Terms of a block of one row; 0 where blocks are others.
int64_t group_of(const ir::Call& call) {
  if (call.op().schema.find("group_size") >= 0) return call.constant("group_size");
  const std::vector<int64_t> blocks = call.constants("block_size");
  return blocks.size() == 2 && blocks[0] == 1 ? blocks[1] : 0;
}

Value* tensor_of(const ir::Call& call, std::string_view one, std::string_view many) {
  const std::string_view name = call.op().schema.find(one) >= 0 ? one : many;
  return call.has(name) ? call.value(name) : nullptr;
}

/// The number behind a bound, which may be one of several kinds.
std::optional<int64_t> bound(const ir::Call& call, std::string_view name) {
  if (!call.has(name)) return std::nullopt;
  const ir::Arg& arg = call.arg(name);
  if (const sym::Expr* whole = std::get_if<sym::Expr>(&arg)) return whole->constant();
  const double* number = std::get_if<double>(&arg);
  const bool is_whole =
      number != nullptr && std::abs(*number) < 0x1p63 && *number == std::trunc(*number);
  if (!is_whole) return std::nullopt;
  return static_cast<int64_t>(*number);
}

bool has_sizes(NarrowWeight& weight, const sym::Expr& rows, const sym::Expr& terms) {
  weight.rows = rows.constant().value_or(0);
  weight.terms = terms.constant().value_or(0);
  return weight.rows > 0 && weight.terms > 0 && weight.rows % ops::kPanelRows == 0 &&
         weight.group >= kFewestTerms && weight.group <= ops::kMostGroupTerms &&
         weight.group % ops::terms_of_number(weight.bits) == 0 && weight.terms % weight.group == 0;
}

std::optional<NarrowWeight> dequantized(const Node& node) {
  const ir::Call call = node.call();
  NarrowWeight weight;
  weight.q = call.value("input");
  weight.group = group_of(call);
  weight.scale = tensor_of(call, "scale", "scales");
  weight.zero = tensor_of(call, "zero_point", "zero_points");
  if (weight.zero != nullptr && is_known_zero(ir::Arg(weight.zero))) weight.zero = nullptr;
  const std::optional<int64_t> least = bound(call, "quant_min");
  const std::optional<int64_t> most = bound(call, "quant_max");
  const ir::Type& type = weight.q->type;
  const int64_t first = is_signed(type.dtype) ? -kByteValues / 2 : 0;
  const bool is_narrow = least && most && *least >= first && *least <= *most &&
                         *most < first + kByteValues && size_of(type.dtype) == 1;
  if (!is_narrow || type.rank() != 2) return std::nullopt;
  weight.bits = *most - *least < kNibbleValues ? 4 : 8;
  weight.least = weight.bits == 4 ? *least : first;
  if (weight.zero != nullptr && !is_int(weight.zero->type.dtype)) return std::nullopt;
  if (!has_sizes(weight, type.sizes[0], type.sizes[1])) return std::nullopt;
  return weight;
}

std::optional<NarrowWeight> packed(const Node& node) {
  const ir::Call call = node.call();
  NarrowWeight weight;
  weight.kind = ops::NarrowFactor::nibbles;
  weight.q = call.value("mat2");
  weight.scale = call.value("qScaleAndZeros");
  weight.group = call.constant("qGroupSize");
  const ir::Sizes& sizes = weight.q->type.sizes;
  if (!has_sizes(weight, sizes[0], sizes[1] * 2)) return std::nullopt;
  return weight;
}

/// Its one scale is that of any number of groups: as long ones as there can be.
std::optional<NarrowWeight> of_bytes(const Node& node) {
  const ir::Call call = node.call();
  NarrowWeight weight;
  weight.kind = ops::NarrowFactor::bytes;
  weight.bits = 8;
  weight.q = call.value("mat2");
  if (!is_int(weight.q->type.dtype)) return std::nullopt;
  weight.scale = call.value("scales");
  weight.least = -kByteValues / 2;
  const ir::Sizes& sizes = weight.q->type.sizes;
  const int64_t terms = sizes[1].constant().value_or(0);
  weight.group = ops::kMostGroupTerms;
  while (weight.group > kFewestTerms && terms % weight.group != 0) weight.group /= 2;
  if (!has_sizes(weight, sizes[0], sizes[1])) return std::nullopt;
  return weight;
}

/// Behind the factor of an ordinary product.
std::optional<NarrowWeight> behind(const Node& product) {
  const ProductKind kind = ops::def_of(product).multiplies;
  const bool is_ordinary = kind == ProductKind::linear || kind == ProductKind::matrix;
  if (!is_ordinary || !adds_plainly(product)) return std::nullopt;
  Value* right = product.call().value(ops::factors_of(*product.op).right);
  const Node* node = dequantization_of(right, kind == ProductKind::matrix);
  return node == nullptr ? std::nullopt : dequantized(*node);
}

}  // namespace

std::optional<NarrowWeight> narrow_weight_of(const Node& product,
                                             const passes::KnownValues& known) {
  std::optional<NarrowWeight> weight;
  switch (ops::def_of(product).narrow) {
    case ops::NarrowFactor::none: weight = behind(product); break;
    case ops::NarrowFactor::bytes: weight = of_bytes(product); break;
    case ops::NarrowFactor::nibbles: weight = packed(product); break;
  }
  if (!weight) return std::nullopt;
  for (const Value* value : {weight->q, weight->scale, weight->zero})
    if (value != nullptr && !known.has(value)) return std::nullopt;
  return weight;
}

}  // namespace tandem::quant
