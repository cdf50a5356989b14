// Convolutions of one to three dimensions and their gradients.
//   y[n, o, p] = b[o] + sum over c, k of x[n, c, p * stride - padding + k * dilation] w[o, c, k]
// Each gradient is a reduction of its own with a library route; convolution_backward is the three
// together.
#include <fmt/format.h>

#include <algorithm>

#include "base/diagnostic.h"
#include "ops/product/convolution.h"

namespace tandem::ops {

using convolution::padding_list;

namespace {

/// Sizes of input [n, c, in..] and weight [o, c / groups, kernel..], and how the window moves.
struct Shape {
  Sizes input, weight;
  Expr groups = 1;
  Windows windows;
  Expr in_channels() const { return weight[1]; }                           // of one group
  Expr out_channels() const { return sym::floor_div(weight[0], groups); }  // of one group
};

void check_groups(const Call& c, Expr groups) {
  if (sym::known_lt(groups, 1)) c.fail(c.describe("groups") + " must be positive");
  if (!sym::known_divisible(c.type("weight").sizes[0], groups))
    c.fail(fmt::format("groups {} do not divide the channels of {}", sym::to_string(groups),
                       c.describe("weight")));
}

Shape shape_of(const Call& c, const Sizes& input, const Sizes& weight,
               const std::vector<int64_t>& padding) {
  Shape shape{input, weight, c.integer("groups"), {}};
  size_t dims = weight.size() - 2;
  std::vector<int64_t> stride = positive_list(c, "stride", dims);
  std::vector<int64_t> dilation = positive_list(c, "dilation", dims);
  for (size_t i = 0; i < dims; ++i) {
    Window window{weight[2 + i], stride[i], padding[i], dilation[i], input[2 + i], 1};
    window.out = window_count(window);
    shape.windows.push_back(window);
  }
  return shape;
}
Shape shape_of(const Call& c, const Sizes& input, const Sizes& weight) {
  return shape_of(c, input, weight, padding_list(c, weight.size() - 2));
}

Sizes output_sizes(const Shape& shape) {
  Sizes sizes{shape.input[0], shape.weight[0]};
  for (const Window& window : shape.windows) sizes.push_back(window.out);
  return sizes;
}

void check_channels(const Call& c, const Shape& shape) {
  check_groups(c, shape.groups);
  Expr channels = shape.in_channels() * shape.groups;
  if (channels != shape.input[1] && !sym::known_eq(channels, shape.input[1]))
    c.fail(fmt::format("{} and {} with groups {}: {} and {} channels differ", c.describe("input"),
                       c.describe("weight"), sym::to_string(shape.groups),
                       sym::to_string(shape.input[1]), sym::to_string(channels)));
  if (shape.weight[0] == Expr(0) || shape.in_channels() == Expr(0))
    c.fail(c.describe("weight") + " has no channels");
  for (const Window& window : shape.windows)
    if (window.kernel == Expr(0)) c.fail(c.describe("weight") + " has an empty kernel");
  for (const Window& window : shape.windows)
    if (sym::known_lt(window.out, 1))
      c.fail(fmt::format("the kernel of {} is larger than {} with its padding",
                         c.describe("weight"), c.describe("input")));
}

void check_ranks(const Call& c) {
  int64_t rank = c.type("weight").rank();
  if (rank < 3 || rank > 5 || c.type("input").rank() != rank)
    c.fail(fmt::format("{} and {} must have the same 3 to 5 dimensions", c.describe("input"),
                       c.describe("weight")));
}

/// Sizes of the result of a call that may be transposed.
Sizes result_sizes(const Call& c) {
  check_ranks(c);
  const Sizes& input = c.type("input").sizes;
  size_t dims = input.size() - 2;
  Sizes sizes = c.boolean("transposed")
                    ? convolution::transposed_sizes(c, input)
                    : convolution::forward_sizes(c, input, padding_list(c, dims));
  for (Expr extra : c.ints("output_padding"))
    if (extra.range().lo < 0) c.fail(c.describe("output_padding") + " must not be negative");
  convolution::check_operands(c, sizes[1]);
  return sizes;
}

// --- definitions
// ----------------------------------------------------------------------------------

struct Product {
  Read read;
  Index a, b;  // where the two factors are read
};

/// The sum of products of loads of `a` (under the mask) and `b`.
Definition sum_of_products(Lowering& lowering, const ir::Value* a, const ir::Value* b,
                           Sizes reduce_sizes,
                           const std::function<Product(const Index&, const Index&)>& at) {
  Definition definition;
  definition.kind = Definition::Kind::reduce;
  definition.combiner = loop::Combiner::dot;
  definition.reduce_sizes = std::move(reduce_sizes);
  DType dtype = compute_type(a->type.dtype);
  definition.input = [&lowering, a, b, dtype, at](const Index& out, const Index& r) {
    loop::ScalarPool& pool = lowering.scalars();
    Product product = at(out, r);
    loop::Val x = pool.cast(lowering.load(a, product.a, product.read.inside), dtype);
    loop::Val y = pool.cast(lowering.load(b, product.b), dtype);
    // Padding counts as nothing at all, even against an infinite weight.
    return std::vector<loop::Val>{x, pool.select(product.read.inside, y, pool.constant(dtype, 0))};
  };
  return definition;
}

std::span<const Expr> spatial(const Index& index, size_t skip) {
  return std::span(index).subspan(skip);
}

Index joined(std::initializer_list<Expr> front, std::span<const Expr> rest) {
  Index index(front);
  index.insert(index.end(), rest.begin(), rest.end());
  return index;
}

/// Group of a channel of all groups.
Expr group_of(Expr channel, Expr groups, Expr each) {
  return groups == Expr(1) ? Expr(0) : sym::floor_div(channel, each);
}

bool is_depthwise(const Shape& shape) {
  return shape.in_channels() == Expr(1) && shape.out_channels() == Expr(1);
}

Definition convolution_lower(Lowering& lowering, const Call& c) {
  Shape shape = shape_of(c, c.type("input").sizes, c.type("weight").sizes);
  Sizes sizes(shape.weight.begin() + 1, shape.weight.end());
  Definition definition = sum_of_products(
      lowering, c.value("input"), c.value("weight"), sizes,
      [&lowering, shape](const Index& out, const Index& r) {
        Product product;
        product.read =
            read_windows(lowering.scalars(), shape.windows, spatial(out, 2), spatial(r, 1));
        Expr group = group_of(out[1], shape.groups, shape.out_channels());
        product.a = joined({out[0], group * shape.in_channels() + r[0]}, product.read.at);
        product.b = joined({out[1], r[0]}, spatial(r, 1));
        return product;
      });
  if (is_depthwise(shape)) definition.windows_over = c.value("input");
  if (!c.has("bias")) return definition;
  definition.finish = [&lowering, c](std::span<const loop::Val> sums, const Index& out) {
    loop::ScalarPool& pool = lowering.scalars();
    loop::Val bias = pool.cast(lowering.load(c.value("bias"), {out[1]}), sums[0]->dtype);
    return std::vector<loop::Val>{pool.binary(Opcode::add, sums[0], bias)};
  };
  return definition;
}

// dx[n, c, q] = sum over o, k of dy[n, o, p] w[o, c, k] with q = p * stride - padding + k *
// dilation
Definition data_lower(Lowering& lowering, const Call& c) {
  Shape shape = shape_of(c, c.ints("input_size"), c.type("weight").sizes);
  Sizes sizes(shape.weight.begin() + 1, shape.weight.end());
  sizes[0] = shape.out_channels();
  Definition definition = sum_of_products(
      lowering, c.value("grad_output"), c.value("weight"), sizes,
      [&lowering, shape](const Index& out, const Index& r) {
        Product product;
        product.read =
            windows_over(lowering.scalars(), shape.windows, spatial(out, 2), spatial(r, 1));
        Expr group = group_of(out[1], shape.groups, shape.in_channels());
        Expr channel = group * shape.out_channels() + r[0];
        product.a = joined({out[0], channel}, product.read.at);
        product.b = joined({channel, out[1] - group * shape.in_channels()}, spatial(r, 1));
        return product;
      });
  if (is_depthwise(shape)) definition.windows_over = c.value("grad_output");
  return definition;
}

// dw[o, c, k] = sum over n, p of x[n, c, p * stride - padding + k * dilation] dy[n, o, p]
Definition weights_lower(Lowering& lowering, const Call& c) {
  Shape shape = shape_of(c, c.type("input").sizes, c.ints("weight_size"));
  const Sizes& grad = c.type("grad_output").sizes;
  Sizes sizes(grad.begin() + 1, grad.end());
  sizes[0] = grad[0];
  return sum_of_products(
      lowering, c.value("input"), c.value("grad_output"), sizes,
      [&lowering, shape](const Index& out, const Index& r) {
        Product product;
        product.read =
            read_windows(lowering.scalars(), shape.windows, spatial(r, 1), spatial(out, 2));
        Expr group = group_of(out[0], shape.groups, shape.out_channels());
        product.a = joined({r[0], group * shape.in_channels() + out[1]}, product.read.at);
        product.b = joined({r[0], out[0]}, spatial(r, 1));
        return product;
      });
}

// --- routes
// ---------------------------------------------------------------------------------------

std::string library_declines(const Call& c, const Target&) {
  DType dtype = c.result()->type.dtype;
  if (dtype != DType::f32 && dtype != DType::bf16)
    return fmt::format("the library has no {} convolution", name_of(dtype));
  size_t dims = c.result()->type.sizes.size() - 2;
  for (std::string_view name : {"stride", "padding", "dilation"})
    if (c.ints(name).size() != dims)
      return fmt::format("{} is one number for all dimensions", name);
  if (!c.integer("groups").constant()) return "groups are not known";
  bool empty = c.result()->type.numel() == Expr(0);
  for (const ir::Arg& arg :
       {c.arg(c.op().schema.params[0].name), c.arg(c.op().schema.params[1].name)})
    empty |= std::get<ir::Value*>(arg)->type.numel() == Expr(0);
  return empty ? "there are no elements" : "";
}

// --- gradients
// ------------------------------------------------------------------------------------

Tensor tensor(Builder& b, const Call& c, std::string_view name) { return {b, c.value(name)}; }

/// A list with a number for each dimension, as routes take it.
Operand listed(const Call& c, std::string_view name, Tensor x) {
  return spatial_list(c, name, static_cast<size_t>(x.rank()) - 2);
}
Tensor backward_data(Builder& b, const Call& c, Tensor grad, Tensor weight, const Sizes& input) {
  return call(b, "tandem.convolution_backward_data",
              {grad, weight, input, listed(c, "stride", grad), listed(c, "padding", grad),
               listed(c, "dilation", grad), c.arg("groups")});
}
Tensor backward_weights(Builder& b, const Call& c, Tensor grad, Tensor input, const Sizes& weight) {
  return call(b, "tandem.convolution_backward_weights",
              {grad, input, weight, listed(c, "stride", grad), listed(c, "padding", grad),
               listed(c, "dilation", grad), c.arg("groups")});
}
Tensor convolve(Builder& b, const Call& c, Tensor input, Tensor weight) {
  Sizes zeros(static_cast<size_t>(weight.rank()) - 2, Expr(0));
  return call(b, "aten.convolution",
              {input, weight, Tensor(), listed(c, "stride", input), listed(c, "padding", input),
               listed(c, "dilation", input), false, zeros, c.arg("groups")});
}
/// Gradient of the bias: everything but channels summed.
Tensor bias_grad(Tensor grad) {
  std::vector<int64_t> dims{0};
  for (int64_t i = 2; i < grad.rank(); ++i) dims.push_back(i);
  return sum(grad, dims);
}

Gradients convolution_vjp(Builder& b, const Call& c, Grads g) {
  Gradients grads{
      {"input", backward_data(b, c, g[0], tensor(b, c, "weight"), c.type("input").sizes)},
      {"weight", backward_weights(b, c, g[0], tensor(b, c, "input"), c.type("weight").sizes)}};
  if (c.has("bias")) grads.push_back({"bias", to(bias_grad(g[0]), c.type("bias").dtype)});
  return grads;
}

// --- transposed
// -----------------------------------------------------------------------------------
// The transpose of a convolution in its input is the data gradient, of an "input" with the sizes of
// the result; its own gradients are a convolution and a weight gradient with input and output
// exchanged.

/// The input with as many zeros behind as output_padding passes whole strides: what the result has
/// beyond the last window then is no special case.
Tensor lengthened(Builder& b, const Call& c) {
  Tensor input = tensor(b, c, "input");
  size_t dims = input.sizes().size() - 2;
  std::vector<int64_t> stride = positive_list(c, "stride", dims);
  std::vector<int64_t> extra = convolution::extra_list(c, dims);
  ir::Ints pad;  // pairs, last dimension first
  bool any = false;
  for (size_t i = dims; i-- > 0;) {
    pad.insert(pad.end(), {Expr(0), Expr(extra[i] / stride[i])});
    any |= extra[i] >= stride[i];
  }
  return any ? call(b, "aten.constant_pad_nd", {input, pad, 0}) : input;
}

Tensors transposed_parts(Builder& b, const Call& c) {
  const ir::Type& result = c.result()->type;
  Tensor y = backward_data(b, c, lengthened(b, c), tensor(b, c, "weight"), result.sizes);
  if (!c.has("bias")) return {y};
  Sizes row(result.sizes.size(), Expr(1));
  row[1] = result.sizes[1];
  return {y + reshape(tensor(b, c, "bias"), row)};
}

Tensors transposed_backward(Builder& b, const Call& c) {
  Tensor grad = tensor(b, c, "grad_output");
  Tensors results(3);
  if (wants_output(c, 0)) {
    results[0] = convolve(b, c, grad, tensor(b, c, "weight"));
    const Sizes& sizes = c.type("input").sizes;
    for (int64_t i = 2; i < grad.rank(); ++i)
      if (results[0].size(i) != sizes[i]) results[0] = slice(results[0], i, 0, sizes[i]);
  }
  if (wants_output(c, 1))
    results[1] = backward_weights(b, c, lengthened(b, c), grad, c.type("weight").sizes);
  if (wants_output(c, 2)) results[2] = bias_grad(grad);
  return results;
}

constexpr int64_t kMostTaps = 64;  // of a window that is written out

/// Whether windows of few taps slide by whole steps of the dilation over known sizes.
bool has_plain_windows(const Call& c) {
  const Sizes& weight = c.type("weight").sizes;
  Shape shape = shape_of(c, c.type("input").sizes, weight);
  std::optional<int64_t> taps = sym::product(Sizes(weight.begin() + 2, weight.end())).constant();
  return taps && *taps <= kMostTaps &&
         std::all_of(shape.windows.begin(), shape.windows.end(), [](const Window& window) {
           return window.stride % window.dilation == 0 && window.in.constant() &&
                  (window.kernel == Expr(1) || window.out != Expr(1));
         });
}

bool is_window_of_channels(const Call& c) {
  const Sizes& weight = c.type("weight").sizes;
  return c.type("input").dtype == DType::f32 && weight[0].constant() && weight[1] == Expr(1) &&
         c.integer("groups") != Expr(1) && weight[0] == c.integer("groups") && has_plain_windows(c);
}

/// Dimensions `dim` and `dim + 1` become one.
Tensor merged(Tensor x, size_t dim) {
  Sizes sizes = x.sizes();
  sizes[dim] = sizes[dim] * sizes[dim + 1];
  sizes.erase(sizes.begin() + static_cast<int64_t>(dim) + 1);
  return reshape(x, sizes);
}

Tensor convolve_rows(const BatchedCall& c, Tensor images, Tensor weight, Tensor bias, Expr groups) {
  return call(c.builder, "aten.convolution",
              {images, weight, bias, c.row.arg("stride"), c.row.arg("padding"),
               c.row.arg("dilation"), false, c.row.arg("output_padding"), groups});
}

/// Rows of one weight are more images; rows with a weight each are groups, side by side in the
/// channels.
Tensors batch_convolution(const BatchedCall& c) {
  if (c.row.boolean("transposed")) return {};
  const Tensor input = c.with_rows("input");
  const Tensor weight = c.given("weight");
  const Expr groups = c.row.integer("groups");
  Sizes sizes = c.sizes(c.row.result()->type.sizes);
  if (!c.has_rows("weight") && !c.has_rows("bias")) {
    const Tensor bias = c.row.has("bias") ? c.given("bias") : Tensor();
    return {reshape(convolve_rows(c, merged(input, 0), weight, bias, groups), sizes)};
  }
  const Tensor images = merged(transpose(input, 0, 1), 1);
  const Tensor weights = merged(c.with_rows("weight"), 0);
  const Tensor bias = c.row.has("bias") ? merged(c.with_rows("bias"), 0) : Tensor();
  std::swap(sizes[0], sizes[1]);
  const Tensor all = convolve_rows(c, images, weights, bias, groups * c.rows);
  return {transpose(reshape(all, sizes), 0, 1)};
}

/// Four convolutions, and a bias for each part.
ComplexResults convolved_parts(const ComplexCall& c) {
  const ComplexParts x = c.given("input");
  const ComplexParts w = c.given("weight");
  const auto convolve = [&](Tensor input, Tensor weight, Tensor bias) {
    std::vector<ir::Arg> args = c.whole.args();
    args[0] = input.value();
    args[1] = weight.value();
    args[2] = bias ? ir::Arg(bias.value()) : ir::Arg(ir::None{});
    return Tensor(c.builder, c.builder.call(c.whole.op(), std::move(args))->results[0]);
  };
  const ComplexParts bias = c.whole.has("bias") ? c.given("bias") : ComplexParts{};
  return {{convolve(x.re, w.re, bias.re) - convolve(x.im, w.im, {}),
           convolve(x.re, w.im, bias.im) + convolve(x.im, w.re, {})}};
}

const OpDef kConvolution{
    .schema =
        "aten::convolution(Tensor input, Tensor weight, Tensor? bias, SymInt[] stride, SymInt[] "
        "padding, "
        "SymInt[] dilation, bool transposed, SymInt[] output_padding, SymInt groups) -> Tensor",
    .types = [](const Call& c) -> Types {
      return {ir::Type::tensor(c.type("input").dtype, result_sizes(c))};
    },
    .lower = convolution_lower,
    .decompose = transposed_parts,
    .composite = [](const Call& c) { return c.boolean("transposed"); },
    .vjp = convolution_vjp,
    .fast = {{RouteKind::convolution, library_declines, is_window_of_channels}},
    .samples = {"$[2, 3, 7, 8], $[4, 3, 3, 3], $[4], [1, 1], [1, 1], [1, 1], false, [0, 0], 1",
                "$[2, 4, 9, 8], $[6, 2, 3, 2], none, [2, 1], [1, 0], [1, 2], false, [0, 0], 2",
                "$[2, 3, 11], $[4, 3, 3], $[4], [2], [1], [1], false, [0], 1",
                "$[1, 2, 5, 6, 4], $[3, 2, 2, 3, 2], none, [1, 2, 1], [0, 1, 1], [1, 1, 1], false, "
                "[0, 0, 0], 1",
                "$[2, 4, 6, 6], $[4, 1, 3, 3], $[4], [1, 1], [1, 1], [1, 1], false, [0, 0], 4",
                "$[2, 3, 11], $[4, 3, 3], none, [2], [1], [1], false, [0], 1",
                "$[2, 4, 5, 6], $[4, 3, 3, 2], $[6], [2, 1], [1, 0], [1, 2], true, [1, 0], 2",
                "$[2, 3, 5], $[3, 4, 3], $[4], [3], [0], [1], true, [2], 1",
                "$[1, 2, 3, 4, 2], $[2, 3, 2, 3, 2], none, [1, 2, 1], [0, 1, 1], [1, 1, 1], true, "
                "[0, 0, 0], 1",
                "$[2, 3, 5], $[3, 4, 3], $[4], [1], [1], [3], true, [2], 1",
                "$[2, 3, 5], $[3, 4, 3], $[4], [2], [0], [1], true, [2], 1",
                "$[2, 3, 5], $[4, 3, 3], $[3], [2], [0], [1], true, [0], 1",
                "$[0, 3, 5], $[3, 4, 3], $[4], [2], [0], [1], true, [0], 1"},
    .multiplies = ProductKind::convolution,
    .batch = batch_convolution,
    .complex = {convolved_parts}};

/// The gradients are linear in both operands, so theirs are convolutions again.
/// What is read lies in grad_output, and in a weight whose groups divide it.
void check_backward(const Call& c, const Sizes& input, const Sizes& weight) {
  const Sizes& grad = c.type("grad_output").sizes;
  if (weight.size() < 3 || input.size() != weight.size() || grad.size() != weight.size())
    c.fail(fmt::format("sizes {}, {} and {} have not the same 3 or more dimensions",
                       ir::to_string(input), ir::to_string(weight), ir::to_string(grad)));
  const Expr groups = c.integer("groups");
  const bool has_groups = !sym::known_lt(groups, 1) && sym::known_divisible(weight[0], groups) &&
                          !sym::known_ne(weight[1] * groups, input[1]);
  if (!has_groups)
    c.fail(fmt::format("groups {} do not fit weight {} and input {}", sym::to_string(groups),
                       ir::to_string(weight), ir::to_string(input)));
  const Sizes sizes = output_sizes(shape_of(c, input, weight));
  for (size_t i = 0; i < sizes.size(); ++i)
    if (sym::known_ne(grad[i], sizes[i]))
      c.fail(fmt::format("{} must have sizes {}", c.describe("grad_output"), ir::to_string(sizes)));
}

const OpDef kBackwardData{
    .schema =
        "tandem::convolution_backward_data(Tensor grad_output, Tensor weight, SymInt[] input_size, "
        "SymInt[] "
        "stride, SymInt[] padding, SymInt[] dilation, SymInt groups) -> Tensor",
    .types = [](const Call& c) -> Types {
      need_same_dtype(c, {"grad_output", "weight"});
      check_backward(c, c.ints("input_size"), c.type("weight").sizes);
      return {ir::Type::tensor(c.type("grad_output").dtype, c.ints("input_size"))};
    },
    .lower = data_lower,
    .vjp = [](Builder& b, const Call& c, Grads g) -> Gradients {
      return {{"grad_output", convolve(b, c, g[0], tensor(b, c, "weight"))},
              {"weight",
               backward_weights(b, c, tensor(b, c, "grad_output"), g[0], c.type("weight").sizes)}};
    },
    .fast = {{RouteKind::convolution_backward_data, library_declines}},
    .samples = {"$[2, 4, 7, 8], $[4, 3, 3, 3], [2, 3, 7, 8], [1, 1], [1, 1], [1, 1], 1"},
    .multiplies = ProductKind::transposed};
const OpDef kBackwardWeights{
    .schema =
        "tandem::convolution_backward_weights(Tensor grad_output, Tensor input, SymInt[] "
        "weight_size, SymInt[] "
        "stride, SymInt[] padding, SymInt[] dilation, SymInt groups) -> Tensor",
    .types = [](const Call& c) -> Types {
      need_same_dtype(c, {"grad_output", "input"});
      check_backward(c, c.type("input").sizes, c.ints("weight_size"));
      return {ir::Type::tensor(c.type("input").dtype, c.ints("weight_size"))};
    },
    .lower = weights_lower,
    .vjp = [](Builder& b, const Call& c, Grads g) -> Gradients {
      return {
          {"grad_output", convolve(b, c, tensor(b, c, "input"), g[0])},
          {"input", backward_data(b, c, tensor(b, c, "grad_output"), g[0], c.type("input").sizes)}};
    },
    .fast = {{RouteKind::convolution_backward_weights, library_declines}},
    .samples = {"$[2, 4, 7, 8], $[2, 3, 7, 8], [4, 3, 3, 3], [1, 1], [1, 1], [1, 1], 1"}};

Tensors forward_backward(Builder& b, const Call& c) {
  Tensor grad = tensor(b, c, "grad_output");
  Tensors results(3);
  if (wants_output(c, 0))
    results[0] = backward_data(b, c, grad, tensor(b, c, "weight"), c.type("input").sizes);
  if (wants_output(c, 1))
    results[1] = backward_weights(b, c, grad, tensor(b, c, "input"), c.type("weight").sizes);
  if (wants_output(c, 2)) results[2] = bias_grad(grad);
  return results;
}

const OpDef kConvolutionBackward{
    .schema =
        "aten::convolution_backward(Tensor grad_output, Tensor input, Tensor weight, SymInt[]? "
        "bias_sizes, "
        "SymInt[] stride, SymInt[] padding, SymInt[] dilation, bool transposed, SymInt[] "
        "output_padding, SymInt "
        "groups, bool[3] output_mask) -> (Tensor, Tensor, Tensor)",
    .types = [](const Call& c) -> Types {
      Sizes sizes = result_sizes(c);
      need_float(c, "input");
      const ir::Type& input = c.type("input");
      const ir::Type& weight = c.type("weight");
      if (!same_sizes(c.type("grad_output").sizes, sizes))
        c.fail(
            fmt::format("{} must have sizes {}", c.describe("grad_output"), ir::to_string(sizes)));
      return {ir::Type::tensor(input.dtype, input.sizes),
              ir::Type::tensor(weight.dtype, weight.sizes),
              ir::Type::tensor(input.dtype, {sizes[1]})};
    },
    .decompose = [](Builder& b, const Call& c) -> Tensors {
      Tensors grads = c.boolean("transposed") ? transposed_backward(b, c) : forward_backward(b, c);
      // What was not asked for is undefined in eager.
      for (size_t i = 0; i < 3; ++i)
        if (!grads[i]) grads[i] = full(b, c.result(i)->type.sizes, 0, c.result(i)->type.dtype);
      return grads;
    },
    .samples = {"$[1, 2, 4, 5], $[1, 2, 4, 5], $[2, 2, 3, 3], [2], [1, 1], [1, 1], [1, 1], false, "
                "[0, 0], 1, [true, "
                "true, true]",
                "$[2, 6, 5, 4], $[2, 4, 9, 8], $[6, 2, 3, 2], [6], [2, 2], [1, 0], [1, 2], false, "
                "[0, 0], 2, [true, true, true]",
                "$[2, 6, 10, 8], $[2, 4, 5, 6], $[4, 3, 3, 3], [6], [2, 1], [1, 0], [1, 1], true, "
                "[1, 0], 2, [true, true, true]",
                "$[2, 4, 15], $[2, 3, 5], $[3, 4, 3], none, [3], [0], [1], true, [0], 1, [true, "
                "true, false]",
                "$[1, 4, 11], $[1, 3, 5], $[3, 4, 3], [4], [1], [1], [3], true, [2], 1, [true, "
                "true, true]"}};

const OpDef* const kOps[] = {&kConvolution, &kBackwardData, &kBackwardWeights,
                             &kConvolutionBackward};

}  // namespace

namespace convolution {

std::vector<int64_t> padding_list(const Call& c, size_t dims) {
  std::vector<int64_t> padding = spatial_list(c, "padding", dims);
  for (int64_t pad : padding)
    if (pad < 0) c.fail(c.describe("padding") + " must not be negative");
  return padding;
}

std::vector<int64_t> extra_list(const Call& c, size_t dims) {
  std::vector<int64_t> extra = spatial_list(c, "output_padding", dims);
  std::vector<int64_t> stride = positive_list(c, "stride", dims);
  std::vector<int64_t> dilation = positive_list(c, "dilation", dims);
  for (size_t i = 0; i < dims; ++i)
    if (extra[i] < 0 || extra[i] >= std::max(stride[i], dilation[i]))
      c.fail(c.describe("output_padding") + " must be smaller than the stride or the dilation");
  return extra;
}

void check_operands(const Call& c, Expr channels) {
  need_number(c, "input");
  need_same_dtype(c, {"input", "weight", "bias", "grad_output"});
  if (!c.has("bias")) return;
  const ir::Type& bias = c.type("bias");
  if (bias.rank() != 1 || (bias.sizes[0] != channels && !sym::known_eq(bias.sizes[0], channels)))
    c.fail(fmt::format("{} does not fit {}", c.describe("bias"), c.describe("weight")));
}

Sizes forward_sizes(const Call& c, const Sizes& input, const std::vector<int64_t>& padding) {
  Shape shape = shape_of(c, input, c.type("weight").sizes, padding);
  check_channels(c, shape);
  return output_sizes(shape);
}

// out = (in - 1) * stride - 2 * padding + (kernel - 1) * dilation + 1 + output_padding
Sizes transposed_sizes(const Call& c, const Sizes& input) {
  const Sizes& weight = c.type("weight").sizes;
  size_t dims = weight.size() - 2;
  Expr groups = c.integer("groups");
  if (c.type("input").dtype != DType::i64) need_float(c, "input");  // as eager has kernels
  check_groups(c, groups);
  if (weight[0] != input[1] && !sym::known_eq(weight[0], input[1]))
    c.fail(fmt::format("{} and {}: channels {} and {} differ", c.describe("input"),
                       c.describe("weight"), sym::to_string(input[1]), sym::to_string(weight[0])));
  if (std::ranges::find(weight, Expr(0)) != weight.end())
    c.fail(c.describe("weight") + " is empty");
  Sizes sizes{input[0], weight[1] * groups};
  std::vector<int64_t> stride = positive_list(c, "stride", dims);
  std::vector<int64_t> dilation = positive_list(c, "dilation", dims);
  std::vector<int64_t> padding = padding_list(c, dims);
  std::vector<int64_t> extra = extra_list(c, dims);
  for (size_t i = 0; i < dims; ++i)
    sizes.push_back((input[2 + i] - 1) * stride[i] - 2 * padding[i] +
                    (weight[2 + i] - 1) * dilation[i] + 1 + extra[i]);
  for (Expr size : std::span(sizes).subspan(1))
    if (sym::known_lt(size, 1))
      c.fail(fmt::format("{} and {} give no output", c.describe("input"), c.describe("weight")));
  return sizes;
}

}  // namespace convolution

Family convolution_family() { return kOps; }

}  // namespace tandem::ops
