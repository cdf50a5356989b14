// Sums, means, extrema. Sums of 16-bit floats accumulate in f32 and round once; integers sum in
// i64.
#include "ops/reduce/reductions.h"

#include "ops/families.h"

#include <algorithm>

namespace tandem::ops {

using loop::Combiner;

std::vector<int64_t> reduced_dims(const Call& call) {
  int64_t rank = call.type("self").rank();
  std::vector<int64_t> dims;
  bool given = call.has("dim");
  if (given && rank > 0) return call.dims("dim", rank);
  if (given) call.dims("dim", rank);  // 0-d: only checks the numbers
  for (int64_t i = 0; i < rank; ++i) dims.push_back(i);
  return dims;
}

bool keeps_dims(const Call& call) {
  return call.op().schema.find("keepdim") >= 0 && call.boolean("keepdim");
}

Sizes reduced_sizes(const Sizes& sizes, const std::vector<int64_t>& dims, bool keepdim) {
  Sizes result;
  for (size_t i = 0; i < sizes.size(); ++i) {
    bool reduced = std::find(dims.begin(), dims.end(), static_cast<int64_t>(i)) != dims.end();
    if (!reduced) result.push_back(sizes[i]);
    if (reduced && keepdim) result.emplace_back(1);
  }
  return result;
}

Types reduced_types(const Call& call, DType dtype) {
  return {ir::Type::tensor(
      dtype, reduced_sizes(call.type("self").sizes, reduced_dims(call), keeps_dims(call)))};
}

Expr reduced_count(const Call& call) {
  Expr count = 1;
  for (int64_t dim : reduced_dims(call)) count = count * call.type("self").sizes[dim];
  return count;
}

void need_elements(const Call& call) {
  const Sizes& sizes = call.type("self").sizes;
  for (int64_t dim : reduced_dims(call))
    if (sizes[dim] == Expr(0))
      call.fail("a reduction without an identity over an empty dimension: " +
                call.describe("self"));
}

Tensor against_self(Tensor x, const Call& call) {
  return expand_reduced(x, call.type("self").sizes, reduced_dims(call), keeps_dims(call));
}

namespace {

/// Full index from the result's index and the reduce point.
Index full_index(size_t rank, const std::vector<int64_t>& dims, bool keepdim, const Index& out,
                 const Index& r) {
  Index full(rank);
  size_t next_out = 0;
  size_t next_r = 0;
  for (size_t i = 0; i < rank; ++i) {
    bool reduced = next_r < dims.size() && dims[next_r] == static_cast<int64_t>(i);
    full[i] = reduced ? r[next_r++] : out[next_out];
    if (!reduced || keepdim) ++next_out;
  }
  return full;
}

}  // namespace

Definition reduce_self(
    Lowering& lowering, const Call& call, const std::vector<int64_t>& dims, bool keepdim,
    Combiner combiner, DType dtype,
    const std::function<std::vector<loop::Val>(Element, const Index&)>& input,
    std::function<std::vector<loop::Val>(std::span<const loop::Val>, const Index&)> finish) {
  Definition definition;
  definition.kind = Definition::Kind::reduce;
  definition.combiner = combiner;
  definition.full_sizes = call.type("self").sizes;
  definition.reduced_dims = dims;
  std::sort(definition.reduced_dims.begin(), definition.reduced_dims.end());
  for (int64_t dim : definition.reduced_dims)
    definition.reduce_sizes.push_back(definition.full_sizes[dim]);
  std::vector<int64_t> sorted = definition.reduced_dims;
  size_t rank = definition.full_sizes.size();
  definition.input = [=, &lowering](const Index& out, const Index& r) {
    Index full = full_index(rank, sorted, keepdim, out, r);
    loop::ScalarPool& pool = lowering.scalars();
    Element x{pool, pool.cast(lowering.load(call.value("self"), full), dtype)};
    return input ? input(x, full) : std::vector<loop::Val>{x.value()};
  };
  definition.finish = std::move(finish);
  return definition;
}

namespace {

/// Floats sum to their own type (rounded once); sum_dtype says f32 for 16 bits, the result does
/// not.
DType sum_result(const Call& c) {
  DType self = c.type("self").dtype;
  return c.dtype("dtype", is_float(self) || is_complex(self) ? self : DType::i64);
}

Definition sum_lower(Lowering& lowering, const Call& c) {
  DType accumulate = accumulate_type(sum_result(c));
  return reduce_self(lowering, c, reduced_dims(c), keeps_dims(c), Combiner::sum, accumulate);
}

// d sum(x) = sum(dx): the gradient is the same for every element.
Gradients sum_vjp(Builder&, const Call& c, Grads g) {
  Tensor grad = expand_reduced(g[0], c.type("self").sizes, reduced_dims(c), keeps_dims(c));
  return {{"self", to(grad, c.type("self").dtype)}};
}

const Samples kReduceSamples = {"$[3, 4], [1]",     "$[3, 4], [0], true", "$[2, 3, 4], [0, 2]",
                                "$[2, 3, 4], [-1]", "$[0, 3], [0]",       "$[37, 65], [1]",
                                "$[65, 37], [0]"};

const OpDef kSum{.schema = "aten::sum(Tensor self, *, ScalarType? dtype=None) -> Tensor",
                 .types = [](const Call& c) { return reduced_types(c, sum_result(c)); },
                 .lower = sum_lower,
                 .vjp = sum_vjp,
                 .samples = {"$[3, 4]", "$[]", "$[0]", "$[1000]", "$[4, 3]{1, 4}"},
                 .sample_dtypes = DTypes::all,
                 .out = true,
                 .batch = batch_whole,
                 .complex = {complex_each}};
const OpDef kSumDim{
    .schema =
        "aten::sum.dim_IntList(Tensor self, int[1]? dim, bool keepdim=False, *, ScalarType? "
        "dtype=None) -> Tensor",
    .types = [](const Call& c) { return reduced_types(c, sum_result(c)); },
    .lower = sum_lower,
    .vjp = sum_vjp,
    .samples = kReduceSamples,
    .sample_dtypes = DTypes::all,
    .batch = batch_reduction,
    .complex = {complex_each}};

Types mean_types(const Call& c) {
  DType dtype = c.dtype("dtype", c.type("self").dtype);
  if (!is_float(dtype) && !is_complex(dtype))
    c.fail("the mean needs a float dtype, not " + c.describe("self"));
  return reduced_types(c, dtype);
}
Definition mean_lower(Lowering& lowering, const Call& c) {
  DType accumulate = accumulate_type(c.result()->type.dtype);
  Expr count = reduced_count(c);
  return reduce_self(lowering, c, reduced_dims(c), keeps_dims(c), Combiner::sum, accumulate,
                     nullptr,
                     [&lowering, accumulate, count](std::span<const loop::Val> sums, const Index&) {
                       loop::ScalarPool& pool = lowering.scalars();
                       loop::Val n = pool.cast(pool.index(count), accumulate);
                       return std::vector<loop::Val>{pool.binary(loop::Opcode::div, sums[0], n)};
                     });
}
// d mean(x) = sum(dx) / n; of no elements nothing, and no 0 / 0 for the gradient of that.
Gradients mean_vjp(Builder& b, const Call& c, Grads g) {
  Tensor scaled = call(b, "aten.div.Scalar", {g[0], sym::max(reduced_count(c), 1)});
  Tensor grad = expand_reduced(scaled, c.type("self").sizes, reduced_dims(c), keeps_dims(c));
  return {{"self", to(grad, c.type("self").dtype)}};
}
const OpDef kMean{.schema = "aten::mean(Tensor self, *, ScalarType? dtype=None) -> Tensor",
                  .types = mean_types,
                  .lower = mean_lower,
                  .vjp = mean_vjp,
                  .samples = {"$[3, 4]", "$[]", "$[0]", "$[1000]"},
                  .batch = batch_whole,
                  .complex = {complex_each}};
const OpDef kMeanDim{.schema =
                         "aten::mean.dim(Tensor self, int[1]? dim, bool keepdim=False, *, "
                         "ScalarType? dtype=None) -> Tensor",
                     .types = mean_types,
                     .lower = mean_lower,
                     .vjp = mean_vjp,
                     .samples = kReduceSamples,
                     .batch = batch_reduction,
                     .complex = {complex_each}};

Types extremum_types(const Call& c) {
  for (int64_t dim : reduced_dims(c))
    if (dim < c.type("self").rank() && c.type("self").sizes[dim] == Expr(0))
      c.fail("a reduction without an identity over an empty dimension: " + c.describe("self"));
  return reduced_types(c, c.type("self").dtype);
}
template <Combiner combiner>
Definition extremum_lower(Lowering& lowering, const Call& c) {
  return reduce_self(lowering, c, reduced_dims(c), keeps_dims(c), combiner,
                     compute_type(c.type("self").dtype));
}
// The gradient is shared equally between the elements that reach the extremum.
Gradients extremum_vjp(Builder& b, const Call& c, Grads g) {
  Tensor self{b, c.value("self")};
  std::vector<int64_t> dims = reduced_dims(c);
  Tensor result = expand_reduced(Tensor{b, c.result()}, self.sizes(), dims, keeps_dims(c));
  Tensor reached = to(eq(self, result), self.dtype());
  Tensor count = sum(reached, dims, true);
  Tensor grad = expand_reduced(g[0], self.sizes(), dims, keeps_dims(c));
  return {{"self", grad * reached / count}};
}
const OpDef kAmax{.schema = "aten::amax(Tensor self, int[1] dim=[], bool keepdim=False) -> Tensor",
                  .types = extremum_types,
                  .lower = extremum_lower<Combiner::max>,
                  .vjp = extremum_vjp,
                  .samples = {"$[3, 4], [1]", "$[3, 4], [0], true", "$[2, 3, 4], [0, 2]",
                              "$[7]:special", "$[], []"},
                  .sample_dtypes = DTypes::all,
                  .out = true,
                  .batch = batch_reduction};
const OpDef kAmin{.schema = "aten::amin(Tensor self, int[1] dim=[], bool keepdim=False) -> Tensor",
                  .types = extremum_types,
                  .lower = extremum_lower<Combiner::min>,
                  .vjp = extremum_vjp,
                  .samples = {"$[3, 4], [1]", "$[3, 4], [0], true", "$[2, 3, 4], [0, 2]",
                              "$[7]:special", "$[], []"},
                  .sample_dtypes = DTypes::all,
                  .out = true,
                  .batch = batch_reduction};

const OpDef* const kOps[] = {&kSum, &kSumDim, &kMean, &kMeanDim, &kAmax, &kAmin};

}  // namespace

Family reduce_family() { return kOps; }

}  // namespace tandem::ops
