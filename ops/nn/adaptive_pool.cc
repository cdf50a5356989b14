// Pools to a given size, and the inverse of a max pool. Result position o combines the inputs
// [floor(o in / out), ceil((o + 1) in / out)). By symmetry input position i lies in the results
// [floor(i out / in), ceil((i + 1) out / in)), so the average's gradient is a reduction over spans
// too. A max pool's gradient adds to the winners, whose positions are known.
#include <fmt/format.h>

#include <algorithm>

#include "ops/nn/pool.h"

namespace tandem::ops {

using namespace pool;  // NOLINT(google-build-using-namespace): what the pools' files share

namespace {

// --- spans
// ----------------------------------------------------------------------------------------

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

/// What a result at a place of planes of sizes `own` combines of planes of sizes `other`.
struct Spans {
  Sizes own, other;
  Sizes longest() const {
    Sizes sizes;
    for (size_t i = 0; i < own.size(); ++i) sizes.push_back(longest_span(own[i], other[i]));
    return sizes;
  }
  Read read(loop::ScalarPool& pool, std::span<const Expr> at, const Index& r) const {
    Read read{{}, pool.integer(DType::boolean, 1)};
    Sizes longest_spans = longest();
    for (size_t i = 0; i < own.size(); ++i) {
      Span span = span_of(at[i], own[i], other[i]);
      read.at.push_back(span.start + r[i]);
      if (span.length == longest_spans[i]) continue;
      read.inside = all_of(pool, read.inside,
                           pool.binary(Opcode::lt, pool.index(r[i]), pool.index(span.length)));
    }
    return read;
  }
};
Spans forward_spans(const Call& c) {
  return {plane_sizes(c, c.result()->type.sizes), plane_sizes(c, c.type("self").sizes)};
}

/// x / (inputs averaged by the result at `o`)
Element over_count(Element x, std::span<const Expr> o, const Sizes& results, const Sizes& inputs) {
  Expr count = 1;
  for (size_t i = 0; i < o.size(); ++i) count = count * span_of(o[i], results[i], inputs[i]).length;
  return x / Element{x.pool(), x.pool().index(count)}.cast(x.dtype());
}

Sizes adaptive_sizes(const Call& c) {
  const ir::Type& self = c.type("self");
  const ir::Ints& output = c.ints("output_size");
  size_t dims = dims_of(c);
  need_planes(c, "self");
  need_float(c, "self");
  if (output.size() != dims) c.fail(fmt::format("output_size needs {} numbers", dims));
  Sizes sizes = self.sizes;
  for (size_t i = 0; i < dims; ++i) {
    Expr& size = sizes[sizes.size() - dims + i];
    if (sym::known_lt(output[i], 1) || sym::known_lt(size, 1))
      c.fail(fmt::format("output_size {} and {} must be positive", ir::to_string(output),
                         c.describe("self")));
    size = output[i];
  }
  return sizes;
}
Types average_types(const Call& c) {
  return {ir::Type::tensor(c.type("self").dtype, adaptive_sizes(c))};
}
Types max_types(const Call& c) {
  Sizes sizes = adaptive_sizes(c);
  return {ir::Type::tensor(c.type("self").dtype, sizes), ir::Type::tensor(DType::i64, sizes)};
}

// --- average
// --------------------------------------------------------------------------------------

Definition average_lower(Lowering& lowering, const Call& c) {
  Spans spans = forward_spans(c);
  Definition definition = reduction(loop::Combiner::sum, spans.longest());
  definition.input = [&lowering, c, spans](const Index& out, const Index& r) {
    Read read = spans.read(lowering.scalars(), spatial(c, out), r);
    return std::vector<loop::Val>{lowering.load(c.value("self"), moved(out, read.at), read.inside)};
  };
  definition.finish = [&lowering, c, spans](std::span<const loop::Val> sums, const Index& out) {
    Element sum{lowering.scalars(), sums[0]};
    return std::vector<loop::Val>{over_count(sum, spatial(c, out), spans.own, spans.other).value()};
  };
  return definition;
}
Definition average_backward_lower(Lowering& lowering, const Call& c) {
  Spans spans{plane_sizes(c, c.type("self").sizes), plane_sizes(c, c.type("grad_output").sizes)};
  Definition definition = reduction(loop::Combiner::sum, spans.longest());
  definition.input = [&lowering, c, spans](const Index& out, const Index& r) {
    loop::ScalarPool& pool = lowering.scalars();
    Read read = spans.read(pool, spatial(c, out), r);
    Element grad{pool, lowering.load(c.value("grad_output"), moved(out, read.at), read.inside)};
    loop::Val part = over_count(grad, read.at, spans.other, spans.own).value();
    return std::vector<loop::Val>{pool.select(read.inside, part, pool.constant(part->dtype, 0))};
  };
  return definition;
}
Gradients average_vjp(Builder& b, const Call& c, Grads g) {
  const char* op =
      dims_of(c) == 3 ? "aten._adaptive_avg_pool3d_backward" : "aten._adaptive_avg_pool2d_backward";
  return {{"self", call(b, op, {g[0], tensor(b, c, "self")})}};
}
Gradients average_backward_vjp(Builder& b, const Call& c, Grads g) {
  const char* op = dims_of(c) == 3 ? "aten._adaptive_avg_pool3d" : "aten._adaptive_avg_pool2d";
  return {{"grad_output", call(b, op, {g[0], plane_sizes(c, c.type("grad_output").sizes)})}};
}
/// The result's sizes, as grad_output has them; the planes' must not be empty.
Sizes result_sizes(const Call& c) {
  need_planes(c, "self");
  need_rank(c, "grad_output", c.type("self").rank(), c.type("self").rank());
  Sizes result = c.type("self").sizes;
  if (c.type("grad_output").numel() == Expr(0) && c.type("self").numel() != Expr(0))
    c.fail(c.describe("grad_output") + " has no elements");
  Sizes plane = plane_sizes(c, c.type("grad_output").sizes);
  std::ranges::copy(plane, result.end() - static_cast<int64_t>(plane.size()));
  return result;
}
/// One result for a plane is its mean.
Tensors average_parts(Builder& b, const Call& c) {
  Tensor self = tensor(b, c, "self");
  size_t dims = dims_of(c);
  std::vector<int64_t> pooled;
  for (size_t i = 0; i < dims; ++i)
    pooled.push_back(self.rank() - static_cast<int64_t>(dims) + static_cast<int64_t>(i));
  if (c.ints("output_size") == ir::Ints(dims, Expr(1))) return {mean(self, pooled, true)};
  const char* op = dims == 3 ? "aten._adaptive_avg_pool3d" : "aten._adaptive_avg_pool2d";
  return {call(b, op, {self, c.arg("output_size")})};
}

Types average_backward_types(const Call& c) {
  for (std::string_view name : {"grad_output", "self"}) {
    const Sizes& sizes = c.type(name).sizes;
    for (size_t i = 1; i <= dims_of(c) && i <= sizes.size(); ++i)
      if (sizes[sizes.size() - i] == Expr(0)) c.fail(c.describe(name) + " has empty images");
  }
  return gradient_types(c, result_sizes(c));
}

#define TANDEM_ADAPTIVE_AVG(Name, dims, forwards, backwards)                                      \
  const OpDef Name##Inner{.schema = "aten::_adaptive_avg_pool" dims "d(Tensor self, SymInt[" dims \
                                    "] output_size) -> Tensor",                                   \
                          .types = average_types,                                                 \
                          .lower = average_lower,                                                 \
                          .vjp = average_vjp,                                                     \
                          .samples = forwards};                                                   \
  const OpDef Name##Backward{.schema = "aten::_adaptive_avg_pool" dims                            \
                                       "d_backward(Tensor grad_output, Tensor self) -> Tensor",   \
                             .types = average_backward_types,                                     \
                             .lower = average_backward_lower,                                     \
                             .vjp = average_backward_vjp,                                         \
                             .samples = backwards};                                               \
  const OpDef Name {                                                                              \
    .schema =                                                                                     \
        "aten::adaptive_avg_pool" dims "d(Tensor self, SymInt[" dims "] output_size) -> Tensor",  \
    .types = average_types, .decompose = average_parts, .samples = forwards                       \
  }

const Samples kPlanes = {"$[2, 3, 8, 9], [4, 3]", "$[2, 3, 7, 10], [3, 4]", "$[3, 5, 5], [1, 1]",
                         "$[1, 2, 3, 4], [5, 8]"};
const Samples kPlanesBackward = {"$[2, 3, 4, 3], $[2, 3, 8, 9]", "$[2, 3, 3, 4], $[2, 3, 7, 10]"};
const Samples kBoxes = {"$[2, 3, 4, 6, 5], [2, 3, 5]", "$[2, 4, 7, 5], [3, 4, 2]",
                        "$[1, 2, 3, 4, 2], [1, 1, 1]", "$[1, 2, 3, 4, 2], [4, 8, 3]"};
const Samples kBoxesBackward = {"$[2, 3, 2, 3, 5], $[2, 3, 4, 6, 5]",
                                "$[2, 3, 4, 2], $[2, 4, 7, 5]"};
TANDEM_ADAPTIVE_AVG(kAverage2, "2", kPlanes, kPlanesBackward);
TANDEM_ADAPTIVE_AVG(kAverage3, "3", kBoxes, kBoxesBackward);
#undef TANDEM_ADAPTIVE_AVG

// --- max
// ------------------------------------------------------------------------------------------

Definition max_lower(Lowering& lowering, const Call& c) {
  Spans spans = forward_spans(c);
  Definition definition = reduction(loop::Combiner::argmax, spans.longest());
  definition.input = [&lowering, c, spans](const Index& out, const Index& r) {
    Read read = spans.read(lowering.scalars(), spatial(c, out), r);
    loop::Val x = lowering.load(c.value("self"), moved(out, read.at), read.inside);
    return candidate(lowering.scalars(), x, position_in(spans.other, read.at), read.inside);
  };
  definition.finish = [&lowering](std::span<const loop::Val> combined, const Index&) {
    return winner(lowering.scalars(), combined);
  };
  return definition;
}
Gradients max_vjp(Builder& b, const Call& c, Grads g) {
  if (!g[0]) return {};
  const char* op =
      dims_of(c) == 3 ? "aten.adaptive_max_pool3d_backward" : "aten.adaptive_max_pool2d_backward";
  return {{"self", call(b, op, {g[0], tensor(b, c, "self"), Tensor{b, c.result(1)}})}};
}
/// dx is the sum of dy at the winners.
Tensors max_backward_parts(Builder& b, const Call& c) {
  const ir::Type& self = c.type("self");
  size_t dims = dims_of(c);
  DType dtype = compute_type(self.dtype);
  Tensor zeros = rows(full(b, self.sizes, 0, dtype), dims);
  Tensor grad = rows(to(tensor(b, c, "grad_output"), dtype), dims);
  Tensor sums = call(b, "aten.scatter_add", {zeros, -1, rows(tensor(b, c, "indices"), dims), grad});
  return {to(reshape(sums, self.sizes), self.dtype)};
}
Types max_backward_types(const Call& c) {
  Sizes sizes = result_sizes(c);
  check_indices(c, sizes);
  return gradient_types(c, sizes);
}

#define TANDEM_ADAPTIVE_MAX(Name, dims, forwards, backwards)                           \
  const OpDef Name{.schema = "aten::adaptive_max_pool" dims "d(Tensor self, int[" dims \
                             "] output_size) -> (Tensor, Tensor)",                     \
                   .types = max_types,                                                 \
                   .lower = max_lower,                                                 \
                   .vjp = max_vjp,                                                     \
                   .samples = forwards};                                               \
  const OpDef Name##Backward {                                                         \
    .schema = "aten::adaptive_max_pool" dims                                           \
              "d_backward(Tensor grad_output, Tensor self, Tensor indices) -> Tensor", \
    .types = max_backward_types, .decompose = max_backward_parts, .vjp = winners_vjp,  \
    .samples = backwards, .can_fail = true                                             \
  }
const Samples kMaxPlanes = {
    "$[2, 3, 8, 9], [4, 3]", "$[2, 3, 7, 10], [3, 4]",        "$[3, 5, 5], [1, 1]",
    "$[1, 2, 3, 4], [5, 8]", "$[2, 3, 8, 9]:special, [3, 3]", "i64[3, 4, 4], [2, 2]"};
const Samples kMaxBoxes = {"$[2, 3, 4, 6, 5], [2, 3, 5]", "$[2, 4, 7, 5], [3, 4, 2]"};
TANDEM_ADAPTIVE_MAX(kMax2, "2", kMaxPlanes,
                    Samples({"$[2, 3, 2, 2], $[2, 3, 4, 5], i64[2, 3, 2, 2]:index(20)"}));
TANDEM_ADAPTIVE_MAX(kMax3, "3", kMaxBoxes,
                    Samples({"$[2, 2, 1, 2], $[2, 3, 4, 2], i64[2, 2, 1, 2]:index(24)"}));
#undef TANDEM_ADAPTIVE_MAX

// --- one dimension: a plane of one row
// ------------------------------------------------------------

Tensors row_parts(Builder& b, const Call& c, const char* op) {
  Tensor plane = unsqueeze(tensor(b, c, "self"), -2);
  Tensors pooled = call_many(b, op, {plane, ir::Ints{Expr(1), c.ints("output_size")[0]}});
  for (Tensor& x : pooled) x = squeeze(x, -2);
  return pooled;
}
const Samples kRows = {"$[2, 3, 8], [4]", "$[3, 7], [3]", "$[3, 7], [1]", "$[1, 2, 3], [5]",
                       "$[5], [1]"};
const OpDef kAverage1{
    .schema = "aten::adaptive_avg_pool1d(Tensor self, int[1] output_size) -> Tensor",
    .types = average_types,
    .decompose = [](Builder& b,
                    const Call& c) { return row_parts(b, c, "aten.adaptive_avg_pool2d"); },
    .samples = kRows};
const OpDef kMax1{
    .schema = "aten::adaptive_max_pool1d(Tensor self, int[1] output_size) -> (Tensor, Tensor)",
    .types = max_types,
    .decompose = [](Builder& b,
                    const Call& c) { return row_parts(b, c, "aten.adaptive_max_pool2d"); },
    .samples = kRows};

// --- the inverse of a max pool
// --------------------------------------------------------------------

Types unpool_types(const Call& c) {
  const ir::Type& self = c.type("self");
  const ir::Ints& output = c.ints("output_size");
  size_t dims = dims_of(c);
  need_planes(c, "self");
  need_float(c, "self");
  check_indices(c, self.sizes);
  if (output.size() != dims) c.fail(fmt::format("output_size needs {} numbers", dims));
  for (std::string_view name : {"stride", "padding"})
    if (c.op().schema.find(name) >= 0) spatial_list(c, name, dims);
  if (c.op().schema.find("stride") >= 0) positive_list(c, "stride", dims);
  Sizes sizes = self.sizes;
  for (size_t i = 0; i < dims; ++i) {
    if (sym::known_lt(sizes[sizes.size() - dims + i], 1))
      c.fail(c.describe("self") + " may have no empty dimension but the batch");
    sizes[sizes.size() - dims + i] = output[i];
  }
  return {ir::Type::tensor(self.dtype, sizes)};
}
/// Zeros with self's elements at `indices` of each plane.
Tensors unpool_parts(Builder& b, const Call& c) {
  const ir::Type& result = c.result()->type;
  size_t dims = dims_of(c);
  Tensor self = tensor(b, c, "self");
  Tensor zeros = rows(full(b, result.sizes, 0, result.dtype), dims);
  Tensor placed = call(b, "aten.scatter.src",
                       {zeros, -1, rows(tensor(b, c, "indices"), dims), rows(self, dims)});
  return {reshape(placed, result.sizes)};
}
const OpDef kUnpool2{
    .schema = "aten::max_unpool2d(Tensor self, Tensor indices, SymInt[2] output_size) -> Tensor",
    .types = unpool_types,
    .decompose = unpool_parts,
    .samples = {"$[2, 3, 1, 1], i64[2, 3, 1, 1]:index(20), [4, 5]",
                "$[3, 1, 1], i64[3, 1, 1]:index(6), [2, 3]",
                "$[2, 3, 1, 1], i64[2, 3, 1, 2]:index(4), [2, 2]"},
    .can_fail = true};
const OpDef kUnpool3{
    .schema =
        "aten::max_unpool3d(Tensor self, Tensor indices, SymInt[3] output_size, int[3] "
        "stride, int[3] padding) -> Tensor",
    .types = unpool_types,
    .decompose = unpool_parts,
    .samples = {"$[2, 3, 1, 1, 1], i64[2, 3, 1, 1, 1]:index(8), [2, 2, 2], [2, 2, 2], [0, 0, 0]"},
    .can_fail = true};

const OpDef* const kOps[] = {&kAverage2Inner, &kAverage2Backward, &kAverage2,
                             &kAverage3Inner, &kAverage3Backward, &kAverage3,
                             &kMax2,          &kMax2Backward,     &kMax3,
                             &kMax3Backward,  &kAverage1,         &kMax1,
                             &kUnpool2,       &kUnpool3};

}  // namespace

Family adaptive_pool_family() { return kOps; }

}  // namespace tandem::ops
