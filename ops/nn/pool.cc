// Pools over the last one to three dimensions. Forward and backward are reductions over a window:
// the gradient of an input element gathers from the windows that cover it.
#include <fmt/format.h>

#include <algorithm>

#include "ops/nn/pool.h"

namespace tandem::ops {

using namespace pool;  // NOLINT(google-build-using-namespace): what the pools' files share

namespace {

// --- windows of fixed size
// ------------------------------------------------------------------------

/// The windows of a pool call over `sizes`.
Windows windows_of(const Call& c, const Sizes& sizes) {
  size_t dims = dims_of(c);
  std::vector<int64_t> kernel = positive_list(c, "kernel_size", dims);
  std::vector<int64_t> stride = positive_list(c, "stride", dims, kernel);
  std::vector<int64_t> padding = spatial_list(c, "padding", dims);
  std::vector<int64_t> dilation(dims, 1);
  if (c.op().schema.find("dilation") >= 0) dilation = positive_list(c, "dilation", dims);
  Windows windows;
  for (size_t i = 0; i < dims; ++i) {
    if (padding[i] < 0 || padding[i] > ((kernel[i] - 1) * dilation[i] + 1) / 2)
      c.fail(fmt::format("{} must be in [0, half of {}]", c.describe("padding"),
                         c.describe("kernel_size")));
    Window window{kernel[i], stride[i], padding[i], dilation[i], sizes[sizes.size() - dims + i], 1};
    window.out = window_count(window, c.boolean("ceil_mode"));
    windows.push_back(window);
  }
  return windows;
}

Sizes pooled_sizes(const Call& c) {
  Sizes sizes = c.type("self").sizes;
  size_t dims = dims_of(c);
  need_planes(c, "self");
  for (size_t i = sizes.size() - dims - 1; i < sizes.size(); ++i)
    if (sizes[i] == Expr(0))
      c.fail(c.describe("self") + " may have no empty dimension but the batch");
  Windows windows = windows_of(c, sizes);
  for (size_t i = 0; i < dims; ++i) {
    sizes[sizes.size() - dims + i] = windows[i].out;
    if (sym::known_lt(windows[i].out, 1)) c.fail("the window is larger than " + c.describe("self"));
  }
  return sizes;
}
Sizes kernel_of(const Windows& windows) {
  Sizes sizes;
  for (const Window& window : windows) sizes.push_back(window.kernel);
  return sizes;
}
/// The windows without the places that stand beside the plane wherever the window does: global
/// pools are written as kernels far larger than what they pool. Of symbolic planes, where windows
/// are as they are asked for, only long ones.
Windows touching(Windows windows) {
  constexpr int64_t kLong = 64;
  for (Window& window : windows) {
    const bool is_known = window.in.constant() && window.out.constant();
    if (!is_known && !sym::known_lt(kLong, window.kernel)) continue;
    const Expr before = window.padding - (window.out - 1) * window.stride;  // of the last window
    const Expr first = sym::max(sym::ceil_div(before, window.dilation), 0);
    const Expr end = sym::floor_div(window.in - 1 + window.padding, window.dilation) + 1;
    window.kernel = sym::min(window.kernel, end) - first;
    window.first = first * window.dilation;
  }
  return windows;
}
/// Sizes of the planes that the windows slide over.
Sizes plane_of(const Windows& windows) {
  Sizes sizes;
  for (const Window& window : windows) sizes.push_back(window.in);
  return sizes;
}

// --- max
// ------------------------------------------------------------------------------------------

Definition max_lower(Lowering& lowering, const Call& c) {
  Windows windows = windows_of(c, c.type("self").sizes);
  Windows touched = touching(windows);
  Definition definition = reduction(loop::Combiner::argmax, kernel_of(touched));
  definition.input = [&lowering, c, windows, touched](const Index& out, const Index& r) {
    Read read = read_windows(lowering.scalars(), touched, spatial(c, out), r);
    loop::Val x = lowering.load(c.value("self"), moved(out, read.at), read.inside);
    return candidate(lowering.scalars(), x, position_in(plane_of(windows), read.at), read.inside);
  };
  definition.finish = [&lowering](std::span<const loop::Val> combined, const Index&) {
    return winner(lowering.scalars(), combined);
  };
  return definition;
}

Definition max_backward_lower(Lowering& lowering, const Call& c) {
  Windows windows = windows_of(c, c.type("self").sizes);
  Windows touched = touching(windows);
  Definition definition = reduction(loop::Combiner::sum, covering_counts(touched));
  definition.input = [&lowering, c, windows, touched](const Index& out, const Index& r) {
    loop::ScalarPool& pool = lowering.scalars();
    Read read = windows_covering(pool, touched, spatial(c, out), r);
    Index at = moved(out, read.at);
    loop::Val won = lowering.load(c.value("indices"), at, read.inside);
    Expr here = position_in(plane_of(windows), spatial(c, out));
    loop::Val hit = all_of(pool, read.inside, pool.binary(Opcode::eq, won, pool.index(here)));
    loop::Val grad = lowering.load(c.value("grad_output"), at, hit);
    return std::vector<loop::Val>{pool.select(hit, grad, pool.constant(grad->dtype, 0))};
  };
  return definition;
}

Types max_types(const Call& c) {
  need_number(c, "self");
  Sizes sizes = pooled_sizes(c);
  return {ir::Type::tensor(c.type("self").dtype, sizes), ir::Type::tensor(DType::i64, sizes)};
}
Gradients max_vjp(Builder& b, const Call& c, Grads g) {
  if (!g[0]) return {};
  const char* op = dims_of(c) == 3 ? "aten.max_pool3d_with_indices_backward"
                                   : "aten.max_pool2d_with_indices_backward";
  return {{"self", call(b, op,
                        {g[0], tensor(b, c, "self"), c.arg("kernel_size"), c.arg("stride"),
                         c.arg("padding"), c.arg("dilation"), c.arg("ceil_mode"),
                         Tensor{b, c.result(1)}})}};
}
Types max_backward_types(const Call& c) {
  Sizes result = pooled_sizes(c);
  check_indices(c, result);
  return gradient_types(c, result);
}
/// The values of a pool that also gives indices.
Tensors max_parts(Builder& b, const Call& c) {
  const char* op =
      dims_of(c) == 3 ? "aten.max_pool3d_with_indices" : "aten.max_pool2d_with_indices";
  return {call_many(b, op,
                    {tensor(b, c, "self"), c.arg("kernel_size"), c.arg("stride"), c.arg("padding"),
                     c.arg("dilation"), c.arg("ceil_mode")})[0]};
}

#define TANDEM_MAX_POOL(Name, dims, forwards, backwards)                                       \
  const OpDef Name##Indices{                                                                   \
      .schema = "aten::max_pool" dims "d_with_indices(Tensor self, int[" dims                  \
                "] kernel_size, int[" dims "] stride=[], int[" dims "] padding=0, int[" dims   \
                "] dilation=1, bool ceil_mode=False) -> (Tensor, Tensor)",                     \
      .types = max_types,                                                                      \
      .lower = max_lower,                                                                      \
      .vjp = max_vjp,                                                                          \
      .samples = forwards};                                                                    \
  const OpDef Name##Backward{                                                                  \
      .schema = "aten::max_pool" dims                                                          \
                "d_with_indices_backward(Tensor grad_output, Tensor self, int[" dims           \
                "] kernel_size, int[" dims "] stride, int[" dims "] padding, int[" dims        \
                "] dilation, bool ceil_mode, Tensor indices) -> Tensor",                       \
      .types = max_backward_types,                                                             \
      .lower = max_backward_lower,                                                             \
      .vjp = winners_vjp,                                                                      \
      .samples = backwards};                                                                   \
  const OpDef Name {                                                                           \
    .schema = "aten::max_pool" dims "d(Tensor self, int[" dims "] kernel_size, int[" dims      \
              "] stride=[], int[" dims "] padding=0, int[" dims                                \
              "] dilation=1, bool ceil_mode=False) -> Tensor",                                 \
    .types = [](const Call& c) -> Types { return {max_types(c)[0]}; }, .decompose = max_parts, \
    .samples = forwards                                                                        \
  }

const Samples kMaxSamples = {"$[2, 3, 8, 9], [2, 2]",
                             "$[2, 3, 8, 9], [3, 3], [2, 2], [1, 1]",
                             "$[3, 9, 7], [2, 3], [1, 2], [1, 1], [2, 1]",
                             "$[1, 2, 7, 7], [3, 3], [2, 2], [0, 0], [1, 1], true",
                             "$[2, 3, 8, 9]:special, [3, 3], [2, 2], [1, 1]",
                             "$[1, 2, 7, 7], [900, 40], [900, 3], [1, 20], [1, 1], true",
                             "$[1, 2, 6, 6], [30, 9], [7, 2], [15, 4], [3, 2], true"};
// One window over everything: there every index is one that the forward op could have given.
const Samples kMaxBackwardSamples = {
    "$[2, 3, 1, 1], $[2, 3, 2, 2], [2, 2], [2, 2], [0, 0], [1, 1], false, i64[2, 3, 1, "
    "1]:index(4)",
    "$[3, 1, 1], $[3, 4, 5], [4, 5], [4, 5], [0, 0], [1, 1], false, i64[3, 1, 1]:index(20)"};
const Samples kMax3Samples = {"$[2, 3, 4, 6, 5], [2, 2, 2]",
                              "$[1, 2, 4, 6, 5], [3, 2, 3], [2, 1, 2], [1, 1, 0]",
                              "$[2, 5, 6, 5], 2, 1, 1, [1, 2, 1]",
                              "$[1, 2, 5, 7, 6], [3, 3, 3], [2, 2, 2], [1, 1, 1], [1, 1, 1], true",
                              "$[1, 2, 4, 6, 5]:special, [2, 2, 2]",
                              "$[0, 2, 4, 4, 4], [2, 2, 2]",
                              "$[4, 4, 4], [2, 2, 2]",

                              "$[1, 2, 4, 4, 4], [2, 2, 2], [], [2, 2, 2]"};
const Samples kMax3BackwardSamples = {
    "$[2, 3, 1, 1, 1], $[2, 3, 2, 2, 3], [2, 2, 3], [2, 2, 3], [0, 0, 0], [1, 1, 1], false, "
    "i64[2, 3, 1, 1, 1]:index(12)"};
TANDEM_MAX_POOL(kMax2, "2", kMaxSamples, kMaxBackwardSamples);
TANDEM_MAX_POOL(kMax3, "3", kMax3Samples, kMax3BackwardSamples);
#undef TANDEM_MAX_POOL

// --- average
// --------------------------------------------------------------------------------------

/// Elements that window `o` of one dimension divides by: with the padding, but never past it.
Expr divisor_of(const Window& window, Expr o, bool with_padding) {
  Expr start = window.start(o);
  Expr end = sym::min(start + window.kernel, window.in + window.padding);
  return with_padding ? end - start : sym::min(end, window.in) - sym::max(start, 0);
}

/// x / (elements of the window at `o`, or divisor_override)
Element averaged(const Call& c, const Windows& windows, Element x, std::span<const Expr> o) {
  Expr count = 1;
  for (size_t i = 0; i < windows.size(); ++i)
    count = count * divisor_of(windows[i], o[i], c.boolean("count_include_pad"));
  if (c.has("divisor_override")) count = c.integer("divisor_override");
  if (count == Expr(0)) c.fail("divisor_override must not be 0");
  return x / Element{x.pool(), x.pool().index(count)}.cast(x.dtype());
}

Types avg_types(const Call& c) {
  // As in eager, which averages i64 and no other integer.
  if (c.type("self").dtype != DType::i64) need_float(c, "self");
  return {ir::Type::tensor(c.type("self").dtype, pooled_sizes(c))};
}
Definition avg_lower(Lowering& lowering, const Call& c) {
  Windows windows = windows_of(c, c.type("self").sizes);
  Windows touched = touching(windows);
  Definition definition = reduction(loop::Combiner::sum, kernel_of(touched));
  definition.input = [&lowering, c, touched](const Index& out, const Index& r) {
    Read read = read_windows(lowering.scalars(), touched, spatial(c, out), r);
    return std::vector<loop::Val>{lowering.load(c.value("self"), moved(out, read.at), read.inside)};
  };
  definition.finish = [&lowering, c, windows](std::span<const loop::Val> sums, const Index& out) {
    return std::vector<loop::Val>{
        averaged(c, windows, {lowering.scalars(), sums[0]}, spatial(c, out)).value()};
  };
  return definition;
}
Definition avg_backward_lower(Lowering& lowering, const Call& c) {
  Windows windows = windows_of(c, c.type("self").sizes);
  Windows touched = touching(windows);
  Definition definition = reduction(loop::Combiner::sum, covering_counts(touched));
  definition.input = [&lowering, c, windows, touched](const Index& out, const Index& r) {
    loop::ScalarPool& pool = lowering.scalars();
    Read read = windows_covering(pool, touched, spatial(c, out), r);
    Element grad{pool, lowering.load(c.value("grad_output"), moved(out, read.at), read.inside)};
    loop::Val part = averaged(c, windows, grad, read.at).value();
    return std::vector<loop::Val>{pool.select(read.inside, part, pool.constant(part->dtype, 0))};
  };
  return definition;
}
std::vector<Operand> avg_arguments(const Call& c) {
  return {c.arg("kernel_size"),       c.arg("stride"),
          c.arg("padding"),           c.arg("ceil_mode"),
          c.arg("count_include_pad"), c.arg("divisor_override")};
}
Gradients avg_vjp(Builder& b, const Call& c, Grads g) {
  std::vector<Operand> args = avg_arguments(c);
  args.insert(args.begin(), {g[0], tensor(b, c, "self")});
  const char* op = dims_of(c) == 3 ? "aten.avg_pool3d_backward" : "aten.avg_pool2d_backward";
  return {{"self", call(b, op, args)}};
}
Gradients avg_backward_vjp(Builder& b, const Call& c, Grads g) {
  std::vector<Operand> args = avg_arguments(c);
  args.insert(args.begin(), g[0]);
  return {{"grad_output", call(b, dims_of(c) == 3 ? "aten.avg_pool3d" : "aten.avg_pool2d", args)}};
}

#define TANDEM_AVG_POOL(Name, dims, forwards, backwards)                                        \
  const OpDef Name{.schema = "aten::avg_pool" dims "d(Tensor self, int[" dims                   \
                             "] kernel_size, int[" dims "] stride=[], int[" dims                \
                             "] padding=0, bool ceil_mode=False, bool count_include_pad=True, " \
                             "int? divisor_override=None) -> Tensor",                           \
                   .types = avg_types,                                                          \
                   .lower = avg_lower,                                                          \
                   .vjp = avg_vjp,                                                              \
                   .samples = forwards};                                                        \
  const OpDef Name##Backward {                                                                  \
    .schema = "aten::avg_pool" dims "d_backward(Tensor grad_output, Tensor self, int[" dims     \
              "] kernel_size, int[" dims "] stride, int[" dims                                  \
              "] padding, bool ceil_mode, bool count_include_pad, int? divisor_override) -> "   \
              "Tensor",                                                                         \
    .types = [](const Call& c) { return gradient_types(c, pooled_sizes(c)); },                  \
    .lower = avg_backward_lower, .vjp = avg_backward_vjp, .samples = backwards                  \
  }

const Samples kAvgSamples = {"$[2, 3, 8, 9], [2, 2]",
                             "$[2, 3, 8, 9], [3, 3], [2, 2], [1, 1]",
                             "$[3, 9, 7], [2, 3], [1, 2], [1, 1], false, false",
                             "$[1, 2, 7, 7], [3, 3], [2, 2], [1, 1], true",
                             "$[1, 2, 8, 8], [3, 3], [2, 2], [1, 1], true, false",
                             "$[1, 2, 7, 7], [2, 2], [2, 2], [0, 0], false, true, 3",
                             "$[2, 3, 7, 5], [900, 7], [900, 3], [0, 3], true, false",
                             "$[2, 3, 4, 6], [50, 40], [1, 2], [25, 20]"};
const Samples kAvgBackwardSamples = {
    "$[2, 3, 4, 4], $[2, 3, 8, 8], [2, 2], [2, 2], [0, 0], false, true, none",
    "$[2, 3, 4, 5], $[2, 3, 8, 9], [3, 3], [2, 2], [1, 1], false, false, none"};
const Samples kAvg3Samples = {
    "$[2, 3, 4, 6, 5], [2, 2, 2]", "$[1, 2, 4, 6, 5], [3, 2, 3], [2, 1, 2], [1, 1, 0], true, false",
    "$[2, 5, 6, 5], 2, 1, 1, true", "$[1, 2, 4, 6, 5], [2, 2, 2], [], 0, false, true, -3",
    "$[1, 2, 4, 4, 4], 2, 2, 0, false, true, 0"};
const Samples kAvg3BackwardSamples = {
    "$[1, 2, 2, 3, 2], $[1, 2, 4, 6, 5], [2, 2, 2], [2, 2, 2], [0, 0, 0], false, true, none",
    "$[2, 3, 4, 3], $[2, 5, 6, 5], [3, 3, 3], [2, 2, 2], [1, 1, 1], true, false, none"};
TANDEM_AVG_POOL(kAvg2, "2", kAvgSamples, kAvgBackwardSamples);
TANDEM_AVG_POOL(kAvg3, "3", kAvg3Samples, kAvg3BackwardSamples);
#undef TANDEM_AVG_POOL

// --- one dimension: a plane of one row
// ------------------------------------------------------------

/// `name` of the call as two numbers, of which the first is `unit`.
Operand beside(const Call& c, std::string_view name, int64_t unit) {
  std::vector<int64_t> numbers = c.constants(name);
  if (!numbers.empty()) numbers.insert(numbers.begin(), unit);
  return numbers;
}
Tensors max1_parts(Builder& b, const Call& c) {
  Tensors pooled = call_many(
      b, "aten.max_pool2d_with_indices",
      {unsqueeze(tensor(b, c, "self"), -2), beside(c, "kernel_size", 1), beside(c, "stride", 1),
       beside(c, "padding", 0), beside(c, "dilation", 1), c.arg("ceil_mode")});
  for (Tensor& x : pooled) x = squeeze(x, -2);
  pooled.resize(c.op().schema.results.size());
  return pooled;
}
const Samples kMax1Samples = {"$[2, 3, 8], [2]",          "$[3, 9], [3], [2], [1]",
                              "$[2, 3, 9], 2, 1, 1, 2",   "$[2, 3, 8], [3], [2], [0], [1], true",
                              "$[2, 3, 12]:special, [2]", "$[8], [2]",
                              "$[0, 3, 8], [2]",          "$[2, 3, 8], [2], [0]"};
const OpDef kMax1Indices{
    .schema =
        "aten::max_pool1d_with_indices(Tensor self, int[1] kernel_size, int[1] stride=[], "
        "int[1] padding=[0], int[1] dilation=[1], bool ceil_mode=False) -> (Tensor, Tensor)",
    .types = max_types,
    .decompose = max1_parts,
    .samples = kMax1Samples};
const OpDef kMax1{.schema =
                      "aten::max_pool1d(Tensor self, int[1] kernel_size, int[1] stride=[], int[1] "
                      "padding=[0], int[1] dilation=[1], bool ceil_mode=False) -> Tensor",
                  .types = [](const Call& c) -> Types {
                    need_float(c, "self");
                    return {max_types(c)[0]};
                  },
                  .decompose = max1_parts,
                  .samples = kMax1Samples};
const OpDef kAvg1{
    .schema =
        "aten::avg_pool1d(Tensor self, int[1] kernel_size, int[1] stride=[], int[1] "
        "padding=[0], bool ceil_mode=False, bool count_include_pad=True) -> Tensor",
    .types = avg_types,
    .decompose = [](Builder& b, const Call& c) -> Tensors {
      Tensor pooled = call(
          b, "aten.avg_pool2d",
          {unsqueeze(tensor(b, c, "self"), -2), beside(c, "kernel_size", 1), beside(c, "stride", 1),
           beside(c, "padding", 0), c.arg("ceil_mode"), c.arg("count_include_pad")});
      return {squeeze(pooled, -2)};
    },
    .samples = {"$[2, 3, 8], [2]", "$[3, 9], [3], [2], [1]", "$[3, 9], [3], [2], [1], true",
                "$[2, 3, 9], [3], [2], [1], true, false", "i64[2, 3, 8], [2]",
                "i64[2, 2, 9], [3], [1], [1], true, false"}};

const OpDef* const kOps[] = {
    &kMax2Indices,  &kMax2Backward, &kMax2,         &kMax3Indices, &kMax3Backward, &kMax3, &kAvg2,
    &kAvg2Backward, &kAvg3,         &kAvg3Backward, &kMax1Indices, &kMax1,         &kAvg1};

}  // namespace

Family pool_family() { return kOps; }

}  // namespace tandem::ops
