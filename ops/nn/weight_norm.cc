// Norms of weights and distances of rows: weight norm, cosine similarity, pairwise distance. By
// decomposition in f32, rounded once.
#include <fmt/format.h>

#include "ops/families.h"
#include "ops/types.h"

namespace tandem::ops {
namespace {

Tensor tensor(Builder& b, const Call& c, std::string_view name) { return {b, c.value(name)}; }
Tensor widened(Tensor x) { return to(x, compute_type(x.dtype())); }
Tensor wide(Builder& b, const Call& c, std::string_view name) {
  return widened(tensor(b, c, name));
}

// --- weight norm
// ----------------------------------------------------------------------------------
// w = v g / |v|, with a norm for every index of dimension `dim` (-1: one for all).

std::vector<int64_t> all_but(int64_t rank, int64_t dim) {
  std::vector<int64_t> dims;
  for (int64_t i = 0; i < rank; ++i)
    if (i != dim) dims.push_back(i);
  return dims;
}
int64_t kept_dim(const Call& c) {
  int64_t dim = c.constant("dim");
  if (dim < -1 || dim >= c.type("v").rank())
    c.fail(fmt::format("{} is no dimension of {}", c.describe("dim"), c.describe("v")));
  return dim;
}
Tensor norm_of(Tensor v, int64_t dim, double p = 2) {
  return call(v.builder(), "aten.linalg_vector_norm", {v, p, all_but(v.rank(), dim), true});
}
Types weight_types(const Call& c) {
  need_float(c, "v");
  need_same_dtype(c, {"v", "g"});
  kept_dim(c);
  return {ir::Type::tensor(c.type("v").dtype, broadcast(c, c.type("v").sizes, c.type("g").sizes))};
}
const OpDef kWeightNorm{
    .schema = "aten::_weight_norm(Tensor v, Tensor g, int dim=0) -> Tensor",
    .types = weight_types,
    .decompose = [](Builder& b, const Call& c) -> Tensors {
      Tensor v = wide(b, c, "v");
      Tensor w = v * (wide(b, c, "g") / norm_of(v, kept_dim(c)));
      return {to(w, c.result()->type.dtype)};
    },
    .samples = {"$[3, 4], $[3, 1]", "$[3, 4], $[1, 4], 1", "$[3, 4, 5], $[1, 4, 1], 1",
                "$[3, 4, 5], $[3, 1, 1]", "$[3, 4], $[], -1"}};

void check_interface(const Call& c, std::string_view v, std::string_view g) {
  const ir::Type& weight = c.type(v);
  int64_t dim = c.constant("dim");
  need_float(c, v);
  need_same_dtype(c, {v, g});
  if (weight.rank() == 0) c.fail(c.describe(v) + " needs a dimension");
  if (dim != 0 && dim != weight.rank() - 1)
    c.fail(fmt::format("{} must be the first or the last dimension of {}", c.describe("dim"),
                       c.describe(v)));
  if (c.type(g).numel() != weight.sizes[dim])
    c.fail(c.describe(g) + " must have one element for each norm of " + c.describe(v));
}
/// One element a norm, against v.
Tensor by_norm(Tensor x, Tensor v, int64_t dim) {
  Sizes sizes(v.sizes().size(), Expr(1));
  sizes[dim] = v.size(dim);
  return reshape(x, sizes);
}
/// dg = sum(dw v) / |v|, dv = g / |v| (dw - v sum(dw v) / |v|^2)
Tensors interface_gradients(const Call& c, Tensor grad, Tensor v, Tensor g, Tensor norms) {
  int64_t dim = c.constant("dim");
  Tensor norm = by_norm(norms, v, dim);
  Tensor sums = sum(grad * v, all_but(v.rank(), dim), true);
  Tensor of_v = (grad - v * (sums / (norm * norm))) * (by_norm(g, v, dim) / norm);
  return {of_v, sums / norm};
}
const OpDef kInterface{
    .schema = "aten::_weight_norm_interface(Tensor v, Tensor g, int dim=0) -> (Tensor, Tensor)",
    .types = [](const Call& c) -> Types {
      check_interface(c, "v", "g");
      DType dtype = c.type("g").dtype;
      return {ir::Type::tensor(c.type("v").dtype, c.type("v").sizes),
              ir::Type::tensor(dtype == DType::bf16 ? DType::f32 : dtype, c.type("g").sizes)};
    },
    .decompose = [](Builder& b, const Call& c) -> Tensors {
      Tensor v = wide(b, c, "v");
      int64_t dim = c.constant("dim");
      Tensor norm = norm_of(v, dim);
      Tensor w = v * (by_norm(wide(b, c, "g"), v, dim) / norm);
      return {to(w, c.result(0)->type.dtype),
              to(reshape(norm, c.type("g").sizes), c.result(1)->type.dtype)};
    },
    .vjp = [](Builder& b, const Call& c, Grads g) -> Gradients {
      if (!g[0]) return {};
      Tensors grads = interface_gradients(c, widened(g[0]), wide(b, c, "v"), wide(b, c, "g"),
                                          widened({b, c.result(1)}));
      return {{"v", to(grads[0], c.type("v").dtype)},
              {"g", to(reshape(grads[1], c.type("g").sizes), c.type("g").dtype)}};
    },
    .samples = {"f32[3, 4], f32[3, 1]", "f64[3, 4, 5], f64[1, 1, 5], 2", "f64[3, 4], f64[1, 4], 1",
                "f32[3, 4, 5], f32[1, 4, 1], 1"},
    .sample_dtypes = DTypes::f32_only};
Tensors interface_backward(Builder& b, const Call& c) {
  Tensors grads = interface_gradients(c, wide(b, c, "grad_w"), wide(b, c, "saved_v"),
                                      wide(b, c, "saved_g"), wide(b, c, "saved_norms"));
  return {to(grads[0], c.result(0)->type.dtype),
          to(reshape(grads[1], c.result(1)->type.sizes), c.result(1)->type.dtype)};
}
Types interface_backward_types(const Call& c) {
  check_interface(c, "saved_v", "saved_g");
  return {ir::Type::tensor(c.type("saved_v").dtype, c.type("saved_v").sizes),
          ir::Type::tensor(c.type("saved_g").dtype, c.type("saved_g").sizes)};
}
const Samples kInterfaceBackward = {"f32[3, 4], f32[3, 4], f32[3, 1], f32[3, 1]:positive, 0",
                                    "f64[3, 4], f64[3, 4], f64[1, 4], f64[1, 4]:positive, 1"};
#define TANDEM_WEIGHT_NORM_BACKWARD(Name, text)                                                   \
  const OpDef Name {                                                                              \
    .schema = "aten::" text                                                                       \
              "_backward(Tensor grad_w, Tensor saved_v, Tensor saved_g, Tensor saved_norms, int " \
              "dim) -> (Tensor, Tensor)",                                                         \
    .types = interface_backward_types, .decompose = interface_backward,                           \
    .samples = kInterfaceBackward, .sample_dtypes = DTypes::f32_only                              \
  }
TANDEM_WEIGHT_NORM_BACKWARD(kBackward, "_weight_norm_interface");
TANDEM_WEIGHT_NORM_BACKWARD(kDifferentiable, "_weight_norm_differentiable");
#undef TANDEM_WEIGHT_NORM_BACKWARD

const OpDef kNormExceptDim{
    .schema = "aten::norm_except_dim(Tensor v, int pow=2, int dim=0) -> Tensor",
    .types = [](const Call& c) -> Types {
      need_float(c, "v");
      int64_t dim = kept_dim(c);
      if (dim == -1) return {ir::Type::tensor(c.type("v").dtype, {})};
      Sizes sizes(c.type("v").sizes.size(), Expr(1));
      sizes[dim] = c.type("v").sizes[dim];
      return {ir::Type::tensor(c.type("v").dtype, sizes)};
    },
    .decompose = [](Builder& b, const Call& c) -> Tensors {
      Tensor norm = norm_of(wide(b, c, "v"), kept_dim(c), static_cast<double>(c.constant("pow")));
      const ir::Type& result = c.result()->type;
      return {to(reshape(norm, result.sizes), result.dtype)};
    },
    .samples = {"$[3, 4], 2, 0", "$[3, 4, 5], 2, 1", "$[3, 4], 1, 1", "$[3, 4], 2, -1"}};

// --- distances of rows
// ----------------------------------------------------------------------------

/// A norm that is at least eps and whose gradient does not know of it, as in eager.
Tensor guarded_norm(Builder& b, Tensor x, int64_t dim, double eps) {
  Tensor norm = call(b, "aten.linalg_vector_norm", {x, 2.0, std::vector<int64_t>{dim}, true});
  Tensor constant = call(b, "aten.detach", {norm});
  return norm + (call(b, "aten.clamp_min", {constant, eps}) - constant);
}
Types similarity_types(const Call& c, Sizes& sizes) {
  DType dtype = common_dtype(c, {"x1", "x2"});
  if (!is_float(dtype)) c.fail("needs a float dtype, not " + c.describe("x1"));
  sizes = broadcast(c, c.type("x1").sizes, c.type("x2").sizes);
  return {ir::Type::tensor(dtype, sizes)};
}
// sum of x1 / max(|x1|, eps) x2 / max(|x2|, eps)
const OpDef kCosineSimilarity{
    .schema = "aten::cosine_similarity(Tensor x1, Tensor x2, int dim=1, float eps=1e-08) -> Tensor",
    .types = [](const Call& c) -> Types {
      Sizes sizes;
      Types types = similarity_types(c, sizes);
      int64_t dim = c.dim("dim", static_cast<int64_t>(sizes.size()));
      if (!sizes.empty()) sizes.erase(sizes.begin() + dim);
      return {ir::Type::tensor(types[0].dtype, sizes)};
    },
    .decompose = [](Builder& b, const Call& c) -> Tensors {
      Sizes sizes;
      DType dtype = similarity_types(c, sizes)[0].dtype;
      auto operand = [&](std::string_view name) {
        return expand(to(tensor(b, c, name), compute_type(dtype)), sizes);
      };
      int64_t dim = c.dim("dim", static_cast<int64_t>(sizes.size()));
      Tensor x1 = operand("x1");
      Tensor x2 = operand("x2");
      double eps = c.floating("eps");
      Tensor product = (x1 / guarded_norm(b, x1, dim, eps)) * (x2 / guarded_norm(b, x2, dim, eps));
      return {to(sum(product, {dim}), dtype)};
    },
    .samples = {"$[3, 4], $[3, 4]", "$[3, 4, 5], $[4, 5], -1, 0.5", "$[3, 4], $[3, 4], 0",
                "$[3, 1, 5], $[1, 4, 5], 2", "$[0, 4], $[0, 4]", "$[3, 4], $[3, 4], 1, 10.0"}};

const OpDef* const kOps[] = {&kWeightNorm,     &kInterface,     &kBackward,
                             &kDifferentiable, &kNormExceptDim, &kCosineSimilarity};

}  // namespace

Family weight_norm_family() { return kOps; }

}  // namespace tandem::ops
