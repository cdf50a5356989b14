// The cross product, along a dimension of three elements.
#include <fmt/format.h>

#include "ops/elements.h"
#include "ops/linalg/operands.h"

namespace tandem::ops {

using namespace linalg;  // NOLINT(google-build-using-namespace): what the files of linalg/ share

namespace {

bool is_three(Expr size) { return size == Expr(3); }
int64_t cross_dim(const Call& c, const Sizes& sizes) {
  int64_t rank = static_cast<int64_t>(sizes.size());
  if (c.has("dim")) {
    int64_t dim = c.dim("dim", rank);
    if (rank == 0 || !is_three(sizes[dim]))
      c.fail(fmt::format("dimension {} must have 3 elements", dim));
    return dim;
  }
  for (int64_t i = 0; i < rank; ++i)
    if (is_three(sizes[i])) return i;
  c.fail("no dimension has 3 elements");
}
Sizes cross_sizes(const Call& c) {
  if (c.type("self").rank() != c.type("other").rank())
    c.fail("self and other must have the same number of dimensions");
  return broadcast(c, c.type("self").sizes, c.type("other").sizes);
}
Types cross_types(const Call& c) {
  Sizes sizes = cross_sizes(c);
  int64_t dim = cross_dim(c, sizes);
  need_number(c, "self");
  need_same_dtype(c, {"self", "other"});
  if (!is_three(c.type("self").sizes[dim]) || !is_three(c.type("other").sizes[dim]))
    c.fail(fmt::format("dimension {} of both must have 3 elements", dim));
  return {ir::Type::tensor(c.type("self").dtype, sizes)};
}
// (a x b)[i] = a[i + 1] b[i + 2] - a[i + 2] b[i + 1], indices modulo 3
Tensors cross(Builder& b, const Call& c) {
  int64_t dim = cross_dim(c, c.result()->type.sizes);
  auto turned = [&](std::string_view name, int64_t by) {
    return call(b, "aten.roll",
                {widened(tensor(b, c, name)), ir::Ints{-by}, std::vector<int64_t>{dim}});
  };
  Tensor result = turned("self", 1) * turned("other", 2) - turned("self", 2) * turned("other", 1);
  return {to(result, c.result()->type.dtype)};
}
const OpDef kCross{.schema = "aten::cross(Tensor self, Tensor other, int? dim=None) -> Tensor",
                   .types = cross_types,
                   .decompose = cross,
                   .samples = {"$[3], $[3]", "$[2, 3], $[2, 3]", "$[3, 2, 3], $[3, 2, 3], 2",
                               "$[3, 3], $[3, 3]", "$[2, 4], $[2, 4]", "$[2, 3], $[2, 3], 0"},
                   .sample_dtypes = DTypes::numbers,
                   .out = true};
const OpDef kLinalgCross{
    .schema = "aten::linalg_cross(Tensor self, Tensor other, *, int dim=-1) -> Tensor",
    .types = cross_types,
    .decompose = cross,
    .samples = {"$[3], $[3]", "$[2, 3], $[1, 3]", "$[3, 2], $[3, 2], dim=0", "$[3, 2], $[3, 2]",
                "$[0, 3], $[0, 3]", "$[3], $[2, 3]"},
    .sample_dtypes = DTypes::numbers,
    .out = true};

const OpDef* const kOps[] = {&kCross, &kLinalgCross};

}  // namespace

Family cross_family() { return kOps; }

}  // namespace tandem::ops
