// Chains and powers of matrices, products of Kronecker.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/diagnostic.h"
#include "ops/elements.h"
#include "ops/linalg/operands.h"

namespace tandem::ops {

using namespace linalg;  // NOLINT(google-build-using-namespace): what the files of linalg/ share

namespace {

/// Where to split each part of a chain so that the whole takes the fewest multiplications; from the
/// left where sizes are symbols.
class ChainOrder {
 public:
  explicit ChainOrder(const Tensors& matrices) : matrices_(matrices) {
    size_t n = matrices.size();
    for (const Tensor& matrix : matrices) sizes_.push_back(estimate(matrix.size(0)));
    sizes_.push_back(estimate(matrices.back().size(1)));
    cost_.assign(n, std::vector<double>(n, 0));
    split_.assign(n, std::vector<size_t>(n, 0));
    for (size_t length = 2; length <= n; ++length)
      for (size_t first = 0; first + length <= n; ++first) decide(first, first + length - 1);
  }
  Tensor product(size_t first, size_t last) const {
    if (first == last) return matrices_[first];
    size_t split = split_[first][last];
    return mm(product(first, split), product(split + 1, last));
  }

 private:
  static double estimate(Expr size) {
    return static_cast<double>(size.constant().value_or(kTypicalSize));
  }
  void decide(size_t first, size_t last) {
    double least = HUGE_VAL;
    for (size_t at = first; at < last; ++at) {
      double cost = cost_[first][at] + cost_[at + 1][last] +
                    sizes_[first] * sizes_[at + 1] * sizes_[last + 1];
      if (cost >= least) continue;
      least = cost;
      split_[first][last] = at;
    }
    cost_[first][last] = least;
  }
  static constexpr int64_t kTypicalSize = 256;
  const Tensors& matrices_;
  std::vector<double> sizes_;
  std::vector<std::vector<double>> cost_;
  std::vector<std::vector<size_t>> split_;
};
constexpr size_t kMostMatrices = 256;
std::string_view list_name(const Call& c) { return c.op().schema.params[0].name; }
/// Sizes of the product of a chain; vectors are allowed at its ends where `vectors` says so.
Types chain_types(const Call& c, bool vectors) {
  const ir::Values& values = c.values(list_name(c));
  if (values.empty() || (vectors && values.size() < 2)) c.fail("needs more matrices");
  if (values.size() > kMostMatrices) c.fail("has too many matrices");
  Sizes sizes;
  for (size_t i = 0; i < values.size(); ++i) {
    const ir::Type& type = values[i]->type;
    bool end = i == 0 || i + 1 == values.size();
    if (type.rank() != 2 && !(vectors && end && type.rank() == 1))
      c.fail(fmt::format("tensor {} of {} must have 2 dimensions", i, to_string(type)));
    if (type.dtype != values[0]->type.dtype) c.fail("tensors must have the same dtype");
    if (values.size() > 1 && type.dtype == DType::boolean)
      c.fail("a product of bool tensors is not defined");
    if (i == 0) {
      sizes = type.sizes;
      continue;
    }
    need_equal(c, sizes.back(), type.sizes[0]);
    sizes.pop_back();
    if (type.rank() == 2) sizes.push_back(type.sizes[1]);
  }
  return {ir::Type::tensor(values[0]->type.dtype, sizes)};
}
Tensors chain(Builder& b, const Call& c) {
  Tensors matrices;
  for (ir::Value* value : c.values(list_name(c))) matrices.push_back({b, value});
  if (matrices.size() == 1) return {call(b, "aten.clone", {matrices[0]})};
  if (matrices.front().rank() == 1) matrices.front() = unsqueeze(matrices.front(), 0);
  if (matrices.back().rank() == 1) matrices.back() = unsqueeze(matrices.back(), 1);
  Tensor product = ChainOrder(matrices).product(0, matrices.size() - 1);
  return {reshape(product, c.result()->type.sizes)};
}
const OpDef kChainMatmul{
    .schema = "aten::chain_matmul(Tensor[] matrices) -> Tensor",
    .types = [](const Call& c) { return chain_types(c, false); },
    .decompose = chain,
    .samples = {"[$[3, 4]]", "[$[3, 4], $[4, 5]]", "[$[3, 4], $[4, 50], $[50, 2], $[2, 7]]",
                "[$[3, 4], $[3, 5]]"},
    .out = true};
const OpDef kMultiDot{
    .schema = "aten::linalg_multi_dot(Tensor[] tensors) -> Tensor",
    .types = [](const Call& c) { return chain_types(c, true); },
    .decompose = chain,
    .samples = {"[$[3, 4], $[4, 5]]", "[$[4], $[4, 5], $[5]]", "[$[4], $[4]]",
                "[$[3, 4], $[4, 50], $[50, 2], $[2]]", "[$[3, 4]]", "[$[3, 4], $[3, 4]]"},
    .out = true};

Types power_types(const Call& c) {
  const ir::Type& self = c.type("self");
  if (self.rank() < 2) c.fail(c.describe("self") + " must have at least 2 dimensions");
  need_equal(c, self.sizes[self.rank() - 1], self.sizes[self.rank() - 2]);
  if (c.constant("n") < 0)
    throw Unsupported(fmt::format(
        "[{}] a negative power needs an inverse: not implemented (ops); n >= 0 is accepted",
        c.op().schema.full_name()));
  return unary_same(c);
}
// By squaring; the third power as eager writes it.
Tensors matrix_power(Builder& b, const Call& c) {
  Tensor x = self_of(b, c);
  int64_t n = c.constant("n");
  if (n == 0) {
    Tensor eye = call(b, "aten.eye", {x.size(-1), x.dtype()});
    return {expand(eye, x.sizes())};
  }
  if (n == 3) return {matmul(matmul(x, x), x)};
  Tensor result;
  for (; n > 0; n /= 2) {
    if (n % 2 == 1) result = result ? matmul(result, x) : x;
    if (n > 1) x = matmul(x, x);
  }
  return {result};
}
const Samples kPowerSamples = {"$[3, 3], 0", "$[3, 3], 1",    "$[3, 3], 2", "$[3, 3], 3",
                               "$[3, 3], 6", "$[2, 3, 3], 5", "$[3, 4], 2", "$[0, 0], 2"};
const OpDef kMatrixPower{.schema = "aten::matrix_power(Tensor self, int n) -> Tensor",
                         .types = power_types,
                         .decompose = matrix_power,
                         .samples = kPowerSamples,
                         .out = true};
const OpDef kLinalgMatrixPower{.schema = "aten::linalg_matrix_power(Tensor self, int n) -> Tensor",
                               .types = power_types,
                               .decompose = matrix_power,
                               .samples = kPowerSamples,
                               .out = true};

/// Sizes with ones in front.
Sizes padded(const Sizes& sizes, size_t rank) {
  Sizes result(rank - std::min(rank, sizes.size()), Expr(1));
  result.insert(result.end(), sizes.begin(), sizes.end());
  return result;
}
const OpDef kKron{
    .schema = "aten::kron(Tensor self, Tensor other) -> Tensor",
    .types = [](const Call& c) -> Types {
      size_t rank = std::max(c.type("self").sizes.size(), c.type("other").sizes.size());
      Sizes sizes = padded(c.type("self").sizes, rank);
      Sizes right = padded(c.type("other").sizes, rank);
      for (size_t i = 0; i < rank; ++i) sizes[i] = sizes[i] * right[i];
      return {ir::Type::tensor(common_dtype(c, {"self", "other"}), sizes)};
    },
    .decompose = [](Builder& b, const Call& c) -> Tensors {
      size_t rank = c.result()->type.sizes.size();
      Sizes left;
      Sizes right;
      for (Expr size : padded(c.type("self").sizes, rank)) left.insert(left.end(), {size, Expr(1)});
      for (Expr size : padded(c.type("other").sizes, rank))
        right.insert(right.end(), {Expr(1), size});
      Tensor product = reshape(self_of(b, c), left) * reshape(tensor(b, c, "other"), right);
      return {reshape(product, c.result()->type.sizes)};
    },
    .samples = {"$[2, 3], $[3, 2]", "$[2], $[3, 2]", "$[2, 3, 2], $[2]", "$[], $[3]",
                "$[0, 2], $[3]", "$[2, 2], f32[2, 2]"},
    .sample_dtypes = DTypes::numbers,
    .out = true};

const OpDef* const kOps[] = {&kChainMatmul, &kMultiDot, &kMatrixPower, &kLinalgMatrixPower, &kKron};

}  // namespace

Family chain_family() { return kOps; }

}  // namespace tandem::ops
