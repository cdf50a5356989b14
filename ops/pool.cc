// Pools over the last two dimensions. Forward and backward are reductions over a window: the
// gradient of an input element gathers from the windows that cover it.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "ops/families.h"
#include "ops/window.h"

namespace tandem::ops {
namespace {

Tensor tensor(Builder& b, const Call& c, std::string_view name) { return {b, c.value(name)}; }

std::span<const Expr> last_two(const Index& index) { return std::span(index).last(2); }
/// `index` with its last two positions replaced.
Index moved(Index index, const Index& at) {
  index[index.size() - 2] = at[0];
  index[index.size() - 1] = at[1];
  return index;
}

Definition reduction(loop::Combiner combiner, Sizes reduce_sizes) {
  Definition definition;
  definition.kind = Definition::Kind::reduce;
  definition.combiner = combiner;
  definition.reduce_sizes = std::move(reduce_sizes);
  return definition;
}

// --- windows of fixed size
// ------------------------------------------------------------------------

/// The windows of a pool call over `sizes`.
Windows windows_of(const Call& c, const Sizes& sizes) {
  std::vector<int64_t> kernel = positive_list(c, "kernel_size", 2);
  std::vector<int64_t> stride = positive_list(c, "stride", 2, kernel);
  std::vector<int64_t> padding = spatial_list(c, "padding", 2);
  std::vector<int64_t> dilation(2, 1);
  if (c.op().schema.find("dilation") >= 0) dilation = positive_list(c, "dilation", 2);
  Windows windows;
  for (size_t i = 0; i < 2; ++i) {
    if (padding[i] < 0 || padding[i] > kernel[i] / 2)
      c.fail(fmt::format("{} must be in [0, half of {}]", c.describe("padding"),
                         c.describe("kernel_size")));
    Window window{kernel[i], stride[i], padding[i], dilation[i], sizes[sizes.size() - 2 + i], 1};
    window.out = window_count(window, c.boolean("ceil_mode"));
    windows.push_back(window);
  }
  return windows;
}

Sizes pooled_sizes(const Call& c) {
  Sizes sizes = c.type("self").sizes;
  need_rank(c, "self", 3, 4);
  for (size_t i = sizes.size() - 3; i < sizes.size(); ++i)
    if (sizes[i] == Expr(0))
      c.fail(c.describe("self") + " may have no empty dimension but the batch");
  Windows windows = windows_of(c, sizes);
  for (size_t i = 0; i < 2; ++i) {
    sizes[sizes.size() - 2 + i] = windows[i].out;
    if (sym::known_lt(windows[i].out, 1)) c.fail("the window is larger than " + c.describe("self"));
  }
  return sizes;
}
/// grad_output of a pool, against the sizes that the pool's result has.
Types gradient_types(const Call& c, const Sizes& result) {
  need_float(c, "self");
  need_same_dtype(c, {"grad_output", "self"});
  if (!same_sizes(c.type("grad_output").sizes, result))
    c.fail(fmt::format("{} must have sizes {}", c.describe("grad_output"), ir::to_string(result)));
  return {ir::Type::tensor(c.type("self").dtype, c.type("self").sizes)};
}
Sizes kernel_of(const Windows& windows) { return {windows[0].kernel, windows[1].kernel}; }

// --- max
// ------------------------------------------------------------------------------------------

Definition max_lower(Lowering& lowering, const Call& c) {
  Windows windows = windows_of(c, c.type("self").sizes);
  Definition definition = reduction(loop::Combiner::argmax, kernel_of(windows));
  DType dtype = compute_type(c.type("self").dtype);
  // The index counts positions of one plane; places in the padding never win, not even against
  // -inf. Of several NaN the last one wins, as in eager: they carry -1 - position, of which the
  // combiner keeps the lowest.
  definition.input = [&lowering, c, windows, dtype](const Index& out, const Index& r) {
    loop::ScalarPool& pool = lowering.scalars();
    Read read = read_windows(pool, windows, last_two(out), r);
    loop::Val x = lowering.load(c.value("self"), moved(out, read.at), read.inside);
    Expr plane = read.at[0] * windows[1].in + read.at[1];
    loop::Val position = pool.index(plane);
    if (is_float(dtype))
      position = pool.select(pool.binary(Opcode::ne, x, x), pool.index(Expr(-1) - plane), position);
    return std::vector<loop::Val>{
        pool.select(read.inside, x, loop::identity_of(pool, loop::Combiner::max, dtype)),
        pool.select(read.inside, position,
                    pool.integer(DType::i64, std::numeric_limits<int64_t>::max()))};
  };
  definition.finish = [&lowering](std::span<const loop::Val> winner, const Index&) {
    Element at{lowering.scalars(), winner[1]};
    return std::vector<loop::Val>{winner[0], choose(at < 0.0, -1.0 - at, at).value()};
  };
  return definition;
}

Definition max_backward_lower(Lowering& lowering, const Call& c) {
  Windows windows = windows_of(c, c.type("self").sizes);
  Definition definition = reduction(loop::Combiner::sum, kernel_of(windows));
  definition.input = [&lowering, c, windows](const Index& out, const Index& r) {
    loop::ScalarPool& pool = lowering.scalars();
    Read read = windows_over(pool, windows, last_two(out), r);
    Index at = moved(out, read.at);
    loop::Val winner = lowering.load(c.value("indices"), at, read.inside);
    Expr here = out[out.size() - 2] * windows[1].in + out[out.size() - 1];
    loop::Val hit = all_of(pool, read.inside, pool.binary(Opcode::eq, winner, pool.index(here)));
    loop::Val grad = lowering.load(c.value("grad_output"), at, hit);
    return std::vector<loop::Val>{pool.select(hit, grad, pool.constant(grad->dtype, 0))};
  };
  return definition;
}

const Samples kMaxSamples = {"$[2, 3, 8, 9], [2, 2]", "$[2, 3, 8, 9], [3, 3], [2, 2], [1, 1]",
                             "$[3, 9, 7], [2, 3], [1, 2], [1, 1], [2, 1]",
                             "$[1, 2, 7, 7], [3, 3], [2, 2], [0, 0], [1, 1], true",
                             "$[2, 3, 8, 9]:special, [3, 3], [2, 2], [1, 1]"};

const OpDef kMaxPoolIndices{
    .schema =
        "aten::max_pool2d_with_indices(Tensor self, int[2] kernel_size, int[2] stride=[], int[2] "
        "padding=0, "
        "int[2] dilation=1, bool ceil_mode=False) -> (Tensor, Tensor)",
    .types = [](const Call& c) -> Types {
      need_number(c, "self");
      Sizes sizes = pooled_sizes(c);
      return {ir::Type::tensor(c.type("self").dtype, sizes), ir::Type::tensor(DType::i64, sizes)};
    },
    .lower = max_lower,
    .vjp = [](Builder& b, const Call& c, Grads g) -> Gradients {
      Tensor grad =
          call(b, "aten.max_pool2d_with_indices_backward",
               {g[0], tensor(b, c, "self"), c.arg("kernel_size"), c.arg("stride"), c.arg("padding"),
                c.arg("dilation"), c.arg("ceil_mode"), Tensor{b, c.result(1)}});
      return {{"self", grad}};
    },
    .samples = kMaxSamples};
const OpDef kMaxPoolBackward{
    .schema =
        "aten::max_pool2d_with_indices_backward(Tensor grad_output, Tensor self, int[2] "
        "kernel_size, int[2] "
        "stride, int[2] padding, int[2] dilation, bool ceil_mode, Tensor indices) -> Tensor",
    .types = [](const Call& c) -> Types {
      Sizes result = pooled_sizes(c);
      if (c.type("indices").dtype != DType::i64 || !same_sizes(c.type("indices").sizes, result))
        c.fail(fmt::format("{} must be i64{}", c.describe("indices"), ir::to_string(result)));
      return gradient_types(c, result);
    },
    .lower = max_backward_lower,
    // The transpose reads the winners.
    .vjp = [](Builder& b, const Call& c, Grads g) -> Gradients {
      auto planes = [](Tensor x) {
        Sizes sizes(x.sizes().begin(), x.sizes().end() - 2);
        sizes.push_back(x.size(-2) * x.size(-1));
        return reshape(x, sizes);
      };
      Tensor read = call(b, "aten.gather", {planes(g[0]), -1, planes(tensor(b, c, "indices"))});
      return {{"grad_output", reshape(read, c.type("grad_output").sizes)}};
    },
    // One window over everything: there every index is one that the forward op could have given.
    .samples =
        {"$[2, 3, 1, 1], $[2, 3, 2, 2], [2, 2], [2, 2], [0, 0], [1, 1], false, i64[2, 3, 1, "
         "1]:index(4)",
         "$[3, 1, 1], $[3, 4, 5], [4, 5], [4, 5], [0, 0], [1, 1], false, i64[3, 1, 1]:index(20)"}};
const OpDef kMaxPool{
    .schema =
        "aten::max_pool2d(Tensor self, int[2] kernel_size, int[2] stride=[], int[2] padding=0, "
        "int[2] "
        "dilation=1, bool ceil_mode=False) -> Tensor",
    .types = [](const Call& c) -> Types {
      need_number(c, "self");
      return {ir::Type::tensor(c.type("self").dtype, pooled_sizes(c))};
    },
    .decompose = [](Builder& b, const Call& c) -> Tensors {
      return {call_many(b, "aten.max_pool2d_with_indices",
                        {tensor(b, c, "self"), c.arg("kernel_size"), c.arg("stride"),
                         c.arg("padding"), c.arg("dilation"), c.arg("ceil_mode")})[0]};
    },
    .samples = kMaxSamples};

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
  for (size_t i = 0; i < 2; ++i)
    count = count * divisor_of(windows[i], o[i], c.boolean("count_include_pad"));
  if (c.has("divisor_override")) count = c.integer("divisor_override");
  if (count == Expr(0)) c.fail("divisor_override must not be 0");
  return x / Element{x.pool(), x.pool().index(count)}.cast(x.dtype());
}

const Samples kAvgSamples = {"$[2, 3, 8, 9], [2, 2]",
                             "$[2, 3, 8, 9], [3, 3], [2, 2], [1, 1]",
                             "$[3, 9, 7], [2, 3], [1, 2], [1, 1], false, false",
                             "$[1, 2, 7, 7], [3, 3], [2, 2], [1, 1], true",
                             "$[1, 2, 8, 8], [3, 3], [2, 2], [1, 1], true, false",
                             "$[1, 2, 7, 7], [2, 2], [2, 2], [0, 0], false, true, 3"};

const OpDef kAvgPool{
    .schema =
        "aten::avg_pool2d(Tensor self, int[2] kernel_size, int[2] stride=[], int[2] padding=0, "
        "bool "
        "ceil_mode=False, bool count_include_pad=True, int? divisor_override=None) -> Tensor",
    .types = [](const Call& c) -> Types {
      // As in eager, which averages i64 and no other integer.
      if (c.type("self").dtype != DType::i64) need_float(c, "self");
      return {ir::Type::tensor(c.type("self").dtype, pooled_sizes(c))};
    },
    .lower =
        [](Lowering& lowering, const Call& c) {
          Windows windows = windows_of(c, c.type("self").sizes);
          Definition definition = reduction(loop::Combiner::sum, kernel_of(windows));
          definition.input = [&lowering, c, windows](const Index& out, const Index& r) {
            Read read = read_windows(lowering.scalars(), windows, last_two(out), r);
            return std::vector<loop::Val>{
                lowering.load(c.value("self"), moved(out, read.at), read.inside)};
          };
          definition.finish = [&lowering, c, windows](std::span<const loop::Val> sums,
                                                      const Index& out) {
            return std::vector<loop::Val>{
                averaged(c, windows, {lowering.scalars(), sums[0]}, last_two(out)).value()};
          };
          return definition;
        },
    .vjp = [](Builder& b, const Call& c, Grads g) -> Gradients {
      Tensor grad =
          call(b, "aten.avg_pool2d_backward",
               {g[0], tensor(b, c, "self"), c.arg("kernel_size"), c.arg("stride"), c.arg("padding"),
                c.arg("ceil_mode"), c.arg("count_include_pad"), c.arg("divisor_override")});
      return {{"self", grad}};
    },
    .samples = kAvgSamples};
const OpDef kAvgPoolBackward{
    .schema =
        "aten::avg_pool2d_backward(Tensor grad_output, Tensor self, int[2] kernel_size, int[2] "
        "stride, int[2] "
        "padding, bool ceil_mode, bool count_include_pad, int? divisor_override) -> Tensor",
    .types = [](const Call& c) { return gradient_types(c, pooled_sizes(c)); },
    .lower =
        [](Lowering& lowering, const Call& c) {
          Windows windows = windows_of(c, c.type("self").sizes);
          Definition definition = reduction(loop::Combiner::sum, kernel_of(windows));
          definition.input = [&lowering, c, windows](const Index& out, const Index& r) {
            loop::ScalarPool& pool = lowering.scalars();
            Read read = windows_over(pool, windows, last_two(out), r);
            Element grad{pool,
                         lowering.load(c.value("grad_output"), moved(out, read.at), read.inside)};
            loop::Val part = averaged(c, windows, grad, read.at).value();
            return std::vector<loop::Val>{
                pool.select(read.inside, part, pool.constant(part->dtype, 0))};
          };
          return definition;
        },
    .vjp = [](Builder& b, const Call& c, Grads g) -> Gradients {
      return {{"grad_output",
               call(b, "aten.avg_pool2d",
                    {g[0], c.arg("kernel_size"), c.arg("stride"), c.arg("padding"),
                     c.arg("ceil_mode"), c.arg("count_include_pad"), c.arg("divisor_override")})}};
    },
    .samples = {"$[2, 3, 4, 4], $[2, 3, 8, 8], [2, 2], [2, 2], [0, 0], false, true, none",
                "$[2, 3, 4, 5], $[2, 3, 8, 9], [3, 3], [2, 2], [1, 1], false, false, none"}};

// --- adaptive average
// ----------------------------------------------------------------------------- Result position o
// averages inputs [floor(o in / out), ceil((o + 1) in / out)). By symmetry input position i lies in
// the results [floor(i out / in), ceil((i + 1) out / in)).

struct Span {
  Expr start, length;
};
/// Positions of `to` that belong to position `at` of `from`.
Span span_of(Expr at, Expr from, Expr to) {
  if (sym::known_divisible(to, from))
    return {at * sym::floor_div(to, from), sym::floor_div(to, from)};
  if (sym::known_divisible(from, to)) return {sym::floor_div(at, sym::floor_div(from, to)), 1};
  Expr start = sym::floor_div(at * to, from);
  return {start, sym::ceil_div((at + 1) * to, from) - start};
}
Expr longest_span(Expr from, Expr to) {
  if (sym::known_divisible(to, from)) return sym::floor_div(to, from);
  return sym::known_divisible(from, to) ? Expr(1) : sym::ceil_div(to, from) + 1;
}

/// A sum over the spans of the last two dimensions of the result in those of `source`.
struct Spans {
  Sizes own, other;  // the last two sizes of the result, and of what is read
  Sizes longest() const { return {longest_span(own[0], other[0]), longest_span(own[1], other[1])}; }
  Read read(loop::ScalarPool& pool, std::span<const Expr> at, const Index& r) const {
    Read read{{}, pool.integer(DType::boolean, 1)};
    for (size_t i = 0; i < 2; ++i) {
      Span span = span_of(at[i], own[i], other[i]);
      read.at.push_back(span.start + r[i]);
      if (span.length == longest()[i]) continue;
      read.inside = all_of(pool, read.inside,
                           pool.binary(Opcode::lt, pool.index(r[i]), pool.index(span.length)));
    }
    return read;
  }
};
Sizes two_of(const Sizes& sizes) { return {sizes.end() - 2, sizes.end()}; }

/// x / (inputs averaged by the result at `o`)
Element over_count(Element x, std::span<const Expr> o, const Sizes& results, const Sizes& inputs) {
  Expr count = 1;
  for (size_t i = 0; i < 2; ++i) count = count * span_of(o[i], results[i], inputs[i]).length;
  return x / Element{x.pool(), x.pool().index(count)}.cast(x.dtype());
}

Types adaptive_types(const Call& c) {
  const ir::Type& self = c.type("self");
  const ir::Ints& output = c.ints("output_size");
  need_rank(c, "self", 3, 4);
  need_float(c, "self");
  if (output.size() != 2) c.fail("output_size needs 2 numbers");
  Sizes sizes = self.sizes;
  for (size_t i = 0; i < 2; ++i) {
    if (sym::known_lt(output[i], 1) || sym::known_lt(sizes[sizes.size() - 2 + i], 1))
      c.fail(fmt::format("output_size {} and {} must be positive", ir::to_string(output),
                         c.describe("self")));
    sizes[sizes.size() - 2 + i] = output[i];
  }
  return {ir::Type::tensor(self.dtype, sizes)};
}

const Samples kAdaptiveSamples = {"$[2, 3, 8, 9], [4, 3]", "$[2, 3, 7, 10], [3, 4]",
                                  "$[3, 5, 5], [1, 1]", "$[1, 2, 3, 4], [5, 8]"};

const OpDef kAdaptiveInner{
    .schema = "aten::_adaptive_avg_pool2d(Tensor self, SymInt[2] output_size) -> Tensor",
    .types = adaptive_types,
    .lower =
        [](Lowering& lowering, const Call& c) {
          Spans spans{two_of(c.result()->type.sizes), two_of(c.type("self").sizes)};
          Definition definition = reduction(loop::Combiner::sum, spans.longest());
          definition.input = [&lowering, c, spans](const Index& out, const Index& r) {
            Read read = spans.read(lowering.scalars(), last_two(out), r);
            return std::vector<loop::Val>{
                lowering.load(c.value("self"), moved(out, read.at), read.inside)};
          };
          definition.finish = [&lowering, spans](std::span<const loop::Val> sums,
                                                 const Index& out) {
            Element sum{lowering.scalars(), sums[0]};
            return std::vector<loop::Val>{
                over_count(sum, last_two(out), spans.own, spans.other).value()};
          };
          return definition;
        },
    .vjp = [](Builder& b, const Call& c, Grads g) -> Gradients {
      return {
          {"self", call(b, "aten._adaptive_avg_pool2d_backward", {g[0], tensor(b, c, "self")})}};
    },
    .samples = kAdaptiveSamples};
const OpDef kAdaptiveBackward{
    .schema = "aten::_adaptive_avg_pool2d_backward(Tensor grad_output, Tensor self) -> Tensor",
    .types = [](const Call& c) -> Types {
      need_rank(c, "self", 3, 4);
      need_rank(c, "grad_output", c.type("self").rank(), c.type("self").rank());
      Sizes result = c.type("self").sizes;
      if (c.type("grad_output").numel() == Expr(0) && c.type("self").numel() != Expr(0))
        c.fail(c.describe("grad_output") + " has no elements");
      std::ranges::copy(two_of(c.type("grad_output").sizes), result.end() - 2);
      return gradient_types(c, result);
    },
    .lower =
        [](Lowering& lowering, const Call& c) {
          Spans spans{two_of(c.type("self").sizes), two_of(c.type("grad_output").sizes)};
          Definition definition = reduction(loop::Combiner::sum, spans.longest());
          definition.input = [&lowering, c, spans](const Index& out, const Index& r) {
            loop::ScalarPool& pool = lowering.scalars();
            Read read = spans.read(pool, last_two(out), r);
            Element grad{pool,
                         lowering.load(c.value("grad_output"), moved(out, read.at), read.inside)};
            loop::Val part = over_count(grad, read.at, spans.other, spans.own).value();
            return std::vector<loop::Val>{
                pool.select(read.inside, part, pool.constant(part->dtype, 0))};
          };
          return definition;
        },
    .vjp = [](Builder& b, const Call& c, Grads g) -> Gradients {
      return {{"grad_output",
               call(b, "aten._adaptive_avg_pool2d", {g[0], two_of(c.type("grad_output").sizes)})}};
    },
    .samples = {"$[2, 3, 4, 3], $[2, 3, 8, 9]", "$[2, 3, 3, 4], $[2, 3, 7, 10]"}};
const OpDef kAdaptive{
    .schema = "aten::adaptive_avg_pool2d(Tensor self, SymInt[2] output_size) -> Tensor",
    .types = adaptive_types,
    .decompose = [](Builder& b, const Call& c) -> Tensors {
      Tensor self = tensor(b, c, "self");
      bool whole = c.ints("output_size") == ir::Ints{1, 1};
      if (whole) return {mean(self, {self.rank() - 2, self.rank() - 1}, true)};
      return {call(b, "aten._adaptive_avg_pool2d", {self, c.arg("output_size")})};
    },
    .samples = kAdaptiveSamples};

const OpDef* const kOps[] = {&kMaxPoolIndices,  &kMaxPoolBackward, &kMaxPool,          &kAvgPool,
                             &kAvgPoolBackward, &kAdaptiveInner,   &kAdaptiveBackward, &kAdaptive};

}  // namespace

Family pool_family() { return kOps; }

}  // namespace tandem::ops
