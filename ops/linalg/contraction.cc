// Contractions of any dimensions: tensordot, inner, bilinear; as mm and bmm of the operands seen as
// matrices.
#include <algorithm>

#include "ops/delegate.h"
#include "ops/elements.h"
#include "ops/linalg/operands.h"

namespace tandem::ops {

using namespace linalg;  // NOLINT(google-build-using-namespace): what the files of linalg/ share

namespace {

const OpDef kLinalgMatmul{.schema = "aten::linalg_matmul(Tensor self, Tensor other) -> Tensor",
                          .types = other_types<"aten.matmul">,
                          .decompose = other_call<"aten.matmul">,
                          .samples = {"$[3, 4], $[4, 5]", "$[2, 3, 4], $[4]"},
                          .out = true};

struct Contraction {
  std::vector<int64_t> left, right;
};
Contraction contraction_of(const Call& c) {
  const ir::Type& self = c.type("self");
  const ir::Type& other = c.type("other");
  if (c.op().schema.find("dims_self") < 0) return {{self.rank() - 1}, {other.rank() - 1}};
  auto wrapped = [&](std::string_view name, int64_t rank) {
    std::vector<int64_t> dims = c.constants(name);
    for (int64_t& dim : dims) dim = c.wrapped(dim, rank);
    std::vector<int64_t> unique = dims;
    std::sort(unique.begin(), unique.end());
    if (std::adjacent_find(unique.begin(), unique.end()) != unique.end())
      c.fail(c.describe(name) + " names a dimension twice");
    return dims;
  };
  Contraction dims{wrapped("dims_self", self.rank()), wrapped("dims_other", other.rank())};
  if (dims.left.size() != dims.right.size()) c.fail("dims_self and dims_other differ in length");
  return dims;
}
std::vector<int64_t> others(const std::vector<int64_t>& dims, int64_t rank) {
  std::vector<int64_t> rest;
  for (int64_t i = 0; i < rank; ++i)
    if (std::find(dims.begin(), dims.end(), i) == dims.end()) rest.push_back(i);
  return rest;
}
Types contracted_types(const Call& c) {
  Contraction dims = contraction_of(c);
  need_same_dtype(c, {"self", "other"});
  need_number(c, "self");
  const ir::Type& self = c.type("self");
  const ir::Type& other = c.type("other");
  for (size_t i = 0; i < dims.left.size(); ++i) {
    Expr a = self.sizes[dims.left[i]];
    Expr b = other.sizes[dims.right[i]];
    if (a != Expr(1) && b != Expr(1)) need_equal(c, a, b);
  }
  Sizes sizes;
  for (int64_t dim : others(dims.left, self.rank())) sizes.push_back(self.sizes[dim]);
  for (int64_t dim : others(dims.right, other.rank())) sizes.push_back(other.sizes[dim]);
  return {ir::Type::tensor(self.dtype, sizes)};
}
/// x as a matrix, `rows` first.
Tensor as_matrix(Tensor x, std::vector<int64_t> rows, const std::vector<int64_t>& columns) {
  Expr height = 1;
  Expr width = 1;
  for (int64_t dim : rows) height = height * x.size(dim);
  for (int64_t dim : columns) width = width * x.size(dim);
  rows.insert(rows.end(), columns.begin(), columns.end());
  return reshape(permute(x, rows), {height, width});
}
// A dimension of one element is broadcast: the other tensor is summed over it first.
Tensors contract(Builder& b, const Call& c) {
  Contraction dims = contraction_of(c);
  Tensor x = self_of(b, c);
  Tensor y = tensor(b, c, "other");
  for (size_t i = 0; i < dims.left.size(); ++i) {
    bool x_is_one = x.size(dims.left[i]) == Expr(1);
    bool y_is_one = y.size(dims.right[i]) == Expr(1);
    if (x_is_one && !y_is_one) y = to(sum(y, {dims.right[i]}, true), x.dtype());
    if (y_is_one && !x_is_one) x = to(sum(x, {dims.left[i]}, true), y.dtype());
  }
  Tensor left = as_matrix(x, others(dims.left, x.rank()), dims.left);
  Tensor right = as_matrix(y, dims.right, others(dims.right, y.rank()));
  return {reshape(mm(left, right), c.result()->type.sizes)};
}
const OpDef kTensordot{
    .schema =
        "aten::tensordot(Tensor self, Tensor other, int[] dims_self, int[] dims_other) -> "
        "Tensor",
    .types = contracted_types,
    .decompose = contract,
    .samples = {"$[2, 3, 4], $[4, 3, 5], [1, 2], [1, 0]", "$[3, 4], $[5], [], []",
                "$[3, 4], $[4, 3], [-1], [0]", "$[3, 1], $[4, 2], [1], [0]",
                "$[3, 4], $[3, 4], [0, 1], [0, 1]", "$[3, 4], $[5, 4], [0], [0]",
                "$[3, 4], $[3, 4], [0, 0], [0, 1]"},
    .out = true};
const OpDef kInner{.schema = "aten::inner(Tensor self, Tensor other) -> Tensor",
                   .types = [](const Call& c) -> Types {
                     bool scales = c.type("self").rank() == 0 || c.type("other").rank() == 0;
                     if (scales) return binary(c);
                     need_equal(c, c.type("self").sizes.back(), c.type("other").sizes.back());
                     return contracted_types(c);
                   },
                   .decompose = [](Builder& b, const Call& c) -> Tensors {
                     bool scales = c.type("self").rank() == 0 || c.type("other").rank() == 0;
                     if (scales) return {self_of(b, c) * tensor(b, c, "other")};
                     return contract(b, c);
                   },
                   .samples = {"$[5], $[5]", "$[2, 3, 4], $[5, 4]", "$[], $[2, 3]",
                               "$[3, 0], $[2, 0]", "$[3, 4], $[4, 3]"},
                   .out = true};

/// y[.., o] = x1[.., i] w[o, i, j] x2[.., j] + bias[o]
const OpDef kBilinear{
    .schema =
        "aten::bilinear(Tensor input1, Tensor input2, Tensor weight, Tensor? bias=None) -> "
        "Tensor",
    .types = [](const Call& c) -> Types {
      need_rank(c, "weight", 3, 3);
      need_same_dtype(c, {"input1", "input2", "weight", "bias"});
      need_number(c, "input1");
      const Sizes& w = c.type("weight").sizes;
      Sizes left = c.type("input1").sizes;
      const Sizes& right = c.type("input2").sizes;
      bool ranks = !left.empty() && left.size() == right.size();
      for (size_t i = 0; ranks && i + 1 < left.size(); ++i) ranks = equal_sizes(left[i], right[i]);
      if (!ranks) c.fail("input1 and input2 must have the same sizes but for the last");
      need_equal(c, left.back(), w[1]);
      need_equal(c, right.back(), w[2]);
      left.back() = w[0];
      if (c.has("bias") &&
          (c.type("bias").rank() != 1 || !equal_sizes(c.type("bias").sizes[0], w[0])))
        c.fail(c.describe("bias") + " does not fit weight");
      return {ir::Type::tensor(c.type("input1").dtype, left)};
    },
    .decompose = [](Builder& b, const Call& c) -> Tensors {
      Tensor x = tensor(b, c, "input1");
      Tensor y = tensor(b, c, "input2");
      Tensor w = tensor(b, c, "weight");
      DType dtype = x.dtype();
      Expr rows = sym::product(std::span(x.sizes()).first(x.sizes().size() - 1));
      Tensor matrix = reshape(permute(w, {1, 0, 2}), {w.size(1), w.size(0) * w.size(2)});
      Tensor half = mm(widened(reshape(x, {rows, x.size(-1)})), widened(matrix));
      half = reshape(half, {rows, w.size(0), w.size(2)});
      Tensor right = unsqueeze(reshape(y, {rows, y.size(-1)}), 1);
      Tensor result = to(sum(half * widened(right), {2}), dtype);
      if (c.has("bias")) result = result + tensor(b, c, "bias");
      return {reshape(result, c.result()->type.sizes)};
    },
    .samples = {"$[3, 4], $[3, 5], $[2, 4, 5], $[2]", "$[2, 3, 4], $[2, 3, 5], $[2, 4, 5]",
                "$[4], $[5], $[2, 4, 5], $[2]", "$[0, 4], $[0, 5], $[2, 4, 5]",
                "$[3, 4], $[2, 5], $[2, 4, 5]"}};

const OpDef* const kOps[] = {&kLinalgMatmul, &kTensordot, &kInner, &kBilinear};

}  // namespace

Family contraction_family() { return kOps; }

}  // namespace tandem::ops
