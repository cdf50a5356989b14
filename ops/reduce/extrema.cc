// Extrema and their positions; maximum and minimum of two. Sharing a gradient between equal
// elements is what eager does where it reduces everything; with positions, the found one takes it.
#include <algorithm>

#include "ops/families.h"
#include "ops/reduce/reductions.h"

namespace tandem::ops {
namespace {

using loop::Combiner;
using loop::Val;

constexpr std::string_view kPosition = "a position is not differentiable";

Tensor self_of(Builder& b, const Call& c) { return {b, c.value("self")}; }
Tensor result_of(Builder& b, const Call& c, size_t i = 0) { return {b, c.result(i)}; }
const ir::Sizes& self_sizes(const Call& c) { return c.type("self").sizes; }

/// Row-major number of the element among those reduced: what argmax without a dimension returns.
Val position(loop::ScalarPool& pool, const Call& c, const std::vector<int64_t>& dims,
             const Index& full) {
  Expr number = 0;
  for (int64_t dim : dims) number = number * self_sizes(c)[dim] + full[dim];
  return pool.index(number);
}

Definition arg_reduction(Lowering& lowering, const Call& c, Combiner combiner, bool values) {
  std::vector<int64_t> dims = reduced_dims(c);
  std::sort(dims.begin(), dims.end());
  auto input = [&lowering, c, dims](Element x, const Index& full) {
    return std::vector<Val>{x.value(), position(lowering.scalars(), c, dims, full)};
  };
  auto only_position = [](std::span<const Val> combined, const Index&) {
    return std::vector<Val>{combined[1]};
  };
  Definition definition = reduce_self(lowering, c, dims, keeps_dims(c), combiner,
                                      compute_type(c.type("self").dtype), input);
  if (!values) definition.finish = only_position;
  return definition;
}

Types position_types(const Call& c) {
  need_number(c, "self");
  need_elements(c);
  return reduced_types(c, DType::i64);
}
Types extremum_types(const Call& c) {
  need_elements(c);
  return {reduced_types(c, c.type("self").dtype)[0], reduced_types(c, DType::i64)[0]};
}
// The gradient goes to the element that was found, alone.
Gradients extremum_vjp(Builder& b, const Call& c, Grads g) {
  if (!g[0]) return {};
  const ir::Sizes& sizes = self_sizes(c);
  if (sizes.empty()) return {{"self", g[0]}};
  int64_t dim = reduced_dims(c)[0];
  ir::Sizes row(sizes.size() - static_cast<size_t>(dim), Expr(1));
  row[0] = sizes[dim];
  Tensor positions = reshape(arange(b, sizes[dim], DType::i64), row);
  Tensor found = eq(positions, against_self(result_of(b, c, 1), c));
  return {{"self", where(found, against_self(g[0], c), 0.0)}};
}
const Samples kDimSamples = {"$[3, 4], 1",       "$[3, 4], 0, true",    "$[2, 3, 4], 1", "$[], 0",
                             "$[4, 3]{1, 4}, 1", "$[5, 33]:special, 1", "$[33, 5], 0"};
const OpDef kMaxDim{
    .schema =
        "aten::max.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor "
        "indices)",
    .types = extremum_types,
    .lower = [](Lowering& l, const Call& c) { return arg_reduction(l, c, Combiner::argmax, true); },
    .vjp = extremum_vjp,
    .samples = kDimSamples,
    .sample_dtypes = DTypes::all,
    .batch = batch_along_dims};
const OpDef kMinDim{
    .schema =
        "aten::min.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor "
        "indices)",
    .types = extremum_types,
    .lower = [](Lowering& l, const Call& c) { return arg_reduction(l, c, Combiner::argmin, true); },
    .vjp = extremum_vjp,
    .samples = kDimSamples,
    .sample_dtypes = DTypes::all,
    .batch = batch_along_dims};
const Samples kArgSamples = {"$[3, 4]",        "$[3, 4], 1",    "$[3, 4], 0, true",
                             "$[2, 3, 4], -2", "$[]",           "$[5, 33]:special, 1",
                             "$[70]:special",  "$[4, 3]{1, 4}", "$[2, 3], none, true"};
const OpDef kArgmax{
    .schema = "aten::argmax(Tensor self, int? dim=None, bool keepdim=False) -> Tensor",
    .types = position_types,
    .lower = [](Lowering& l,
                const Call& c) { return arg_reduction(l, c, Combiner::argmax, false); },
    .no_grad = kPosition,
    .samples = kArgSamples,
    .sample_dtypes = DTypes::numbers,
    .out = true,
    .batch = batch_along_dims};
const OpDef kArgmin{
    .schema = "aten::argmin(Tensor self, int? dim=None, bool keepdim=False) -> Tensor",
    .types = position_types,
    .lower = [](Lowering& l,
                const Call& c) { return arg_reduction(l, c, Combiner::argmin, false); },
    .no_grad = kPosition,
    .samples = kArgSamples,
    .sample_dtypes = DTypes::numbers,
    .out = true,
    .batch = batch_along_dims};

Types whole_types(const Call& c) {
  need_elements(c);
  return reduced_types(c, c.type("self").dtype);
}
const Samples kWholeSamples = {"$[3, 4]", "$[]", "$[7]:special", "$[4, 3]{1, 4}", "$[1000]"};
// The gradient is shared equally between the elements that reach the extremum. Unlike amax's, it
// goes to the NaNs where there are any: they equal nothing, so that adding both masks counts none
// twice.
Gradients whole_extremum_vjp(Builder& b, const Call& c, Grads g) {
  Tensor self = self_of(b, c);
  Tensor reached =
      to(eq(self, result_of(b, c, 0)), self.dtype()) + to(compare("ne", self, self), self.dtype());
  return {{"self", where(compare("ne", reached, 0.0), g[0] / sum_all(reached), 0.0)}};
}
const OpDef kMax{
    .schema = "aten::max(Tensor self) -> Tensor",
    .types = whole_types,
    .decompose = [](Builder& b, const Call& c) -> Tensors { return {amax(self_of(b, c), {})}; },
    .vjp = whole_extremum_vjp,
    .samples = kWholeSamples,
    .sample_dtypes = DTypes::all};
const OpDef kMin{.schema = "aten::min(Tensor self) -> Tensor",
                 .types = whole_types,
                 .decompose = [](Builder& b, const Call& c) -> Tensors {
                   return {call(b, "aten.amin", {self_of(b, c), std::vector<int64_t>{}})};
                 },
                 .vjp = whole_extremum_vjp,
                 .samples = kWholeSamples,
                 .sample_dtypes = DTypes::all};
const Samples kPairs = {"$[3, 4], $[4]", "$[5], $[5]:special"};
const OpDef kMaxOther{.schema = "aten::max.other(Tensor self, Tensor other) -> Tensor",
                      .types = binary,
                      .decompose = [](Builder& b, const Call& c) -> Tensors {
                        return {call(b, "aten.maximum", {self_of(b, c), c.arg("other")})};
                      },
                      .samples = kPairs,
                      .sample_dtypes = DTypes::numbers};
const OpDef kMinOther{.schema = "aten::min.other(Tensor self, Tensor other) -> Tensor",
                      .types = binary,
                      .decompose = [](Builder& b, const Call& c) -> Tensors {
                        return {call(b, "aten.minimum", {self_of(b, c), c.arg("other")})};
                      },
                      .samples = kPairs,
                      .sample_dtypes = DTypes::numbers};

const OpDef* const kOps[] = {&kMax,    &kMin,    &kMaxOther, &kMinOther,
                             &kMaxDim, &kMinDim, &kArgmax,   &kArgmin};

}  // namespace

Family extrema_family() { return kOps; }

}  // namespace tandem::ops
