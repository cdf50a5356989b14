// Products with vectors: a sum over rows, which no library does faster, and outer products. Sums of
// 16-bit floats are wide until the end.
#include <fmt/format.h>

#include <cmath>

#include "ops/delegate.h"
#include "ops/elements.h"
#include "ops/linalg/operands.h"

namespace tandem::ops {

using namespace linalg;  // NOLINT(google-build-using-namespace): what the files of linalg/ share

namespace {

/// sum(a b) over one dimension, of a's dtype.
Tensor sum_product(Tensor a, Tensor b, int64_t dim) {
  DType dtype = a.dtype();
  return to(sum(widened(a) * widened(b), {dim}), dtype);
}

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
/// Of complex numbers the first one is conjugated.
Tensors conjugated_dot(Builder& b, const Call& c) {
  return {sum_product(call(b, "aten.conj", {self_of(b, c)}), tensor(b, c, second(c)), 0)};
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
                  .decompose = conjugated_dot,
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
    bool truncates = number != nullptr && !is_float(x.dtype()) && !is_complex(x.dtype());
    if (truncates && !(std::abs(*number) < 0x1p63))
      c.fail(fmt::format("{} is {}, beyond the integers that self has", by, *number));
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
const OpDef kAddr{
    .schema =
        "aten::addr(Tensor self, Tensor vec1, Tensor vec2, *, Scalar beta=1, Scalar "
        "alpha=1) -> Tensor",
    .types = [](const Call& c) -> Types {
      need_rank(c, "vec1", 1, 1);
      need_rank(c, "vec2", 1, 1);
      DType dtype = common_dtype(c, {"self", "vec1", "vec2"});
      for (std::string_view name : {"alpha", "beta"})
        if (!is_float(dtype) && !is_complex(dtype) && std::holds_alternative<double>(c.arg(name)))
          c.fail(c.describe(name) + " must be an integer for a product of integers");
      return added_types(
          c, ir::Type::tensor(dtype, {c.type("vec1").sizes[0], c.type("vec2").sizes[0]}));
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
                      const Tensor x = call(b, "aten.conj", {tensor(b, c, "x")});
                      Tensor terms = widened(x) * widened(tensor(b, c, "y"));
                      return {to(sum(terms, {c.dim("dim", terms.rank())}), c.result()->type.dtype)};
                    },
                    .samples = {"f32[3, 4], f32[3, 4]", "f64[2, 3, 4], f64[3, 4], dim=1",
                                "bf16[5], bf16[5]", "f64[0], f64[0]", "f64[3, 4], f64[4]"},
                    .out = true};

const OpDef* const kOps[] = {&kDot, &kVdot, &kMv,     &kAddmv, &kOuter,
                             &kGer, &kAddr, &kAddbmm, &kVecdot};

}  // namespace

Family vectors_family() { return kOps; }

}  // namespace tandem::ops
