// Products over dimensions. Those of 16-bit floats accumulate in f32 and round once; integers
// multiply in i64.
#include "base/diagnostic.h"
#include "ops/families.h"
#include "ops/reduce/reductions.h"

namespace tandem::ops {
namespace {

using loop::Combiner;

Tensor self_of(Builder& b, const Call& c) { return {b, c.value("self")}; }
Tensor widened(Tensor x) { return to(x, compute_type(to_float(x.dtype()))); }

DType product_result(const Call& c) {
  DType self = c.type("self").dtype;
  return c.dtype("dtype", is_float(self) || is_complex(self) ? self : DType::i64);
}
Types product_types(const Call& c) { return reduced_types(c, product_result(c)); }
Definition product_lower(Lowering& lowering, const Call& c) {
  return reduce_self(lowering, c, reduced_dims(c), keeps_dims(c), Combiner::prod,
                     accumulate_type(product_result(c)));
}
// Without zeros d prod = prod / x. With one zero only that element has a gradient: the product of
// the others. With more there is none.
Gradients product_vjp(Builder& b, const Call& c, Grads g) {
  Tensor x = widened(self_of(b, c));
  std::vector<int64_t> dims = reduced_dims(c);
  Tensor is_zero = compare("eq", x, 0.0);
  Tensor nonzero = where(is_zero, 1.0, x);
  Tensor product = nonzero;
  for (size_t i = 0; i < dims.size(); ++i)
    product = call(b, "aten.prod.dim_int", {product, dims[i], true});
  Tensor zeros = sum(to(is_zero, DType::f32), dims, true);
  Tensor others = where(compare("eq", zeros, 0.0), product / nonzero, 0.0);
  Tensor of_zero = where(compare("eq", zeros, 1.0), product, 0.0);
  Tensor grad = against_self(widened(g[0]), c) * where(is_zero, of_zero, others);
  return {{"self", to(grad, c.type("self").dtype)}};
}
/// Of complex numbers halves are multiplied, until one is left.
Tensor product_of_halves(const Call& c, Tensor x, int64_t dim) {
  const std::optional<int64_t> length = x.size(dim).constant();
  if (!length) c.fail_unknown("the number of complex factors", x.size(dim));
  int64_t n = *length;
  if (n == 0) {
    ir::Sizes sizes = x.sizes();
    sizes[static_cast<size_t>(dim)] = 1;
    return call(x.builder(), "aten.ones", {sizes, x.dtype()});
  }
  Tensor rest;
  for (; n > 1; n /= 2) {
    if (n % 2 == 1) {
      const Tensor last = slice(x, dim, n - 1, n);
      rest = rest ? rest * last : last;
    }
    x = slice(x, dim, 0, n / 2) * slice(x, dim, n / 2, n / 2 * 2);
  }
  return rest ? x * rest : x;
}
Tensors product_of_complex(Builder& b, const Call& c) {
  Tensor x = to(self_of(b, c), c.result()->type.dtype);
  for (int64_t dim : reduced_dims(c))
    if (dim < x.rank()) x = product_of_halves(c, x, dim);
  return {reshape(x, c.result()->type.sizes)};
}
const OpDef kProd{.schema = "aten::prod(Tensor self, *, ScalarType? dtype=None) -> Tensor",
                  .types = product_types,
                  .lower = product_lower,
                  .vjp = product_vjp,
                  .samples = {"$[3, 4]", "$[]", "$[0]", "$[2, 3]:positive"},
                  .sample_dtypes = DTypes::all,
                  .out = true,
                  .batch = batch_whole,
                  .complex = {.composition = product_of_complex}};
const OpDef kProdDim{.schema =
                         "aten::prod.dim_int(Tensor self, int dim, bool keepdim=False, *, "
                         "ScalarType? dtype=None) -> Tensor",
                     .types = product_types,
                     .lower = product_lower,
                     .vjp = product_vjp,
                     .samples = {"$[3, 4], 1", "$[3, 4], 0, true", "$[2, 3, 4], -2", "$[0, 3], 0",
                                 "$[], 0", "$[4, 3]{1, 4}, 0"},
                     .sample_dtypes = DTypes::all,
                     .batch = batch_along_dims,
                     .complex = {.composition = product_of_complex}};

const OpDef* const kOps[] = {&kProd, &kProdDim};

}  // namespace

Family prod_family() { return kOps; }

}  // namespace tandem::ops
