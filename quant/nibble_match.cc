// Problem: a weight of 4 bits comes as bytes with a range, dequantized in groups by one of several
// ops, cast and turned; or packed by PyTorch. Approach: walk from the product's factor to the
// dequantization; what its arguments say is read by their names.
#include "quant/nibble_match.h"

#include "ops/opdef.h"
#include "ops/product/nibbles.h"
#include "quant/product_match.h"

namespace tandem::quant {
namespace {

using ir::Node;
using ir::Value;
using ops::ProductKind;

constexpr int64_t kValues = 16;      // of 4 bits
constexpr int64_t kMostTerms = 512;  // of a group

/// Down to the dequantization in blocks; null where there is none. `turned`: [terms, columns].
const Node* dequantization_of(Value* at, bool turned) {
  while (at->node != nullptr && at->type.rank() == 2 && is_float(at->type.dtype)) {
    const Node& node = *at->node;
    if (ops::def_of(node).dequantizes == ops::Scales::block) return turned ? nullptr : &node;
    const bool casts = is_cast(node);
    if (!casts && !(node.op->is_view() && turns(node))) return nullptr;
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
  const ir::Arg arg = call.arg(name);
  if (const sym::Expr* whole = std::get_if<sym::Expr>(&arg)) return whole->constant();
  const double* number = std::get_if<double>(&arg);
  if (number == nullptr || *number != static_cast<double>(static_cast<int64_t>(*number)))
    return std::nullopt;
  return static_cast<int64_t>(*number);
}

bool has_sizes(NibbleWeight& weight, const sym::Expr& rows, const sym::Expr& terms) {
  weight.rows = rows.constant().value_or(0);
  weight.terms = terms.constant().value_or(0);
  return weight.rows > 0 && weight.terms > 0 && weight.rows % ops::kNibblePanel == 0 &&
         weight.group > 0 && weight.group <= kMostTerms && weight.group % ops::kNibbles == 0 &&
         weight.terms % weight.group == 0;
}

std::optional<NibbleWeight> dequantized(const Node& node) {
  const ir::Call call = node.call();
  NibbleWeight weight;
  weight.q = call.value("input");
  weight.group = group_of(call);
  weight.scale = tensor_of(call, "scale", "scales");
  weight.zero = tensor_of(call, "zero_point", "zero_points");
  if (weight.zero != nullptr && is_known_zero(ir::Arg(weight.zero))) weight.zero = nullptr;
  const std::optional<int64_t> least = bound(call, "quant_min");
  const std::optional<int64_t> most = bound(call, "quant_max");
  const ir::Type& type = weight.q->type;
  const bool is_narrow = least && most && *least <= *most && *most - *least < kValues &&
                         size_of(type.dtype) == 1 && *least >= (is_signed(type.dtype) ? -128 : 0);
  if (!is_narrow || type.rank() != 2 || !has_sizes(weight, type.sizes[0], type.sizes[1]))
    return std::nullopt;
  if (weight.zero != nullptr && !is_int(weight.zero->type.dtype)) return std::nullopt;
  weight.least = *least;
  return weight;
}

std::optional<NibbleWeight> packed(const Node& node) {
  const ir::Call call = node.call();
  NibbleWeight weight;
  weight.q = call.value("mat2");
  weight.packed = true;
  weight.scale = call.value("qScaleAndZeros");
  weight.group = call.constant("qGroupSize");
  const ir::Sizes& sizes = weight.q->type.sizes;
  if (!has_sizes(weight, sizes[0], sizes[1] * 2)) return std::nullopt;
  return weight;
}

}  // namespace

std::optional<NibbleWeight> nibble_weight_of(const Node& product,
                                             const passes::KnownValues& known) {
  std::optional<NibbleWeight> weight;
  if (ops::def_of(product).reads_packed_nibbles) {
    weight = packed(product);
  } else {
    const ProductKind kind = ops::def_of(product).multiplies;
    if (kind != ProductKind::linear && kind != ProductKind::matrix) return std::nullopt;
    if (!adds_plainly(product)) return std::nullopt;
    Value* right = product.call().value(ops::factors_of(*product.op).right);
    const Node* node = dequantization_of(right, kind == ProductKind::matrix);
    if (node != nullptr) weight = dequantized(*node);
  }
  if (!weight) return std::nullopt;
  for (const Value* value : {weight->q, weight->scale, weight->zero})
    if (value != nullptr && !known.has(value)) return std::nullopt;
  return weight;
}

}  // namespace tandem::quant
