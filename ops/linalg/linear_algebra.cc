// Products by other names: of vectors, of outer and inner dimensions, chains and powers of
// matrices. A product with a vector is a sum over rows, which no library does faster; other
// products go to mm and bmm. Sums of 16-bit floats are wide until the end.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/diagnostic.h"
#include "ops/delegate.h"
#include "ops/elements.h"

namespace tandem::ops {
namespace {

Tensor tensor(Builder& b, const Call& c, std::string_view name) { return {b, c.value(name)}; }
Tensor self_of(Builder& b, const Call& c) { return tensor(b, c, "self"); }
Tensor widened(Tensor x) { return to(x, compute_type(x.dtype())); }
bool equal_sizes(Expr a, Expr b) { return a == b || sym::known_eq(a, b); }

void need_equal(const Call& c, Expr a, Expr b) {
  if (!equal_sizes(a, b))
    c.fail(fmt::format("sizes {} and {} differ", sym::to_string(a), sym::to_string(b)));
}
void need_factor(const Call& c, std::string_view name, int64_t rank) {
  need_rank(c, name, rank, rank);
  need_number(c, name);
}
/// sum(a b) over one dimension, of a's dtype.
Tensor sum_product(Tensor a, Tensor b, int64_t dim) {
  DType dtype = a.dtype();
  return to(sum(widened(a) * widened(b), {dim}), dtype);
}

// --- vectors
// --------------------------------------------------------------------------------------

std::string_view second(const Call& c) { return c.op().schema.params[1].name; }
Types dot_types(const Call& c) {
  need_factor(c, "self", 1);
  need_factor(c, second(c), 1);
  need_same_dtype(c, {"self", second(c)});
  need_equal(c, c.type("self").sizes[0], c.type(second(c)).sizes[0]);
  return {ir::Type::tensor(c.type("self").dtype, {})};
}
Tensors dot(Builder& b, const Call& c) {
  return {sum_product(self_of(b, c), tensor(b, c, second(c)), 0)};
}
const OpDef kDot{.schema = "aten::dot(Tensor self, Tensor tensor) -> Tensor",
                 .types = dot_types,
                 .decompose = dot,
                 .samples = {"$[5], $[5]", "$[0], $[0]", "$[700], $[700]", "$[5], $[4]",
                             "$[2, 2], $[2, 2]", "$[5]{2}, $[5]{3}"},
                 .sample_dtypes = DTypes::numbers,
                 .out = true};
const OpDef kVdot{.schema = "aten::vdot(Tensor self, Tensor other) -> Tensor",
                  .types = dot_types,
                  .decompose = dot,
                  .samples = {"$[5], $[5]", "$[0], $[0]"},
                  .sample_dtypes = DTypes::numbers,
                  .out = true};

Types mv_types(const Call& c) {
  std::string_view matrix = c.op().schema.find("mat") >= 0 ? "mat" : "self";
  need_factor(c, matrix, 2);
  need_factor(c, "vec", 1);
  need_same_dtype(c, {matrix, "vec"});
  need_equal(c, c.type(matrix).sizes[1], c.type("vec").sizes[0]);
  return {ir::Type::tensor(c.type(matrix).dtype, {c.type(matrix).sizes[0]})};
}
const OpDef kMv{.schema = "aten::mv(Tensor self, Tensor vec) -> Tensor",
                .types = mv_types,
                .decompose = [](Builder& b, const Call& c) -> Tensors {
                  return {sum_product(self_of(b, c), tensor(b, c, "vec"), 1)};
                },
                .samples = {"$[3, 4], $[4]", "$[3, 0], $[0]", "$[40, 70], $[70]",
                            "$[30, 40]{1, 30}, $[40]", "$[3, 4], $[3]"},
                .sample_dtypes = DTypes::numbers,
                .out = true};

/// beta self + alpha product, with whole alpha and beta for integers; beta 0 ignores self, NaN
/// included.
Tensor scaled_sum(Builder& b, const Call& c, Tensor product) {
  auto scaled = [&](Tensor x, std::string_view by) {
    const double* number = std::get_if<double>(&c.arg(by));
    bool truncates = number != nullptr && !is_float(x.dtype());
    Operand factor = truncates ? Operand(static_cast<int64_t>(*number)) : Operand(c.arg(by));
    return c.arg(by) == ir::Arg(Expr(1)) ? x : call(b, "aten.mul.Scalar", {x, factor});
  };
  Tensor result = scaled(product, "alpha");
  bool ignores = c.floating("beta") == 0;
  if (!ignores) result = result + scaled(to(self_of(b, c), result.dtype()), "beta");
  return to(result, c.result()->type.dtype);
}
/// The product's type, after self was found to broadcast to it.
Types added_types(const Call& c, const ir::Type& product) {
  if (broadcast(c, c.type("self").sizes, product.sizes) != product.sizes)
    c.fail(fmt::format("{} does not broadcast to the product {}", c.describe("self"),
                       to_string(product)));
  return {product};
}
const OpDef kAddmv{
    .schema =
        "aten::addmv(Tensor self, Tensor mat, Tensor vec, *, Scalar beta=1, Scalar alpha=1) "
        "-> Tensor",
    .types =
        [](const Call& c) {
          need_same_dtype(c, {"self", "mat"});
          return added_types(c, mv_types(c)[0]);
        },
    .decompose = [](Builder& b, const Call& c) -> Tensors {
      Tensor terms = widened(tensor(b, c, "mat")) * widened(tensor(b, c, "vec"));
      Tensor product = sum(terms, {1});
      return {scaled_sum(b, c, product)};
    },
    .samples = {"$[3], $[3, 4], $[4]", "$[], $[3, 4], $[4], beta=0.5, alpha=2.0",
                "$[1], $[3, 4], $[4], beta=0", "$[3], $[3, 0], $[0], beta=2",
                "$[4], $[3, 4], $[4]"},
    .inplace = true,
    .out = true};

Types outer_types(const Call& c) {
  need_rank(c, "self", 1, 1);
  need_rank(c, "vec2", 1, 1);
  return {ir::Type::tensor(common_dtype(c, {"self", "vec2"}),
                           {c.type("self").sizes[0], c.type("vec2").sizes[0]})};
}
Tensors outer(Builder& b, const Call& c) {
  return {unsqueeze(self_of(b, c), 1) * tensor(b, c, "vec2")};
}
const Samples kOuterSamples = {"$[3], $[4]", "$[0], $[4]", "$[3], f32[2]", "$[2, 2], $[2]"};
const OpDef kOuter{.schema = "aten::outer(Tensor self, Tensor vec2) -> Tensor",
                   .types = outer_types,
                   .decompose = outer,
                   .samples = kOuterSamples,
                   .sample_dtypes = DTypes::all,
                   .out = true};
const OpDef kGer{.schema = "aten::ger(Tensor self, Tensor vec2) -> Tensor",
                 .types = outer_types,
                 .decompose = outer,
                 .samples = kOuterSamples,
                 .sample_dtypes = DTypes::all,
                 .out = true};
const OpDef kAddr{.schema =
                      "aten::addr(Tensor self, Tensor vec1, Tensor vec2, *, Scalar beta=1, Scalar "
                      "alpha=1) -> Tensor",
                  .types = [](const Call& c) -> Types {
                    need_rank(c, "vec1", 1, 1);
                    need_rank(c, "vec2", 1, 1);
                    DType dtype = common_dtype(c, {"self", "vec1", "vec2"});
                    for (std::string_view name : {"alpha", "beta"})
                      if (!is_float(dtype) && std::holds_alternative<double>(c.arg(name)))
                        c.fail(c.describe(name) + " must be an integer for a product of integers");
                    return added_types(c, ir::Type::tensor(dtype, {c.type("vec1").sizes[0],
                                                                   c.type("vec2").sizes[0]}));
                  },
                  .decompose = [](Builder& b, const Call& c) -> Tensors {
                    DType wide = compute_type(c.result()->type.dtype);
                    Tensor left = to(unsqueeze(tensor(b, c, "vec1"), 1), wide);
                    return {scaled_sum(b, c, left * to(tensor(b, c, "vec2"), wide))};
                  },
                  .samples = {"$[3, 4], $[3], $[4]", "$[4], $[3], $[4], beta=2, alpha=3",
                              "$[3, 1], $[3], $[4], beta=0", "$[3, 4], $[4], $[3]"},
                  .sample_dtypes = DTypes::numbers,
                  .inplace = true,
                  .out = true};

// sum over the batch is a longer sum: [n, b m] times [b m, p]
const OpDef kAddbmm{
    .schema =
        "aten::addbmm(Tensor self, Tensor batch1, Tensor batch2, *, Scalar beta=1, Scalar "
        "alpha=1) -> Tensor",
    .types = [](const Call& c) -> Types {
      std::vector<ir::Arg> factors{c.arg("batch1"), c.arg("batch2")};
      ir::Type product = types_of("aten.bmm", factors)[0];
      need_same_dtype(c, {"self", "batch1"});
      return added_types(c, ir::Type::tensor(product.dtype, {product.sizes[1], product.sizes[2]}));
    },
    .decompose = [](Builder& b, const Call& c) -> Tensors {
      Tensor left = permute(tensor(b, c, "batch1"), {1, 0, 2});
      Tensor right = tensor(b, c, "batch2");
      Expr length = right.size(0) * right.size(1);
      left = reshape(left, {left.size(0), length});
      right = reshape(right, {length, right.size(2)});
      return {call(b, "aten.addmm", {c.arg("self"), left, right, c.arg("beta"), c.arg("alpha")})};
    },
    .samples = {"$[3, 5], $[2, 3, 4], $[2, 4, 5]",
                "$[3, 5], $[2, 3, 4], $[2, 4, 5], beta=0.5, alpha=2.0",
                "$[3, 5], $[0, 3, 4], $[0, 4, 5]", "$[3, 5], $[2, 3, 4], $[3, 4, 5]"},
    .inplace = true,
    .out = true};

const OpDef kVecdot{.schema = "aten::linalg_vecdot(Tensor x, Tensor y, *, int dim=-1) -> Tensor",
                    .types = [](const Call& c) -> Types {
                      need_same_dtype(c, {"x", "y"});
                      need_number(c, "x");
                      Sizes sizes = broadcast(c, c.type("x").sizes, c.type("y").sizes);
                      if (sizes.empty()) c.fail("needs a dimension");
                      sizes.erase(sizes.begin() + c.dim("dim", static_cast<int64_t>(sizes.size())));
                      return {ir::Type::tensor(c.type("x").dtype, sizes)};
                    },
                    .decompose = [](Builder& b, const Call& c) -> Tensors {
                      Tensor terms = widened(tensor(b, c, "x")) * widened(tensor(b, c, "y"));
                      return {to(sum(terms, {c.dim("dim", terms.rank())}), c.result()->type.dtype)};
                    },
                    .samples = {"f32[3, 4], f32[3, 4]", "f64[2, 3, 4], f64[3, 4], dim=1",
                                "bf16[5], bf16[5]", "f64[0], f64[0]", "f64[3, 4], f64[4]"},
                    .out = true};

// --- any dimensions
// -------------------------------------------------------------------------------

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

// --- chains and powers
// ----------------------------------------------------------------------------

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

// --- cross
// ----------------------------------------------------------------------------------------

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

const OpDef* const kOps[] = {&kDot,
                             &kVdot,
                             &kMv,
                             &kAddmv,
                             &kOuter,
                             &kGer,
                             &kAddr,
                             &kAddbmm,
                             &kVecdot,
                             &kLinalgMatmul,
                             &kTensordot,
                             &kInner,
                             &kBilinear,
                             &kChainMatmul,
                             &kMultiDot,
                             &kMatrixPower,
                             &kLinalgMatrixPower,
                             &kKron,
                             &kCross,
                             &kLinalgCross};

}  // namespace

Family linear_algebra_family() { return kOps; }

}  // namespace tandem::ops
