// Norms of vectors, and the logarithm of a sum of exponentials: a function of each element, a
// reduction, and the inverse of the function.
#include <fmt/format.h>

#include <cmath>

#include "ops/families.h"
#include "ops/reduce/reductions.h"

namespace tandem::ops {
namespace {

Tensor self_of(Builder& b, const Call& c) { return {b, c.value("self")}; }
Tensor result_of(Builder& b, const Call& c, size_t i = 0) { return {b, c.result(i)}; }
Tensor widened(Tensor x) { return to(x, compute_type(to_float(x.dtype()))); }

// m + log(sum(exp(x - m))), m the maximum, or 0 where that is infinite
Tensors logsumexp_parts(Builder& b, const Call& c) {
  Tensor x = widened(self_of(b, c));
  std::vector<int64_t> dims = reduced_dims(c);
  DType dtype = c.result()->type.dtype;
  if (reduced_count(c) == Expr(0)) return {to(log(sum(exp(x), dims, keeps_dims(c))), dtype)};
  Tensor top = amax(x, dims, true);
  top = where(compare("eq", abs(top), HUGE_VAL), 0.0, top);
  Tensor total = log(sum(exp(x - top), dims, keeps_dims(c)));
  return {to(total + reshape(top, total.sizes()), dtype)};
}
const OpDef kLogsumexp{
    .schema = "aten::logsumexp(Tensor self, int[1] dim, bool keepdim=False) -> Tensor",
    .types = [](const Call& c) { return reduced_types(c, to_float(c.type("self").dtype)); },
    .decompose = logsumexp_parts,
    // d logsumexp(x) = exp(x - y) dx
    .vjp = [](Builder& b, const Call& c, Grads g) -> Gradients {
      Tensor x = widened(self_of(b, c));
      Tensor share = exp(x - against_self(widened(result_of(b, c)), c));
      return {{"self", to(against_self(widened(g[0]), c) * share, c.type("self").dtype)}};
    },
    .samples = {"$[3, 4], [1]", "$[3, 4], [0], true", "$[2, 3, 4], [0, 2]", "$[3, 0], [1]",
                "$[6, 33]:special, [1]"},
    .out = true};

DType norm_dtype(const Call& c) { return part_type(c.dtype("dtype", c.type("self").dtype)); }
/// Of complex numbers that of their sizes.
Tensors norm_of_sizes(Builder& b, const Call& c) {
  return {call(b, "aten.linalg_vector_norm",
               {abs(self_of(b, c)), c.arg("ord"), c.arg("dim"), c.arg("keepdim"), norm_dtype(c)})};
}
Tensors norm_parts(Builder& b, const Call& c) {
  Tensor x = abs(to(self_of(b, c), compute_type(norm_dtype(c))));
  std::vector<int64_t> dims = reduced_dims(c);
  bool keep = keeps_dims(c);
  double p = c.floating("ord");
  Tensor norm;
  if (p == 2)
    norm = sqrt(sum(x * x, dims, keep));
  else if (p == 1)
    norm = sum(x, dims, keep);
  else if (p == 0)
    norm = sum(to(compare("ne", x, 0.0), x.dtype()), dims, keep);
  else if (p == HUGE_VAL)
    norm = amax(x, dims, keep);
  else if (p == -HUGE_VAL)
    norm = call(b, "aten.amin", {x, dims, keep});
  else
    norm = pow(sum(pow(x, p), dims, keep), 1 / p);
  return {to(norm, c.result()->type.dtype)};
}
/// Gradient against |x| times what is shared over the norm; 0 where the norm is 0, and no 0 / 0 on
/// the way: the gradient of the gradient would keep it.
Gradients norm_vjp(Builder& b, const Call& c, Grads g) {
  Tensor x = to(self_of(b, c), compute_type(norm_dtype(c)));
  Tensor norm = against_self(widened(result_of(b, c)), c);
  Tensor grad = against_self(widened(g[0]), c);
  double p = c.floating("ord");
  if (p == 0) return {};
  Tensor result;
  if (p == 2) {
    const Tensor none = compare("eq", norm, 0.0);
    result = where(none, 0.0, x * (grad / where(none, 1.0, norm)));
  } else if (p == 1) {
    result = sign(x) * grad;
  } else if (std::isinf(p)) {
    Tensor reached = to(eq(abs(x), norm), x.dtype());
    result = sign(x) * reached * (grad / sum(reached, reduced_dims(c), true));
  } else {
    const Tensor zero = compare("eq", x, 0.0);
    Tensor slope = sign(x) * pow(where(zero, 1.0, abs(x)), p - 1);
    const Tensor none = compare("eq", norm, 0.0);
    result = where(none, 0.0, slope * (grad / pow(where(none, 1.0, norm), p - 1)));
  }
  return {{"self", to(result, c.type("self").dtype)}};
}
const OpDef kVectorNorm{
    .schema =
        "aten::linalg_vector_norm(Tensor self, Scalar ord=2, int[1]? dim=None, bool keepdim=False, "
        "*, "
        "ScalarType? dtype=None) -> Tensor",
    .types =
        [](const Call& c) {
          const DType self = part_type(c.type("self").dtype);
          if (!is_float(self)) need_float(c, "self");
          if (!is_float(norm_dtype(c)) || promote(self, norm_dtype(c)) != norm_dtype(c))
            c.fail(fmt::format("{} does not go into a norm of {} without narrowing",
                               c.describe("self"), name_of(norm_dtype(c))));
          if (c.floating("ord") < 0) need_elements(c);
          return reduced_types(c, norm_dtype(c));
        },
    .decompose = norm_parts,
    .vjp = norm_vjp,
    .samples = {"$[3, 4]", "$[3, 4], 2, [1]", "$[3, 4], 1, [0], true", "$[3, 4], inf, [1]",
                "$[3, 4], 3, [1]", "$[3, 4], 0", "$[0]", "$[300]"},
    .out = true,
    .complex = {.composition = norm_of_sizes}};

const OpDef* const kOps[] = {&kLogsumexp, &kVectorNorm};

}  // namespace

Family vector_norm_family() { return kOps; }

}  // namespace tandem::ops
