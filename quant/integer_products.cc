// A product of dequantized factors is a sum of products of integers, scaled once:
//   sum over k of (a - za) sa (b - zb) sb
//     = sa sb (sum a b - za sum b - zb sum a + K za zb)
// as long as scales and zero points do not depend on k: a scale for each row of a and for each
// column of b is allowed. The sum is exact in 32 bits up to K = 65793, where the float sum rounds
// at every step; then one rounding gives a float, one the scale, one the bias. What follows, an
// activation, a residual, the next quantization, is left to fusion.
//
// Views and casts between a factor and its dequantization commute with it where one scale stands
// for the whole tensor; the integers are viewed instead. The left factor is made unsigned and the
// right one signed (adding 128 to values and zero point), since that is what processors multiply.
// An image's border counts as real 0, which is the zero point. Where only a call tells that, the
// border counts as the integer 0, and b is summed over the taps inside of the image,
//   sum inside of a b - za sum inside of b,
// which differs from place to place: a convolution of ones, made once. Where each channel is by
// itself, taps are packed instead of channels. Of other convolutions of fewer than three channels,
// which would fill a pack to half, the sum is one of plain products: of f32
// where no sum on the way passes 2^24, so that all are exact, else of i32. A product of f32 is one
// instruction with its addition, one of i32 takes three.
#include "quant/quant.h"

#include <fmt/format.h>

#include <ranges>

#include "base/check.h"
#include "ir/text.h"
#include "ops/opdef.h"
#include "ops/tensor.h"
#include "passes/known.h"
#include "quant/product_match.h"
#include "quant/transposed.h"

namespace tandem::quant {
namespace {

using ir::Node;
using ir::Value;
using ops::ProductKind;
using ops::Scales;
using ops::Tensor;

constexpr int64_t kFewestChannels = 3;  // of a pack
constexpr int64_t kPackBytes = 4;
constexpr int64_t kSign = 128;
constexpr int64_t kFarthestZero = 1 << 16;

/// How factors are packed for the processor.
struct Packing {
  int64_t parts = kPackBytes;  // of 32 bits
  bool saturates = false;      // of four, without an instruction that sums them exactly
  int64_t panel = 32;          // columns: two registers, or two tile registers
};

/// An operand of a product as integers; `scale` and `zero` are numbers or tensors.
struct Factor {
  Tensor q;
  ops::Operand scale{1.0};
  ops::Operand zero{0};
  Scales scales = Scales::tensor;
};

/// What a factor less its zero point is at most, without sign.
std::optional<int64_t> greatest(const Factor& factor) {
  const sym::Expr* zero = std::get_if<sym::Expr>(&factor.zero.arg);
  const std::optional<int64_t> known = zero == nullptr ? std::nullopt : zero->constant();
  if (!known || size_of(factor.q.dtype()) != 1 || std::abs(*known) > kFarthestZero)
    return std::nullopt;
  const int64_t least = is_signed(factor.q.dtype()) ? -kSign : 0;
  return std::max(std::abs(least - *known), std::abs(least + 2 * kSign - 1 - *known));
}

/// Integers up to 2^24 are floats, and so is each sum of them on the way there.
bool sums_are_floats(const Factor& left, const Factor& right, std::optional<int64_t> terms) {
  constexpr int64_t kExact = int64_t{1} << 24;
  const std::optional<int64_t> one = greatest(left);
  const std::optional<int64_t> other = greatest(right);
  return terms && one && other && *terms <= kExact && *terms * *one <= kExact &&
         *terms * *one * *other <= kExact;
}

bool is_zero(const ops::Operand& zero) { return zero.arg == ir::Arg(sym::Expr(0)); }

Tensor pack(Tensor x, int64_t parts) {
  return ops::call(x.builder(), "tandem.pack", {x, -2, parts});
}

/// A right factor [.., terms, columns], packed, as [.., packs, columns] of panels
/// [columns / panel, .., packs, panel]: a tile of columns reads one from one end to the other.
Tensor packed_in_panels(Tensor b, const Packing& packing) {
  ir::Sizes sizes = b.sizes();
  const sym::Expr columns = sizes.back();
  sizes.back() = sym::floor_div(columns, packing.panel);
  sizes.emplace_back(packing.panel);
  const int64_t rank = b.rank();
  std::vector<int64_t> there{rank - 1};
  std::vector<int64_t> back;
  for (int64_t dim = 0; dim + 1 < rank; ++dim) {
    there.push_back(dim);
    back.push_back(dim + 1);
  }
  there.push_back(rank);
  back.insert(back.end(), {0, rank});
  const Tensor cut = ops::permute(ops::reshape(b, sizes), there);
  const Tensor rows = ops::permute(pack(cut, packing.parts), back);
  sizes.assign(rows.sizes().begin(), rows.sizes().end() - 1);
  sizes.back() = columns;
  return ops::reshape(rows, sizes);
}

/// A factor that is known before the first call is packed once, in the order in which it is read.
Tensor packed_right(Tensor b, bool is_known, const Packing& packing) {
  const bool is_cut = is_known && sym::known_divisible(b.size(-1), packing.panel) &&
                      b.size(-1) != sym::Expr(packing.panel);
  return is_cut ? packed_in_panels(b, packing) : pack(b, packing.parts);
}

/// [o] as [o, 1, 1 …], over an image.
Tensor by_channel(Tensor each, int64_t rank) {
  ir::Sizes sizes(static_cast<size_t>(rank) - 1, sym::Expr(1));
  sizes[0] = each.sizes()[0];
  return ops::reshape(each, sizes);
}

/// An image of three channels gets a fourth, which meets the zeros that fill up the packed
/// weight: a place is then read as one number.
Tensor whole_pack(Tensor image, const Node& convolution) {
  const sym::Expr missing = sym::Expr(kPackBytes) - image.size(1);
  if (image.size(1) != sym::Expr(kFewestChannels) || convolution.call().constant("groups") != 1)
    return image;
  ir::Ints pad(static_cast<size_t>(2 * (image.rank() - 2)), sym::Expr(0));
  pad.insert(pad.end(), {0, missing});
  return ops::call(image.builder(), "aten.constant_pad_nd", {image, pad, 0});
}

/// Where each channel is by itself, rows of the window are packed; by fours, as what two at a time
/// saves is lost in packing. Of one row (1-d) nothing slides over what is packed.
bool packs_rows(const Node& convolution, const Factor& left, const Factor& right) {
  if (right.q.dtype() != DType::i8 || !is_zero(right.zero)) return false;
  const ir::Sizes& weight = right.q.sizes();
  return std::holds_alternative<sym::Expr>(left.zero.arg) && weight.size() > 3 &&
         weight[1] == sym::Expr(1) && sym::known_eq(weight[0], left.q.size(1)) &&
         sym::known_eq(convolution.call().integer("groups"), weight[0]) && weight[2].constant() &&
         *weight[2].constant() > 1;
}

/// A kernel [c, 1, taps..] of each channel by itself as [taps / 4, taps.., c].
Tensor packed_rows(Tensor kernel) {
  ir::Sizes sizes = kernel.sizes();
  sizes.erase(sizes.begin() + 1);
  std::vector<int64_t> order;
  for (int64_t dim = 1; dim < std::ssize(sizes); ++dim) order.push_back(dim);
  order.push_back(0);
  const Tensor taps = ops::permute(ops::reshape(kernel, sizes), order);
  return ops::call(kernel.builder(), "tandem.pack", {taps, 0, kPackBytes});
}

class Rewriter {
 public:
  Rewriter(ir::Graph& graph, Node& product, const ProductMatch& match, bool knows_right,
           const Packing& packing)
      : graph_(graph),
        product_(product),
        builder_(graph, &product),
        match_(match),
        kind_(match.kind),
        names_(match.names),
        knows_right_(knows_right),
        packing_(packing) {
    builder_.stamp() = ir::Builder::stamp_of(product);
  }

  void run() { rewrite(factor(match_.left), factor(match_.right)); }

 private:
  bool is_convolution() const { return kind_ == ProductKind::convolution; }

  Factor factor(const Source& source) {
    const ir::Call call = source.dequantize->call();
    Factor factor;
    factor.q = {builder_, call.value("input")};
    for (const Value* view : std::views::reverse(source.views)) {
      std::vector<ir::Arg> args = view->node->args;
      args[0] = factor.q.value();
      const Node* again = builder_.call(*view->node->op, std::move(args));
      factor.q = {builder_, again->results[view->index]};
    }
    factor.scales = source.scales();
    const bool whole = factor.scales == Scales::tensor;
    factor.scale = call.arg(whole ? "scale" : "scales");
    const std::string_view zero = whole ? "zero_point" : "zero_points";
    if (call.has(zero) && !is_known_zero(call.arg(zero))) factor.zero = call.arg(zero);
    return factor;
  }

  Tensor tensor(const ops::Operand& operand) { return {builder_, std::get<Value*>(operand.arg)}; }

  // --- signs

  /// The same numbers with 128 more or less, in the other type of 8 bits.
  Factor shifted(Factor factor, DType dtype, int64_t by) {
    Tensor wide = ops::to(factor.q, DType::i16);
    factor.q = ops::to(ops::call(builder_, "aten.add.Scalar", {wide, by}), dtype);
    if (const sym::Expr* zero = std::get_if<sym::Expr>(&factor.zero.arg))
      factor.zero = *zero + by;
    else
      factor.zero = ops::call(builder_, "aten.add.Scalar", {tensor(factor.zero), by});
    return factor;
  }

  // --- the product

  void rewrite(Factor left, Factor right) {
    if (packs() || takes_rows(left, right)) {
      // Halves hold both, and are read two at a time where they lie as such.
      const int64_t parts = packing_.parts;
      if (parts == 2) left.q = ops::to(left.q, DType::i16);
      if (parts == kPackBytes && left.q.dtype() == DType::i8)
        left = shifted(left, DType::u8, kSign);
      if (parts == kPackBytes && right.q.dtype() == DType::u8)
        right = shifted(right, DType::i8, -kSign);
    }
    Tensor sums = is_convolution() ? convolution(left, right) : matrix(left, right);
    Tensor y = ops::to(sums, DType::f32);
    y = scaled(y, by_row(left, left.scale), by_column(right, right.scale));
    const ir::Call call = product_.call();
    if (!names_.added.empty() && call.has(names_.added)) y = y + bias(y.rank());
    const ir::Type& type = product_.results[0]->type;
    if (type.dtype != DType::f32) y = ops::to(y, type.dtype);
    if (y.sizes() != type.sizes) y = ops::reshape(y, type.sizes);
    graph_.replace_all_uses(product_.results[0], y.value());
    graph_.erase(&product_);
  }

  Tensor times(Tensor y, const ops::Operand& scale) {
    if (is_tensor(scale.arg)) return y * ops::to(tensor(scale), DType::f32);
    return ops::call(builder_, "aten.mul.Scalar", {y, scale});
  }

  /// Of columns first: they are constants, and so is what a number makes of them.
  Tensor scaled(Tensor y, const ops::Operand& rows, const ops::Operand& columns) {
    if (!is_tensor(columns.arg)) return times(times(y, columns), rows);
    Tensor each = ops::to(tensor(columns), DType::f32);
    if (is_tensor(rows.arg)) return y * each * ops::to(tensor(rows), DType::f32);
    return y * ops::call(builder_, "aten.mul.Scalar", {each, rows});
  }

  Tensor bias(int64_t rank) {
    Tensor added = ops::to({builder_, product_.call().value(names_.added)}, DType::f32);
    return is_convolution() ? by_channel(added, rank) : added;
  }

  /// In the shape of the sums, which have two dimensions where the product is linear.
  ops::Operand by_row(const Factor& left, const ops::Operand& each) {
    if (left.scales != Scales::token || kind_ != ProductKind::linear || !is_tensor(each.arg))
      return each;
    return ops::reshape(tensor(each), {rows(left.q), 1});
  }
  ops::Operand by_column(const Factor& right, const ops::Operand& each) {
    if (right.scales != Scales::channel || !is_convolution() || !is_tensor(each.arg)) return each;
    return by_channel(tensor(each), right.q.rank());
  }

  static sym::Expr rows(const Tensor& x) {
    return sym::product(ir::Sizes(x.sizes().begin(), x.sizes().end() - 1));
  }

  Tensor packed(Tensor b) const { return packed_right(b, knows_right_, packing_); }

  Tensor matrix(const Factor& left, const Factor& right) {
    const bool linear = kind_ == ProductKind::linear;
    Tensor a = linear ? ops::reshape(left.q, {rows(left.q), left.q.size(-1)}) : left.q;
    Tensor b = linear ? ops::t(right.q) : right.q;
    Tensor y =
        ops::call(builder_, "tandem.packed_mm", {a, packed(b), packing_.parts, packing_.saturates});
    const ops::Operand zero = by_row(left, left.zero);
    if (!is_zero(zero)) y = y - times_zero(zero, summed(b, {-2}));
    if (is_zero(right.zero)) return y;
    Tensor centred = summed(a, {-1});
    if (!is_zero(zero)) centred = less(centred, zero, terms_of(product_));
    return y - times_zero(right.zero, centred);
  }

  bool packs() const {
    if (!is_convolution()) return true;
    const std::optional<int64_t> channels = product_.call().type("weight").sizes[1].constant();
    return channels && *channels >= kFewestChannels;
  }

  bool takes_rows(const Factor& left, const Factor& right) const {
    return is_convolution() && packing_.parts == kPackBytes && packs_rows(product_, left, right);
  }

  Tensor depthwise_convolution(const Factor& left, const Factor& right) {
    const ir::Call call = product_.call();
    const Tensor y =
        ops::call(builder_, "tandem.packed_depthwise_convolution",
                  {left.q, packed_rows(right.q), call.arg("stride"), call.arg("padding"),
                   call.arg("dilation"), right.q.size(2), left.zero, packing_.saturates});
    return is_zero(left.zero) ? y : y - times_zero(left.zero, summed_kernels(right));
  }

  Tensor convolution(const Factor& left, const Factor& right) {
    const ir::Call call = product_.call();
    if (takes_rows(left, right)) return depthwise_convolution(left, right);
    if (!packs()) return plain_convolution(left, right);
    const int64_t rank = right.q.rank();
    std::vector<int64_t> order;  // kernel, channels, results
    for (int64_t dim = 2; dim < rank; ++dim) order.push_back(dim);
    order.insert(order.end(), {1, 0});
    const Tensor weight = packed(ops::permute(right.q, order));
    const sym::Expr* zero = std::get_if<sym::Expr>(&left.zero.arg);
    Tensor y =
        ops::call(builder_, "tandem.packed_convolution",
                  {whole_pack(left.q, product_), weight, call.arg("stride"), call.arg("padding"),
                   call.arg("dilation"), call.arg("groups"), packing_.parts,
                   zero == nullptr ? sym::Expr(0) : *zero, packing_.saturates});
    if (!is_zero(left.zero)) {
      const bool moves = zero == nullptr && has_border(product_);
      y = y - times_zero(left.zero, moves ? summed_inside(left, right) : summed_kernels(right));
    }
    if (is_zero(right.zero)) return y;
    Tensor ones = ops::full(builder_, right.q.sizes(), 1, DType::i32);
    return y - times_zero(by_column(right, right.zero), convolved(centred(left, DType::i32), ones));
  }

  /// Zero points are taken off before, and the border is 0.
  Tensor plain_convolution(const Factor& left, const Factor& right) {
    const std::optional<int64_t> terms = terms_of(product_).constant();
    const DType dtype = sums_are_floats(left, right, terms) ? DType::f32 : DType::i32;
    return convolved(centred(left, dtype), centred(right, dtype));
  }

  Tensor convolved(Tensor left, Tensor right) {
    std::vector<ir::Arg> args = product_.args;
    args[0] = left.value();
    args[1] = right.value();
    args[2] = ir::None{};
    return {builder_, builder_.call(*product_.op, std::move(args))->results[0]};
  }

  Tensor centred(const Factor& factor, DType dtype) {
    Tensor wide = ops::to(factor.q, dtype);
    if (is_zero(factor.zero)) return wide;
    if (!is_tensor(factor.zero.arg))
      return ops::call(builder_, "aten.sub.Scalar", {wide, factor.zero});
    Tensor zero = ops::to(tensor(factor.zero), dtype);
    if (factor.scales != Scales::channel) return wide - zero;
    ir::Sizes sizes(static_cast<size_t>(factor.q.rank()), sym::Expr(1));
    sizes[0] = zero.sizes()[0];
    return wide - ops::reshape(zero, sizes);
  }

  // --- zero points

  Tensor summed(Tensor q, const std::vector<int64_t>& dims) {
    return ops::call(builder_, "aten.sum.dim_IntList", {q, dims, true, DType::i32});
  }

  /// Of each result channel, [1, o, 1 …].
  Tensor summed_kernels(const Factor& right) {
    std::vector<int64_t> dims;
    for (int64_t dim = 1; dim < right.q.rank(); ++dim) dims.push_back(dim);
    Tensor sums = ops::call(builder_, "aten.sum.dim_IntList", {right.q, dims, false, DType::i32});
    return by_channel(sums, right.q.rank());
  }

  /// For each place of the result, over the taps inside of the image: [1, o, places..].
  Tensor summed_inside(const Factor& left, const Factor& right) {
    ir::Sizes image = left.q.sizes();
    image[0] = 1;
    return convolved(ops::full(builder_, image, 1, DType::i32), ops::to(right.q, DType::i32));
  }

  /// In integers; in f32 where the zero point is a float, as that of tokens may be.
  Tensor zero_of(const ops::Operand& zero) {
    const Tensor each = tensor(zero);
    return ops::to(each, is_float(each.dtype()) ? DType::f32 : DType::i32);
  }

  Tensor times_zero(const ops::Operand& zero, Tensor sums) {
    if (!is_tensor(zero.arg)) return ops::call(builder_, "aten.mul.Scalar", {sums, zero});
    return sums * zero_of(zero);
  }

  /// sums - count * zero
  Tensor less(Tensor sums, const ops::Operand& zero, sym::Expr count) {
    if (const sym::Expr* number = std::get_if<sym::Expr>(&zero.arg))
      return ops::call(builder_, "aten.sub.Scalar", {sums, *number * count});
    return sums - ops::call(builder_, "aten.mul.Scalar", {zero_of(zero), count});
  }

  ir::Graph& graph_;
  Node& product_;
  ir::Builder builder_;
  const ProductMatch& match_;
  ProductKind kind_;
  ops::ProductFactors names_;
  bool knows_right_;  // before the first call
  Packing packing_;
};

Packing packing_of(const passes::GraphCtx& ctx) {
  Packing packing;
  packing.panel = 2 * ctx.target.vector_bytes / kPackBytes;
  packing.parts = ctx.multiplies_bytes ? kPackBytes : 2;
  return packing;
}

/// Whether the left factor has seven bits, and so has what stands for its border: a known zero
/// point, else 0. As 2 * 127 * 128 is less than 2^15, 16 bits hold the sum of two products with any
/// signed byte.
bool has_seven_bits(const ProductMatch& match) {
  constexpr int64_t kGreatest = 127;
  const ir::Call call = match.left.dequantize->call();
  const Value* const integers = call.value("input");
  const std::optional<int64_t> most = greatest_of(integers);
  if (integers->type.dtype != DType::u8 || !most || *most > kGreatest) return false;
  const bool is_whole = match.left.scales() == Scales::tensor;
  const ir::Arg& zero = call.arg(is_whole ? "zero_point" : "zero_points");
  const sym::Expr* const number = std::get_if<sym::Expr>(&zero);
  return number == nullptr || sym::known_le(*number, kGreatest);
}

/// Where the processor does not sum products of bytes exactly.
Packing packing_of(const passes::GraphCtx& ctx, const ProductMatch& match) {
  Packing packing = packing_of(ctx);
  packing.saturates = !ctx.multiplies_bytes && has_seven_bits(match);
  if (packing.saturates) packing.parts = kPackBytes;
  return packing;
}

/// What costs half the speed there is said.
void note_widening(passes::GraphCtx& ctx, const Node& product, const Packing& packing) {
  if (packing.parts == kPackBytes) return;
  ctx.notes.push_back(fmt::format(
      "integer_products: {} widens its bytes: this processor sums products of seven bits "
      "by fours (activations from 0 to 127), of eight it does not",
      ir::to_string(product)));
}

void rewrite(ir::Graph& graph, Node& product, const ProductMatch& match, const IsKnown& is_known,
             const Packing& packing) {
  const bool knows_right = is_known(match.right.dequantize->call().value("input"));
  if (match.kind != ProductKind::transposed)
    return Rewriter(graph, product, match, knows_right, packing).run();
  Node* convolution = make_ordinary(graph, product, match);
  const std::optional<ProductMatch> ordinary =
      match_product(*convolution, [](const Value*) { return true; });
  TD_CHECK(ordinary && ordinary->reason.empty());
  Rewriter(graph, *convolution, *ordinary, knows_right, packing).run();
}

/// A product whose factors are bytes already, of a known number of terms.
bool is_product_of_bytes(const Node& node) {
  if (ops::def_of(node).multiplies != ProductKind::matrix) return false;
  const ir::Type& left = node.call().type(ops::factors_of(*node.op).left);
  if (size_of(left.dtype) != 1 || node.results[0]->type.dtype != DType::i32) return false;
  const std::optional<int64_t> terms = terms_of(node).constant();
  return terms && *terms > 0;
}

/// With (a + 128) - 128 for a signed left factor; sums wrap, so that is exact whatever they are:
///   sum a b = sum (a + 128) b - 128 sum b
void pack_product(ir::Graph& graph, Node& product, const IsKnown& is_known,
                  const Packing& packing) {
  ir::Builder builder(graph, &product);
  builder.stamp() = ir::Builder::stamp_of(product);
  const ops::ProductFactors names = ops::factors_of(*product.op);
  Tensor a{builder, product.call().value(names.left)};
  const Tensor b{builder, product.call().value(names.right)};
  const bool shifts = packing.parts == kPackBytes && a.dtype() == DType::i8;
  if (packing.parts == 2 || shifts) a = ops::to(a, DType::i16);
  if (shifts) a = ops::to(ops::call(builder, "aten.add.Scalar", {a, kSign}), DType::u8);
  const Tensor packed = packed_right(b, is_known(b.value()), packing);
  Tensor y = ops::call(builder, "tandem.packed_mm", {a, packed, packing.parts});
  if (shifts) {
    const std::vector<int64_t> terms{-2};
    const Tensor sums = ops::call(builder, "aten.sum.dim_IntList", {b, terms, true, DType::i32});
    y = y - ops::call(builder, "aten.mul.Scalar", {sums, kSign});
  }
  graph.replace_all_uses(product.results[0], y.value());
  graph.erase(&product);
}

}  // namespace

void integer_products(ir::Graph& graph, passes::GraphCtx& ctx) {
  const passes::KnownValues known(graph);
  const auto is_known = [&](const Value* value) { return known.has(value); };
  for (Node* node = graph.first(); node != nullptr;) {
    Node* next = node->next;
    if (is_product_of_bytes(*node)) {
      ctx.products.push_back({ir::to_string(*node), ""});
      pack_product(graph, *node, is_known, packing_of(ctx));
    } else if (const std::optional<ProductMatch> match = match_product(*node, is_known)) {
      ctx.products.push_back({ir::to_string(*node), match->reason});
      if (match->reason.empty()) {
        const Packing packing = packing_of(ctx, *match);
        note_widening(ctx, *node, packing);
        rewrite(graph, *node, *match, is_known, packing);
      } else {
        ctx.notes.push_back(fmt::format("integer_products: {} stays in floats: {}",
                                        ir::to_string(*node), match->reason));
      }
    }
    node = next;
  }
}

}  // namespace tandem::quant
