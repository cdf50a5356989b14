// One token reads each weight once, so memory sets the pace, and a weight of 4 bits must stay so up
// to the innermost loop. There it would become a float by four instructions for each register of
// lanes, more than memory waits for. Products of integers take one for four times as many terms,
// and a left factor of floats is integers, too, if enough of them are taken. Within a group of
// terms (the scale of the weight changes from group to group), with m the largest |x|:
//   x = m / B (d0 + d1 / 2B + d2 / (2B)^2) + e,   |d| <= B,   |e| <= m / (2B (2B)^2) and rounding
// where B = 127 fills a byte: d0 is x B / m, rounded, and each next one what rounding has left.
// Left overs are exact floats; x B / m rounds three times. Three bytes leave |e| <= 2^-24 m, what
// one rounding of the group's largest term may be. 16-bit floats take two: 2^-16 m, where they
// round results by 2^-9 or 2^-12. Without products of bytes digits are halves (B = 32767): two, and
// one.
//   sum over k of x w = sum over g, i of m / (B (2B)^i) (s (sum d q - z sum d) + o sum d)
// with w = (q - z) s + o in group g; sums over d are exact. An infinite or NaN x gives NaN.
// A left factor that is dequantized from bytes has one digit, and no rounding at all; what its zero
// point takes off is a number for each row of the weight, known before the first call:
//   sum over k of (a - za) sa w = sa (sum over g of s (sum a q - z sum a) + o sum a - za sum of w)
// Both sums are as large as that of |a w|, of which f32 loses 2^-24 a group: a step of a is more.
// Of several rows the weight is made floats, once for all of them (a product's own loops).
// Given integers that are not in their range would be wrong ones: their groups become NaN, as do
// those whose zero point is no byte.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "ir/text.h"
#include "ops/opdef.h"
#include "ops/product/group_sums.h"
#include "ops/tensor.h"
#include "quant/narrow_weight.h"
#include "quant/product_match.h"
#include "quant/quant.h"

namespace tandem::quant {
namespace {

using ir::Node;
using ir::Value;
using ops::NarrowFactor;
using ops::ProductKind;
using ops::Tensor;
using Dims = std::vector<int64_t>;

constexpr double kNotANumber = std::numeric_limits<double>::quiet_NaN();
constexpr double kLeast = 1e-30;  // m: what is less counts as that, for m / B to have an inverse

Tensor round(Tensor x) { return ops::call(x.builder(), "aten.round", {x}); }

/// The left factor, one row: integers [digits, terms], and what they stand for.
struct Digits {
  Tensor d;
  Tensor scale;                     // f32, broadcast to [1, digits, groups, 1]
  std::optional<Tensor> zero = {};  // i32 [1, 1, 1, 1]
};

class Rewriter {
 public:
  Rewriter(ir::Graph& graph, Node& product, const NarrowWeight& weight, int64_t parts)
      : graph_(graph),
        product_(product),
        builder_(graph, &product),
        weight_(weight),
        parts_(parts) {
    builder_.stamp() = ir::Builder::stamp_of(product);
  }

  void run(Value* left, const Node* dequantize) {
    q_ = nibbles();
    const Digits x = dequantize == nullptr ? digits_of(left) : digits_of(*dequantize);
    const int64_t count = *x.d.sizes()[0].constant();
    const Tensor panels = ops::call(builder_, "tandem.pack_terms", {q_, weight_.bits, parts_});
    Tensor sums = ops::call(builder_, "tandem.group_sums",
                            {x.d, panels, weight_.group, weight_.bits, parts_});
    sums = ops::reshape(sums, {1, count, groups(), weight_.rows});
    const Tensor own = summed(ops::reshape(x.d, {1, count, groups(), weight_.group}), 3);
    Tensor y = ops::sum(scaled(centred(sums, own), own) * x.scale, {1, 2});
    if (x.zero) y = y - ops::reshape(ops::to(*x.zero, DType::f32) * x.scale, {1, 1}) * row_sums();
    const bool is_even = weight_.kind == NarrowFactor::bytes;  // one scale for all groups
    finish(is_even ? y * Tensor{builder_, weight_.scale} : y);
  }

 private:
  int64_t groups() const { return weight_.terms / weight_.group; }

  Tensor summed(Tensor q, int64_t dim) {
    return ops::call(builder_, "aten.sum.dim_IntList", {q, Dims{dim}, true, DType::i32});
  }

  // --- the weight; all of it is made once

  /// u8 [n, k] from 0 on.
  Tensor nibbles() {
    const Tensor q{builder_, weight_.q};
    if (weight_.kind == NarrowFactor::nibbles)
      return ops::call(builder_, "tandem.unpack_int4", {q});
    if (weight_.least == 0) return q;
    const Tensor wide = ops::to(q, DType::i16);
    return ops::to(ops::call(builder_, "aten.sub.Scalar", {wide, weight_.least}), DType::u8);
  }

  /// A number for each row and group, beside the panels that the sums read: [groups, n], a view.
  Tensor in_panels(Tensor each) {
    const Tensor panels = ops::call(builder_, "tandem.row_panels", {each});
    return ops::reshape(ops::permute(panels, {1, 0, 2}), {groups(), weight_.rows});
  }

  /// Of PyTorch's pairs, for each row and group: 0 the scales, 1 the offsets.
  Tensor pairs(int64_t which) { return ops::t(ops::select({builder_, weight_.scale}, 2, which)); }

  Tensor parameter(int64_t which) { return in_panels(pairs(which)); }

  Tensor scales() {
    if (weight_.kind == NarrowFactor::nibbles) return parameter(0);
    Tensor scale = ops::reshape({builder_, weight_.scale}, {weight_.rows, groups()});
    if (weight_.zero != nullptr) scale = known_to_fit(scale, from_least(weight_.zero, DType::i64));
    if (weight_.bits == 8) return in_panels(scale);
    const Tensor blocks = ops::reshape(q_, {weight_.rows, groups(), weight_.group});
    const Tensor fits = ops::compare("lt", ops::amax(blocks, {2}), 16.0);
    return in_panels(ops::where(fits, scale, kNotANumber));
  }

  /// A zero point of more than a byte may leave what sums hold: its group is no number, either.
  Tensor known_to_fit(Tensor scale, Tensor zero) {
    scale = ops::where(ops::compare("lt", zero, 256.0), scale, kNotANumber);
    return ops::where(ops::compare("ge", zero, 0.0), scale, kNotANumber);
  }

  Tensor from_least(Value* value, DType dtype) {
    const Tensor zero = ops::reshape({builder_, value}, {weight_.rows, groups()});
    return ops::call(builder_, "aten.sub.Scalar", {ops::to(zero, dtype), weight_.least});
  }

  /// What each term is less where all groups have the same.
  int64_t known_zero() const {
    constexpr int64_t kMiddle = 8;
    return weight_.kind == NarrowFactor::nibbles ? kMiddle : -weight_.least;
  }

  /// What each term of a group is less: a number, or one for each row and group.
  ops::Operand zeros() {
    if (weight_.kind == NarrowFactor::nibbles || weight_.zero == nullptr) return known_zero();
    const bool is_byte = size_of(weight_.zero->type.dtype) == 1;
    return in_panels(from_least(weight_.zero, is_byte ? DType::i16 : DType::i32));
  }

  Tensor times(Tensor sums, const ops::Operand& zero) {
    if (is_tensor(zero.arg)) return sums * Tensor{builder_, std::get<Value*>(zero.arg)};
    return ops::call(builder_, "aten.mul.Scalar", {sums, zero});
  }

  /// sum over k of the weight, f32 [1, n]; of one scale for all groups (bytes), of q - z.
  Tensor row_sums() {
    const Tensor blocks = ops::reshape(q_, {weight_.rows, groups(), weight_.group});
    Tensor sums = ops::reshape(summed(blocks, 2), {weight_.rows, groups()});
    if (weight_.zero != nullptr && weight_.kind == NarrowFactor::none)
      sums = sums - ops::call(builder_, "aten.mul.Scalar",
                              {from_least(weight_.zero, DType::i32), weight_.group});
    else
      sums = ops::call(builder_, "aten.sub.Scalar", {sums, known_zero() * weight_.group});
    Tensor each = ops::to(sums, DType::f32);
    if (weight_.kind == NarrowFactor::none)
      each = each * ops::reshape({builder_, weight_.scale}, {weight_.rows, groups()});
    if (weight_.kind == NarrowFactor::nibbles)
      each = each * pairs(0) + pairs(1) * static_cast<double>(weight_.group);
    return ops::reshape(ops::sum(each, {1}), {1, weight_.rows});
  }

  // --- the sums

  Tensor centred(Tensor sums, Tensor own) {
    const ops::Operand zero = zeros();
    return zero.arg == ir::Arg(sym::Expr(0)) ? sums : sums - times(own, zero);
  }

  Tensor scaled(Tensor sums, Tensor own) {
    Tensor y = ops::to(sums, DType::f32);
    if (weight_.kind == NarrowFactor::bytes) return y;
    y = y * scales();
    return weight_.kind == NarrowFactor::nibbles ? y + ops::to(own, DType::f32) * parameter(1) : y;
  }

  // --- the left factor

  DType digit() const { return parts_ == 4 ? DType::i8 : DType::i16; }

  Digits digits_of(Value* left) {
    const bool is_whole = left->type.dtype == DType::f32;
    const int64_t count = parts_ == 4 ? (is_whole ? 3 : 2) : (is_whole ? 2 : 1);
    const double most = parts_ == 4 ? 127 : 32767;
    const Tensor x = ops::reshape(ops::to({builder_, left}, DType::f32), {groups(), weight_.group});
    const Tensor largest = ops::amax(ops::abs(x), {1}, true);
    const Tensor limit = ops::call(builder_, "aten.clamp_min", {largest, kLeast});
    Tensor rest = x * (most / limit);
    ops::Tensors digits;
    ops::Tensors weights;
    double weight = 1 / most;
    for (int64_t i = 0; i < count; ++i) {
      const Tensor whole = round(rest);
      digits.push_back(ops::reshape(ops::to(whole, digit()), {1, weight_.terms}));
      weights.push_back(ops::full(builder_, {1, 1}, weight, DType::f32));
      if (i + 1 == count) break;
      rest = (rest - whole) * (2 * most);
      weight /= 2 * most;
    }
    // An infinity less itself is NaN, and so is all that it scales.
    const Tensor of_group = ops::reshape(limit + (limit - limit), {1, 1, groups(), 1});
    const Tensor of_digit = ops::reshape(ops::cat(weights, 0), {1, count, 1, 1});
    return {ops::cat(digits, 0), of_group * of_digit};
  }

  Digits digits_of(const Node& dequantize) {
    const ir::Call call = dequantize.call();
    const auto number = [&](std::string_view one, std::string_view many, DType dtype) {
      const std::string_view name = call.op().schema.find(one) >= 0 ? one : many;
      const ir::Arg& arg = call.arg(name);
      if (is_tensor(arg))
        return ops::reshape(ops::to({builder_, std::get<Value*>(arg)}, dtype), {1, 1, 1, 1});
      const sym::Expr* whole = std::get_if<sym::Expr>(&arg);
      const double value = whole != nullptr ? static_cast<double>(whole->constant().value_or(0))
                                            : std::get<double>(arg);
      return ops::full(builder_, {1, 1, 1, 1}, value, dtype);
    };
    Tensor q{builder_, call.value("input")};
    const bool shifts = q.dtype() == DType::u8 && parts_ == 4;
    if (shifts) q = ops::call(builder_, "aten.sub.Scalar", {ops::to(q, DType::i16), 128});
    Digits made{ops::to(ops::reshape(q, {1, weight_.terms}), digit()),
                number("scale", "scales", DType::f32)};
    const std::string_view name =
        call.op().schema.find("zero_point") >= 0 ? "zero_point" : "zero_points";
    const bool has_zero =
        call.has(name) && !is_known_zero(call.arg(name)) && call.arg(name) != ir::Arg(sym::Expr(0));
    if (!has_zero && !shifts) return made;
    Tensor zero = has_zero ? number("zero_point", "zero_points", DType::i32)
                           : ops::full(builder_, {1, 1, 1, 1}, 0, DType::i32);
    if (shifts) zero = ops::call(builder_, "aten.sub.Scalar", {zero, 128});
    made.zero = zero;
    return made;
  }

  // --- what the product adds

  void finish(Tensor y) {
    const ir::Call call = product_.call();
    const ir::Type& type = product_.results[0]->type;
    const std::string_view added = weight_.kind != NarrowFactor::none
                                       ? std::string_view()
                                       : ops::factors_of(*product_.op).added;
    if (!added.empty() && call.has(added)) {
      const Tensor bias{builder_, call.value(added)};
      y = y + ops::to(bias, DType::f32);
    }
    y = ops::reshape(ops::to(y, type.dtype), type.sizes);
    graph_.replace_all_uses(product_.results[0], y.value());
    graph_.erase(&product_);
  }

  ir::Graph& graph_;
  Node& product_;
  ir::Builder builder_;
  const NarrowWeight& weight_;
  int64_t parts_;
  Tensor q_;
};

/// One row of so many elements: views from one to another keep their order.
bool is_row(const Value* value, int64_t terms) {
  return std::ranges::any_of(value->type.sizes,
                             [&](const sym::Expr& size) { return size == sym::Expr(terms); }) &&
         value->type.numel() == sym::Expr(terms);
}

/// The dequantization of bytes that share a scale, behind casts and views; null where the factor is
/// no such.
const Node* bytes_behind(const Value* left, int64_t terms) {
  const Value* at = left;
  while (at->node != nullptr && ops::def_of(*at->node).dequantizes == ops::Scales::none) {
    const bool casts = ops::def_of(*at->node).casts && is_float(at->type.dtype);
    if ((!casts && !at->node->op->is_view()) || !is_row(at, terms)) return nullptr;
    at = std::get<Value*>(at->node->args[0]);
  }
  if (at->node == nullptr || !is_row(at, terms)) return nullptr;
  const ir::Call call = at->node->call();
  if (size_of(call.type("input").dtype) != 1) return nullptr;
  for (std::string_view name : {"scale", "scales", "zero_point", "zero_points"}) {
    if (call.op().schema.find(name) < 0 || !call.has(name) || !is_tensor(call.arg(name))) continue;
    const ir::Type& type = call.type(name);
    const bool is_zero = name.starts_with("zero");
    if (type.numel() != sym::Expr(1) || (is_zero && !is_int(type.dtype))) return nullptr;
  }
  return at->node;
}

/// Of one row.
Value* left_of(const Node& product, const NarrowWeight& weight) {
  const ir::Call call = product.call();
  Value* left =
      call.value(weight.kind != NarrowFactor::none ? "self" : ops::factors_of(*product.op).left);
  const DType result = product.results[0]->type.dtype;
  const bool fits = is_float(result) && result != DType::f64 && left->type.dtype != DType::f64 &&
                    is_float(left->type.dtype) && is_row(left, weight.terms);
  return fits ? left : nullptr;
}

}  // namespace

void one_row_products(ir::Graph& graph, passes::GraphCtx& ctx) {
  const passes::KnownValues known(graph);
  const int64_t parts = ctx.multiplies_bytes ? 4 : 2;
  for (Node* node = graph.first(); node != nullptr;) {
    Node* next = node->next;
    const std::optional<NarrowWeight> weight = narrow_weight_of(*node, known);
    Value* left = weight ? left_of(*node, *weight) : nullptr;
    if (left != nullptr) {
      const Node* dequantize = bytes_behind(left, weight->terms);
      ctx.notes.push_back(fmt::format("one_row_products: {} reads its weight as {} bits, {}",
                                      ir::to_string(*node), weight->bits,
                                      dequantize == nullptr ? "x as digits" : "x as bytes"));
      if (dequantize != nullptr) ctx.products.push_back({ir::to_string(*node), ""});
      Rewriter(graph, *node, *weight, parts).run(left, dequantize);
    }
    node = next;
  }
}

}  // namespace tandem::quant
