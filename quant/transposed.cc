// A transposed convolution adds products to results that several windows share; an integer product
// wants each result to be one sum. Of one dimension, with stride s, padding p and kernel K,
//   y[o] = sum over i, k with i s + k = o + p of x[i] w[k]
// With o + p = a s + r, 0 <= r < s, the taps are k = j s + r for j = 0, 1 … T - 1, T = ceil(K / s):
//   y[a s + r - p] = sum over j of x[a - j] w[j s + r]
// So result r of every s is an ordinary convolution of T taps of its own, and all of them together
// are one convolution with s times the channels, whose results are then put side by side: nothing
// is multiplied in vain but what fills K up to T s (nothing where s divides K, as it mostly does).
// The weight is rearranged as integers, once where it is constant; taps behind its end are the
// real number 0. Several dimensions do so each by itself.
#include "quant/transposed.h"

#include <algorithm>

#include "ops/tensor.h"

namespace tandem::quant {
namespace {

using ir::Node;
using ops::Tensor;
using sym::Expr;

/// One dimension of the image.
struct Stretch {
  int64_t stride, padding, taps, kernel;
  bool is_wide;  // results reach beyond the last tap: one more step of the image at each end
  int64_t border() const { return is_wide ? taps : taps - 1; }
  int64_t first() const { return padding + (is_wide ? stride : 0); }
};

std::vector<Stretch> stretches_of(const ir::Call& call) {
  const ir::Sizes& weight = call.type("weight").sizes;
  const ir::Sizes& image = call.type("grad_output").sizes;
  const ir::Sizes& result = call.ints("input_size");
  const std::vector<int64_t> stride = call.constants("stride"), padding = call.constants("padding");
  std::vector<Stretch> dims;
  for (size_t i = 0; i < stride.size(); ++i) {
    const int64_t kernel = *weight[i + 2].constant();
    const int64_t taps = (kernel + stride[i] - 1) / stride[i];
    // Places of the image behind which `taps` steps reach every result.
    const Expr reached = (image[i + 2] + taps - 1) * stride[i];
    const bool fits = sym::known_le(result[i + 2] + padding[i], reached);
    dims.push_back({stride[i], padding[i], taps, kernel, !fits});
  }
  return dims;
}

/// The weight [c, o / g, kernel..] and what lies along its results, as those of a convolution.
class Weight {
 public:
  Weight(ir::Builder& builder, const ir::Call& product, const std::vector<Stretch>& dims)
      : builder_(builder), dims_(dims), groups_(product.integer("groups")) {
    const ir::Sizes& sizes = product.type("weight").sizes;
    terms_ = sym::floor_div(sizes[0], groups_);
    results_ = sizes[1];
  }

  Expr phases() const {
    Expr product = 1;
    for (const Stretch& dim : dims_) product = product * dim.stride;
    return product;
  }
  Expr rows() const { return groups_ * results_ * phases(); }

  /// [g o/g s.., c/g, T..]
  Tensor rearranged(Tensor q) const {
    q = filled(q);
    ir::Sizes apart{groups_, terms_, results_}, together{rows(), terms_};
    std::vector<int64_t> order{0, 2}, flipped;
    const int64_t count = static_cast<int64_t>(dims_.size());
    for (int64_t i = 0; i < count; ++i) order.push_back(4 + 2 * i);
    order.push_back(1);
    for (int64_t i = 0; i < count; ++i) {
      const Stretch& dim = dims_[static_cast<size_t>(i)];
      apart.insert(apart.end(), {Expr(dim.taps), Expr(dim.stride)});
      together.push_back(dim.taps);
      order.push_back(3 + 2 * i);
      flipped.push_back(2 + i);
    }
    q = ops::reshape(ops::permute(ops::reshape(q, apart), order), together);
    return ops::call(builder_, "aten.flip", {q, flipped});
  }

  /// One number for each of [o / g], for each of the results.
  Tensor repeated(Tensor each) const {
    each = ops::reshape(each, {Expr(1), results_, Expr(1)});
    return ops::reshape(ops::expand(each, {groups_, results_, phases()}), {rows()});
  }

 private:
  Tensor filled(Tensor q) const {
    ir::Ints pad;  // pairs, the last dimension first
    bool is_whole = true;
    for (size_t i = dims_.size(); i-- > 0;) {
      const int64_t missing = dims_[i].taps * dims_[i].stride - dims_[i].kernel;
      pad.insert(pad.end(), {Expr(0), Expr(missing)});
      is_whole &= missing == 0;
    }
    return is_whole ? q : ops::call(builder_, "aten.constant_pad_nd", {q, pad, 0});
  }

  ir::Builder& builder_;
  const std::vector<Stretch>& dims_;
  Expr groups_, terms_, results_;
};

/// The right factor, dequantized from the rearranged integers.
Tensor right_factor(ir::Builder& builder, const Node& dequantize, const Weight& weight) {
  const ir::Call call = dequantize.call();
  const ir::Schema& schema = dequantize.op->schema;
  std::vector<ir::Arg> args = dequantize.args;
  args[0] = weight.rearranged({builder, call.value("input")}).value();
  if (ops::def_of(dequantize).dequantizes == ops::Scales::channel) {
    for (std::string_view name : {"scales", "zero_points"})
      if (call.has(name))
        args[static_cast<size_t>(schema.find(name))] =
            weight.repeated({builder, call.value(name)}).value();
    args[static_cast<size_t>(schema.find("axis"))] = Expr(0);
  }
  return {builder, builder.call(*dequantize.op, std::move(args))->results[0]};
}

/// [b, o s.., a..] as [b, o, (a s)..], without what padding took off.
Tensor side_by_side(Tensor y, const ir::Sizes& wanted, const std::vector<Stretch>& dims) {
  const int64_t count = static_cast<int64_t>(dims.size());
  ir::Sizes apart{wanted[0], wanted[1]}, joined{wanted[0], wanted[1]};
  std::vector<int64_t> order{0, 1};
  for (const Stretch& dim : dims) apart.push_back(dim.stride);
  for (int64_t i = 0; i < count; ++i) {
    apart.push_back(y.size(2 + i));
    joined.push_back(y.size(2 + i) * dims[static_cast<size_t>(i)].stride);
    order.insert(order.end(), {2 + count + i, 2 + i});
  }
  y = ops::reshape(ops::permute(ops::reshape(y, apart), order), joined);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t first = dims[static_cast<size_t>(i)].first();
    y = ops::slice(y, 2 + i, first, wanted[static_cast<size_t>(2 + i)] + first);
  }
  return y;
}

bool has_zero_points(const Node& dequantize) {
  const ir::Call call = dequantize.call();
  if (ops::def_of(dequantize).dequantizes == ops::Scales::tensor)
    return call.arg("zero_point") != ir::Arg(Expr(0));
  return call.has("zero_points") && !is_known_zero(call.arg("zero_points"));
}

}  // namespace

std::string why_not_ordinary(const Node& product, const ProductMatch& match) {
  const ir::Call call = product.call();
  for (int64_t dilation : call.constants("dilation"))
    if (dilation != 1) return "it is transposed and dilated";
  const ir::Sizes& weight = call.type("weight").sizes;
  const bool is_known = std::all_of(weight.begin(), weight.end(),
                                    [](Expr size) { return size.constant().has_value(); });
  if (!is_known || !call.integer("groups").constant())
    return "it is transposed, and the sizes of its weight are not known";
  if (!match.right.views.empty()) return "its right factor is viewed after dequantization";
  return has_zero_points(*match.right.dequantize)
             ? "it is transposed, and its weight has zero points"
             : "";
}

Node* make_ordinary(ir::Graph& graph, Node& product, const ProductMatch& match) {
  ir::Builder builder(graph, &product);
  builder.stamp() = ir::Builder::stamp_of(product);
  const ir::Call call = product.call();
  const std::vector<Stretch> dims = stretches_of(call);
  const Weight weight(builder, call, dims);
  Tensor right = right_factor(builder, *match.right.dequantize, weight);
  right = ops::to(right, call.type("weight").dtype);
  std::vector<int64_t> border;
  for (const Stretch& dim : dims) border.push_back(dim.border());
  const std::vector<int64_t> ones(dims.size(), 1), zeros(dims.size(), 0);
  Tensor image{builder, call.value("grad_output")};
  Tensor y =
      ops::call(builder, "aten.convolution",
                {image, right, Tensor(), ones, border, ones, false, zeros, call.arg("groups")});
  Node* convolution = y.value()->node;
  y = side_by_side(y, product.results[0]->type.sizes, dims);
  graph.replace_all_uses(product.results[0], y.value());
  graph.erase(&product);
  return convolution;
}

}  // namespace tandem::quant
