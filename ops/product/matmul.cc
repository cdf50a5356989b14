// Products. The definition is the sum over k; the fast route is a library product.
//   C[.., i, j] = sum_k A[.., i, k] B[.., k, j]
#include <algorithm>

#include <fmt/format.h>

#include "ops/elements.h"
#include "ops/families.h"

namespace tandem::ops {

ProductFactors factors_of(const ir::Op& op) {
  const ir::Schema& schema = op.schema;
  if (schema.find("mat1") >= 0) return {"mat1", "mat2", "self"};
  if (schema.find("batch1") >= 0) return {"batch1", "batch2", "self"};
  if (schema.find("grad_output") >= 0) return {"grad_output", "weight", ""};
  if (schema.find("weight") >= 0) return {"input", "weight", "bias"};
  return {"self", "mat2", ""};
}

namespace {

using Operands = ProductFactors;
/// Names of the two factors: they differ between mm, bmm, addmm and baddbmm.
Operands factors(const Call& c) { return factors_of(c.op()); }

Sizes product_sizes(const Call& c, int64_t rank) {
  Operands names = factors(c);
  const ir::Type& a = c.type(names.left);
  const ir::Type& b = c.type(names.right);
  if (a.rank() != rank || b.rank() != rank)
    c.fail(fmt::format("{} and {} must have {} dimensions", c.describe(names.left),
                       c.describe(names.right), rank));
  if (a.dtype != b.dtype)
    c.fail(fmt::format("{} and {} must have the same dtype", c.describe(names.left),
                       c.describe(names.right)));
  Expr k = a.sizes[rank - 1];
  Expr l = b.sizes[rank - 2];
  if (k != l && !sym::known_eq(k, l))
    c.fail(fmt::format("{} and {}: inner sizes {} and {} differ", c.describe(names.left),
                       c.describe(names.right), sym::to_string(k), sym::to_string(l)));
  if (rank == 3 && a.sizes[0] != b.sizes[0] && !sym::known_eq(a.sizes[0], b.sizes[0]))
    c.fail(fmt::format("{} and {}: batch sizes differ", c.describe(names.left),
                       c.describe(names.right)));
  Sizes sizes = a.sizes;
  sizes[rank - 1] = b.sizes[rank - 1];
  return sizes;
}

template <int rank>
Types product_types(const Call& c) {
  DType dtype = c.type(factors(c).left).dtype;
  if (dtype == DType::boolean) c.fail("a product of bool tensors is not defined");
  return {ir::Type::tensor(dtype, product_sizes(c, rank))};
}
template <int rank>
Types add_product_types(const Call& c) {
  Types types = product_types<rank>(c);
  if (broadcast(c, c.type("self").sizes, types[0].sizes) != types[0].sizes)
    c.fail(fmt::format("{} does not broadcast to the product {}", c.describe("self"),
                       to_string(types[0])));
  if (c.type("self").dtype != types[0].dtype)
    c.fail(fmt::format("{} and the product {} must have the same dtype", c.describe("self"),
                       to_string(types[0])));
  return types;
}

/// The sum over k, in the accumulation type (floats by fused multiply-add, as BLAS does); integers
/// wrap in their own type.
Definition product(Lowering& lowering, const Call& c) {
  Definition definition;
  definition.kind = Definition::Kind::reduce;
  definition.combiner = loop::Combiner::dot;
  Operands names = factors(c);
  const ir::Type& a = c.type(names.left);
  definition.reduce_sizes = {a.sizes.back()};
  definition.input = [&lowering, c, names, dtype = compute_type(a.dtype)](const Index& out,
                                                                          const Index& r) {
    loop::ScalarPool& pool = lowering.scalars();
    Index left = out;
    Index right = out;
    left.back() = r[0];
    right[right.size() - 2] = r[0];
    loop::Val x = pool.cast(lowering.load(c.value(names.left), left), dtype);
    loop::Val y = pool.cast(lowering.load(c.value(names.right), right), dtype);
    return std::vector<loop::Val>{x, y};
  };
  return definition;
}

/// Whether the argument is 0; nothing where only a call tells.
std::optional<bool> is_zero(const ir::Arg& arg) {
  if (const double* number = std::get_if<double>(&arg)) return *number == 0;
  if (const bool* flag = std::get_if<bool>(&arg)) return !*flag;
  const Expr* expr = std::get_if<Expr>(&arg);
  if (expr == nullptr || !expr->constant()) return std::nullopt;
  return *expr->constant() == 0;
}

/// beta self; 0 where beta is 0, whatever self holds (NaN).
Element scaled_self(Lowering& lowering, const Call& c, const Index& out, DType compute) {
  const Element beta{lowering.scalars(), lowering.scalar(c.arg("beta"), compute)};
  const Element scaled = operand(lowering, c, "self", out, compute) * beta;
  if (is_zero(c.arg("beta"))) return scaled;
  const Element zero = scaled.number(0);
  return choose(equal(beta, zero), zero, scaled);
}

/// beta self + alpha product
Definition add_product(Lowering& lowering, const Call& c) {
  Definition definition = product(lowering, c);
  DType compute = compute_type(c.result()->type.dtype);
  definition.finish = [&lowering, c, compute](std::span<const loop::Val> sums, const Index& out) {
    loop::ScalarPool& pool = lowering.scalars();
    Element alpha{pool, lowering.scalar(c.arg("alpha"), compute)};
    Element result = Element{pool, sums[0]} * alpha;
    if (is_zero(c.arg("beta")) != true) result = result + scaled_self(lowering, c, out, compute);
    return std::vector<loop::Val>{result.value()};
  };
  return definition;
}

std::string library_declines(const Call& c, const Target&) {
  DType dtype = c.type(factors(c).left).dtype;
  if (dtype != DType::f32 && dtype != DType::bf16)
    return fmt::format("the library has no {} product", name_of(dtype));
  bool scales = c.op().schema.find("alpha") >= 0 &&
                (c.arg("alpha") != ir::Arg(Expr(1)) || c.arg("beta") != ir::Arg(Expr(1)));
  return scales ? "alpha and beta other than 1" : "";
}

/// Whether it is a matrix, or a batch of them, that was transposed.
bool is_transpose(const ir::Value* value) {
  if (value->node == nullptr || def_of(*value->node).order == nullptr) return false;
  std::vector<int64_t> order = def_of(*value->node).order(value->node->call());
  std::swap(order[order.size() - 2], order.back());
  return std::ranges::is_sorted(order);
}

// dA = G B^T, dB = A^T G (last two dimensions). Of a B = C^T, dB = (G^T A)^T: the gradient of the
// transpose undoes the outer one, and dC = G^T A lies as C does.
Gradients product_vjp(Builder& b, const Call& c, Grads g) {
  Operands names = factors(c);
  Tensor x{b, c.value(names.left)};
  Tensor y{b, c.value(names.right)};
  std::string_view op = x.rank() == 2 ? "aten.mm" : "aten.bmm";
  const auto transposed = [](Tensor matrix) { return transpose(matrix, -2, -1); };
  const Tensor left = call(b, op, {g[0], transposed(y)});
  const Tensor right = is_transpose(y.value()) ? transposed(call(b, op, {transposed(g[0]), x}))
                                               : call(b, op, {transposed(x), g[0]});
  return {{names.left, left}, {names.right, right}};
}
Gradients add_product_vjp(Builder& b, const Call& c, Grads g) {
  auto scale = [&](Tensor x, std::string_view by) {
    return c.arg(by) == ir::Arg(Expr(1)) ? x : call(b, "aten.mul.Scalar", {x, c.arg(by)});
  };
  Tensor scaled = scale(g[0], "alpha");
  Gradients grads = product_vjp(b, c, Grads(&scaled, 1));
  grads.push_back({"self", sum_to(scale(g[0], "beta"), c.type("self"))});
  return grads;
}

/// Matrices in the dimensions behind the rows. A right factor that all rows share makes one product
/// of them.
Tensor product_of_rows(const BatchedCall& c) {
  const Operands names = factors(c.row);
  return matmul(c.given(names.left), c.given(names.right));
}

Tensors batch_matmul(const BatchedCall& c) { return {product_of_rows(c)}; }

// alpha a b + beta self; beta = 0 ignores self, NaN in it too.
Tensors batch_added(const BatchedCall& c) {
  const auto scaled = [&](Tensor x, std::string_view by) {
    return c.row.arg(by) == ir::Arg(Expr(1))
               ? x
               : call(c.builder, "aten.mul.Scalar", {x, c.row.arg(by)});
  };
  const Tensor product = scaled(product_of_rows(c), "alpha");
  if (const Expr* beta = std::get_if<Expr>(&c.row.arg("beta")); beta && *beta == Expr(0))
    return {product};
  if (const double* beta = std::get_if<double>(&c.row.arg("beta")); beta && *beta == 0)
    return {product};
  const Tensor self = c.aligned(c.row.value("self"), c.row.result()->type.rank());
  return {product + scaled(self, "beta")};
}

/// Of complex numbers; beta 0 ignores self.
template <Tensor (*product)(Tensor, Tensor)>
Tensors added_product(Builder& b, const Call& c) {
  const std::string_view left = c.op().schema.params[1].name;
  const std::string_view right = c.op().schema.params[2].name;
  const Tensor made = product({b, c.value(left)}, {b, c.value(right)});
  const auto scaled = [&](Tensor x, std::string_view by) {
    return c.arg(by) == ir::Arg(Expr(1)) ? x : call(b, "aten.mul.Scalar", {x, c.arg(by)});
  };
  const Tensor whole = scaled(made, "alpha");
  if (c.floating("beta") == 0) return {whole};
  return {whole + scaled({b, c.value("self")}, "beta")};
}

const OpDef kMm{.schema = "aten::mm(Tensor self, Tensor mat2) -> Tensor",
                .types = product_types<2>,
                .lower = product,
                .vjp = product_vjp,
                .fast = {{RouteKind::matmul, library_declines}},
                .samples = {"$[3, 4], $[4, 5]", "$[0, 4], $[4, 5]", "$[3, 0], $[0, 5]",
                            "$[4, 3]{1, 4}, $[3, 2]", "$[65, 130], $[130, 33]",
                            "$[70, 65]{1, 70}, $[65, 130]{1, 65}"},
                .out = true,
                .multiplies = ProductKind::matrix,
                .batch = batch_matmul,
                .complex = {complex_product}};
const OpDef kBmm{.schema = "aten::bmm(Tensor self, Tensor mat2) -> Tensor",
                 .types = product_types<3>,
                 .lower = product,
                 .vjp = product_vjp,
                 .fast = {{RouteKind::matmul, library_declines}},

                 .samples = {"$[2, 3, 4], $[2, 4, 5]", "$[0, 3, 4], $[0, 4, 5]",
                             "$[2, 3, 0], $[2, 0, 5]", "$[7, 17, 33], $[7, 33, 9]"},
                 .out = true,
                 .multiplies = ProductKind::matrix,
                 .batch = batch_matmul,
                 .complex = {complex_product}};
const OpDef kAddmm{
    .schema =
        "aten::addmm(Tensor self, Tensor mat1, Tensor mat2, *, Scalar beta=1, Scalar alpha=1) -> "
        "Tensor",
    .types = add_product_types<2>,
    .lower = add_product,
    .vjp = add_product_vjp,
    .fast = {{RouteKind::matmul, library_declines}},
    .samples = {"$[5], $[3, 4], $[4, 5]", "$[3, 5], $[3, 4], $[4, 5], beta=0.5, alpha=2",
                "$[3, 1], $[3, 4], $[4, 5]", "$[5], $[3, 0], $[0, 5]"},
    .inplace = true,
    .out = true,
    .multiplies = ProductKind::matrix,
    .batch = batch_added,
    .complex = {.composition = added_product<mm>}};
const OpDef kBaddbmm{.schema =
                         "aten::baddbmm(Tensor self, Tensor batch1, Tensor batch2, *, Scalar "
                         "beta=1, Scalar alpha=1) -> "
                         "Tensor",
                     .types = add_product_types<3>,
                     .lower = add_product,
                     .vjp = add_product_vjp,
                     .fast = {{RouteKind::matmul, library_declines}},

                     .samples = {"$[2, 3, 5], $[2, 3, 4], $[2, 4, 5]",
                                 "$[5], $[2, 3, 4], $[2, 4, 5], beta=0.5, alpha=2"},
                     .inplace = true,
                     .out = true,
                     .multiplies = ProductKind::matrix,
                     .batch = batch_added,
                     .complex = {.composition = added_product<bmm>}};

// --- matmul and linear: products of any rank
// -------------------------------------------------------

Types matmul_types(const Call& c) {
  const ir::Type& a = c.type("self");
  const ir::Type& b = c.type("other");
  if (a.rank() == 0 || b.rank() == 0) c.fail("both operands need at least 1 dimension");
  if (a.dtype != b.dtype)
    c.fail(
        fmt::format("{} and {} must have the same dtype", c.describe("self"), c.describe("other")));
  Expr k = a.sizes.back();
  Expr l = b.rank() == 1 ? b.sizes[0] : b.sizes[b.rank() - 2];
  if (k != l && !sym::known_eq(k, l))
    c.fail(fmt::format("{} and {}: inner sizes {} and {} differ", c.describe("self"),
                       c.describe("other"), sym::to_string(k), sym::to_string(l)));
  Sizes batch = broadcast(c, Sizes(a.sizes.begin(), a.sizes.end() - std::min<int64_t>(a.rank(), 2)),
                          Sizes(b.sizes.begin(), b.sizes.end() - std::min<int64_t>(b.rank(), 2)));
  if (a.rank() > 1) batch.push_back(a.sizes[a.rank() - 2]);
  if (b.rank() > 1) batch.push_back(b.sizes.back());
  return {ir::Type::tensor(a.dtype, batch)};
}

/// Both operands as [batch, m, k] and [batch, k, n], the batch broadcast and flattened.
Tensors batched(Tensor a, Tensor b, const Sizes& batch) {
  Expr count = sym::product(batch);
  auto flat = [&](Tensor x) {
    Sizes sizes = batch;
    sizes.insert(sizes.end(), {x.size(-2), x.size(-1)});
    return reshape(expand(x, sizes), {count, x.size(-2), x.size(-1)});
  };
  return {flat(a), flat(b)};
}

Tensors matmul_decompose(Builder& builder, const Call& c) {
  Tensor a{builder, c.value("self")};
  Tensor b{builder, c.value("other")};
  const Sizes& result = c.result()->type.sizes;
  if (a.rank() == 1) a = unsqueeze(a, 0);
  if (b.rank() == 1) b = unsqueeze(b, 1);
  if (b.rank() == 2) {  // a's batch folds into its rows
    Sizes rows(a.sizes().begin(), a.sizes().end() - 1);
    return {reshape(mm(reshape(a, {sym::product(rows), a.size(-1)}), b), result)};
  }
  Sizes batch(result.begin(),
              result.end() - (c.type("self").rank() > 1) - (c.type("other").rank() > 1));
  Tensors flat = batched(a, b, batch);
  return {reshape(bmm(flat[0], flat[1]), result)};
}

const OpDef kMatmul{
    .schema = "aten::matmul(Tensor self, Tensor other) -> Tensor",
    .types = matmul_types,
    .decompose = matmul_decompose,
    .samples = {"$[3, 4], $[4, 5]", "$[4], $[4]", "$[2, 3, 4], $[4]", "$[4], $[2, 4, 5]",
                "$[2, 1, 3, 4], $[5, 4, 2]", "$[2, 3, 4], $[4, 5]"},
    .out = true};

/// y = x W^T + b, over rows: dx = g W, dW = g^T x, db = sum of g. Through the decomposition dW
/// would be (x^T g)^T, a copy of the size of W.
Gradients linear_vjp(Builder& b, const Call& c, Grads g) {
  Tensor x{b, c.value("input")};
  Tensor w{b, c.value("weight")};
  Expr rows = sym::product(Sizes(x.sizes().begin(), x.sizes().end() - 1));
  Tensor flat = reshape(g[0], {rows, w.size(0)});
  Gradients grads{{"input", reshape(mm(flat, w), x.sizes())},
                  {"weight", mm(t(flat), reshape(x, {rows, x.size(-1)}))}};
  if (c.has("bias")) grads.push_back({"bias", sum_to(g[0], c.type("bias"))});
  return grads;
}

const OpDef kLinear{
    .schema = "aten::linear(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor",
    .types = [](const Call& c) -> Types {
      const ir::Type& x = c.type("input");
      const ir::Type& w = c.type("weight");
      if (w.rank() != 2 || x.rank() == 0) c.fail(c.describe("weight") + " must have 2 dimensions");
      if (x.sizes.back() != w.sizes[1] && !sym::known_eq(x.sizes.back(), w.sizes[1]))
        c.fail(fmt::format("{} and {}: inner sizes {} and {} differ", c.describe("input"),
                           c.describe("weight"), sym::to_string(x.sizes.back()),
                           sym::to_string(w.sizes[1])));
      if (x.dtype != w.dtype)
        c.fail(fmt::format("{} and {} must have the same dtype", c.describe("input"),
                           c.describe("weight")));
      Sizes sizes = x.sizes;
      sizes.back() = w.sizes[0];
      if (c.has("bias")) broadcast(c, c.type("bias").sizes, sizes);
      return {ir::Type::tensor(x.dtype, sizes)};
    },
    .decompose = [](Builder& b, const Call& c) -> Tensors {
      Tensor x{b, c.value("input")};
      Tensor w = t(Tensor{b, c.value("weight")});
      Sizes rows(x.sizes().begin(), x.sizes().end() - 1);
      Tensor flat = reshape(x, {sym::product(rows), x.size(-1)});
      Tensor y = c.has("bias") ? call(b, "aten.addmm", {Tensor{b, c.value("bias")}, flat, w})
                               : mm(flat, w);
      return {reshape(y, c.result()->type.sizes)};
    },
    .vjp = linear_vjp,
    .samples = {"$[3, 4], $[5, 4], $[5]", "$[2, 3, 4], $[5, 4]", "$[4], $[5, 4], $[5]",
                "$[0, 4], $[5, 4], $[5]"},
    .out = true,
    .multiplies = ProductKind::linear};

const OpDef* const kOps[] = {&kMm, &kBmm, &kAddmm, &kBaddbmm, &kMatmul, &kLinear};

}  // namespace

Family matmul_family() { return kOps; }

}  // namespace tandem::ops
