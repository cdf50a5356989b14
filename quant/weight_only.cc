// A product of floats with a weight of 8 bits that is only read as floats:
//   sum over k of x[m, k] (w[n, k] s[n])  =  s[n] sum over k of x[m, k] w[n, k]
// One token reads each weight once, so memory sets the pace: the weight must stay in bytes up to
// the innermost loop. Left as it is, a constant weight would be made floats once, in setup, and
// four times as much be read at each call. So the chain from the weight to the product, casts,
// transposes and one scale for each result column, becomes aten::_weight_int8pack_mm, whose loops
// convert where they read. A scale behind the product stays there.
#include "quant/quant.h"

#include <fmt/format.h>

#include <optional>

#include "ir/pattern.h"
#include "ir/text.h"
#include "ops/opdef.h"
#include "ops/tensor.h"
#include "passes/known.h"
#include "quant/product_match.h"

namespace tandem::quant {
namespace {

using ir::Node;
using ir::Value;
using ops::ProductKind;
using ops::Scales;
using ops::Tensor;

/// How the right factor of a product is made of bytes.
struct Weight {
  Value* bytes = nullptr;   // i8 or an 8-bit float, [columns, terms], or turned
  bool turned = false;      // [terms, columns]
  Value* scales = nullptr;  // of each column, of one that has more dimensions of 1; null: none
};

/// Floats, one for each row (0) or column (1) of a matrix; fewer dimensions are as if of size 1.
template <size_t dim>
bool is_along(const ir::Arg& arg) {
  Value* const* value = std::get_if<Value*>(&arg);
  if (value == nullptr || !is_float((*value)->type.dtype)) return false;
  ir::Sizes sizes = (*value)->type.sizes;
  if (sizes.size() < 2) sizes.insert(sizes.begin(), 2 - sizes.size(), sym::Expr(1));
  return sizes.size() == 2 && sizes[1 - dim] == sym::Expr(1);
}

template <size_t dim>
const ir::Pattern& scaled_matrix() {
  static const ir::Pattern kProduct =
      ir::call("aten::mul.Tensor", {ir::keep("matrix"), ir::keep("scales").that(is_along<dim>)})
          .commutes();
  return kProduct;
}

/// Takes the scales of a matrix that has one for each result column of the product.
bool take_scales(Weight& weight, Value*& at) {
  const ir::Sizes& sizes = at->type.sizes;
  ir::Match match;
  const ir::Pattern& pattern = weight.turned ? scaled_matrix<1>() : scaled_matrix<0>();
  if (!ir::matches(pattern, *at->node, match)) return false;
  Value* scales = match.value("scales");
  const bool fits = match.value("matrix")->type.sizes == sizes &&
                    sym::known_eq(scales->type.numel(), sizes[weight.turned ? 1 : 0]);
  if (!fits) return false;
  weight.scales = scales;
  at = match.value("matrix");
  return true;
}

/// One step from a value towards the bytes; false where there is none.
bool step(Weight& weight, Value*& at) {
  const Node& node = *at->node;
  const int64_t columns = weight.turned ? 1 : 0;
  const bool has_room = weight.scales == nullptr;
  if (ops::def_of(node).dequantizes == Scales::channel) {
    const ir::Call call = node.call();
    const bool is_symmetric = !call.has("zero_points") || is_known_zero(call.arg("zero_points"));
    if (!has_room || !is_symmetric || call.dim("axis", 2) != columns) return false;
    weight.scales = call.value("scales");
    at = call.value("input");
    return true;
  }
  if (has_room && take_scales(weight, at)) return true;
  const bool casts =
      ops::def_of(node).casts && is_float(at->type.dtype) && !is_float8(at->type.dtype);
  if (!casts && !turns(node)) return false;
  weight.turned ^= !casts;
  at = std::get<Value*>(node.args[0]);
  return true;
}

bool is_byte(DType dtype) { return dtype == DType::i8 || is_float8(dtype); }

/// Bytes that are given, or that are made once, before the first call: a weight that the graph
/// quantizes.
std::optional<Weight> weight_of(Value* factor, bool turned, const passes::KnownValues& known) {
  Weight weight;
  weight.turned = turned;
  Value* at = factor;
  const auto is_given = [&] { return at->node == nullptr || at->node->args.empty(); };
  while (at->type.rank() == 2 && !is_given() && step(weight, at)) {
  }
  if (at == factor || at->type.rank() != 2 || !is_byte(at->type.dtype)) return std::nullopt;
  if (!is_given() && !known.has(at)) return std::nullopt;
  weight.bytes = at;
  return weight;
}

void rewrite(ir::Graph& graph, Node& product, const Weight& weight) {
  ir::Builder builder(graph, &product);
  builder.stamp() = ir::Builder::stamp_of(product);
  const ir::Call call = product.call();
  const ops::ProductFactors names = ops::factors_of(*product.op);
  const ir::Type& type = product.results[0]->type;
  Tensor x{builder, call.value(names.left)};
  const sym::Expr terms = x.size(-1);
  const sym::Expr columns = type.sizes.back();
  if (x.rank() != 2) x = ops::reshape(x, {sym::floor_div(x.type().numel(), terms), terms});
  Tensor bytes{builder, weight.bytes};
  if (weight.turned) bytes = ops::call(builder, "aten.t", {bytes});
  Tensor scales = weight.scales == nullptr
                      ? ops::call(builder, "aten.ones", {ir::Ints{columns}, x.dtype()})
                      : ops::to(ops::reshape({builder, weight.scales}, {columns}), x.dtype());
  Tensor y = ops::call(builder, "aten._weight_int8pack_mm", {x, bytes, scales});
  if (y.sizes() != type.sizes) y = ops::reshape(y, type.sizes);
  if (!names.added.empty() && call.has(names.added))
    y = y + Tensor{builder, call.value(names.added)};
  graph.replace_all_uses(product.results[0], y.value());
  graph.erase(&product);
}

/// So many that sums set the pace: made 16-bit floats once, which holds bytes exactly, the weight
/// is a factor of tile registers or of instructions for bf16, if there are any. A prompt of 512
/// took three times as long by bytes with tile registers (Sapphire Rapids), twice without (Zen 5).
bool has_many_rows(const ir::Type& left, const Target& target) {
  constexpr int64_t kMany = 32;
  const sym::Expr rows = sym::floor_div(left.numel(), left.sizes.back());
  const bool is_faster = target.multiplies_tiles()
                             ? size_of(left.dtype) == 2
                             : left.dtype == DType::bf16 && target.multiplies_bf16();
  return is_faster && sym::known_le(kMany, rows);
}

/// The right factor's bytes, of a product that can read them.
std::optional<Weight> match(const Node& product, const passes::KnownValues& known,
                            const Target& target) {
  const ProductKind kind = ops::def_of(product).multiplies;
  if (kind != ProductKind::linear && kind != ProductKind::matrix) return std::nullopt;
  const ir::Call call = product.call();
  const ops::ProductFactors names = ops::factors_of(*product.op);
  const DType dtype = product.results[0]->type.dtype;
  const bool fits = is_float(dtype) && dtype != DType::f64 && adds_plainly(product) &&
                    call.type(names.left).dtype == dtype && call.type(names.right).rank() == 2 &&
                    !sym::known_eq(call.type(names.left).sizes.back(), 0) &&
                    !has_many_rows(call.type(names.left), target);
  const std::optional<ProductMatch> integers =
      match_product(product, [](const Value*) { return true; });
  if (!fits || (integers && integers->left.dequantize != nullptr)) return std::nullopt;
  return weight_of(call.value(names.right), kind == ProductKind::matrix, known);
}

}  // namespace

void weight_only_products(ir::Graph& graph, passes::GraphCtx& ctx) {
  const passes::KnownValues known(graph);
  for (Node* node = graph.first(); node != nullptr;) {
    Node* next = node->next;
    if (const std::optional<Weight> weight = match(*node, known, ctx.target)) {
      ctx.notes.push_back(
          fmt::format("weight_only_products: {} reads its weight as bytes", ir::to_string(*node)));
      rewrite(graph, *node, *weight);
    }
    node = next;
  }
}

}  // namespace tandem::quant
