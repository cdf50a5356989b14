// Mixtures: what is a sum of products of three operands (lerp, addcmul, addcdiv, fma), and values
// that replace others (fill, zero, masked_fill by a tensor, where of two numbers).
#include "ops/batch.h"
#include "ops/families.h"
#include "ops/formula.h"

namespace tandem::ops {
namespace {

Tensor named(Builder& b, const Call& c, std::string_view param) { return {b, c.value(param)}; }
Element element(Lowering& lowering, const Call& c, std::string_view param, const Index& index) {
  return operand(lowering, c, param, index, compute_type(c.result()->type.dtype));
}

// --- lerp
// -----------------------------------------------------------------------------------------

Types lerp_types(const Call& c) {
  if (!is_complex(c.type("self").dtype)) need_float(c, "self");
  need_same_dtype(c, {"self", "end"});
  bool by_tensor = is_tensor(c, "weight");
  // A weight of f32 without dimensions serves every dtype.
  bool own = by_tensor && !c.type("weight").sizes.empty();
  if (own) need_same_dtype(c, {"self", "weight"});
  return {ir::Type::tensor(c.type("self").dtype, broadcast_of(c, {"self", "end", "weight"}))};
}
/// From the nearer end: exact at both.
Definition lerp_lower(Lowering& lowering, const Call& c) {
  return map_definition(c, [&lowering, c](size_t, const Index& index) {
    Element from = element(lowering, c, "self", index);
    Element end = element(lowering, c, "end", index);
    Element weight = element(lowering, c, "weight", index);
    Element near = from + weight * (end - from);
    return choose(abs(weight) < 0.5, near, end - (end - from) * (1.0 - weight)).value();
  });
}
// d(a + w (b - a)) = (1 - w) da + w db + (b - a) dw
Gradients lerp_vjp(Builder& b, const Call& c, Grads g) {
  Tensor weight = tensor_of(b, c, "weight", c.result()->type.dtype);
  Gradients grads{{"self", sum_to(g[0] * (1.0 - weight), c.type("self"))},
                  {"end", sum_to(g[0] * weight, c.type("end"))}};
  if (is_tensor(c, "weight")) {
    Tensor way = named(b, c, "end") - named(b, c, "self");
    grads.push_back({"weight", sum_to(g[0] * way, c.type("weight"))});
  }
  return grads;
}
/// Of complex numbers.
Tensors moved_towards(Builder& b, const Call& c) {
  const Tensor self{b, c.value("self")};
  const Tensor way = Tensor{b, c.value("end")} - self;
  return {self + call(b, is_tensor(c, "weight") ? "aten.mul.Tensor" : "aten.mul.Scalar",
                      {way, c.arg("weight")})};
}
const OpDef kLerpScalar{
    .schema = "aten::lerp.Scalar(Tensor self, Tensor end, Scalar weight) -> Tensor",
    .types = lerp_types,
    .lower = lerp_lower,
    .vjp = lerp_vjp,
    .samples = {"$[3, 4], $[3, 4], 0.25", "$[3, 4], $[4], 0.75", "$[3], $[3], 1", "$[0], $[1], 0.5",
                "$[33]:special, $[33]:special, 0.1", "$[4, 3]{1, 4}, $[4, 3], 2",
                "f32[3], f64[3], 0.5", "i64[3], i64[3], 0.5"},
    .pointwise = true,
    .inplace = true,
    .out = true,
    .out_as = "Scalar_out",
    .complex = {.composition = moved_towards}};
const OpDef kLerpTensor{
    .schema = "aten::lerp.Tensor(Tensor self, Tensor end, Tensor weight) -> Tensor",
    .types = lerp_types,
    .lower = lerp_lower,
    .vjp = lerp_vjp,
    .samples = {"$[3, 4], $[3, 4], $[3, 4]", "$[3, 4], $[4], $[3, 1]:unit", "$[0], $[1], $[]",
                "$[33]:special, $[33]:special, $[33]:unit", "$[3], $[3], f64[3]"},
    .pointwise = true,
    .inplace = true,
    .out = true,
    .out_as = "Tensor_out",
    .complex = {.composition = moved_towards}};

// --- addcmul, addcdiv, fma
// ------------------------------------------------------------------------

Types three_types(const Call& c) {
  DType dtype = common_dtype(c, {"self", "tensor1", "tensor2"});
  if (dtype == DType::boolean) c.fail("is not defined for bool");
  return {ir::Type::tensor(dtype, broadcast_of(c, {"self", "tensor1", "tensor2"}))};
}
Types addcdiv_types(const Call& c) {
  const auto is_whole = [&](std::string_view name) {
    return !is_float(c.type(name).dtype) && !is_complex(c.type(name).dtype);
  };
  if (is_whole("tensor1") && is_whole("tensor2")) c.fail("integer division is not supported");
  return three_types(c);
}
/// The formula over complex numbers.
template <bool divides>
Tensors added_parts(Builder& b, const Call& c) {
  const Tensor x = call(b, "aten.mul.Scalar", {named(b, c, "tensor1"), c.arg("value")});
  const Tensor y = named(b, c, "tensor2");
  return {named(b, c, "self") + (divides ? x / y : x * y)};
}
template <bool divides>
Definition add_scaled(Lowering& lowering, const Call& c) {
  return map_definition(c, [&lowering, c](size_t, const Index& index) {
    Element x = element(lowering, c, "tensor1", index);
    Element y = element(lowering, c, "tensor2", index);
    Element scaled = element(lowering, c, "value", index) * x;
    return (element(lowering, c, "self", index) + (divides ? scaled / y : scaled * y)).value();
  });
}
Tensor times_value(const Call& c, Tensor x) {
  return call(x.builder(), "aten.mul.Scalar", {x, c.arg("value")});
}
// d(s + v a b) = ds + v b da + v a db
Gradients addcmul_vjp(Builder& b, const Call& c, Grads g) {
  Tensor scaled = times_value(c, g[0]);
  return {{"self", sum_to(g[0], c.type("self"))},
          {"tensor1", sum_to(scaled * named(b, c, "tensor2"), c.type("tensor1"))},
          {"tensor2", sum_to(scaled * named(b, c, "tensor1"), c.type("tensor2"))}};
}
// d(s + v a / b) = ds + v / b da - v a / b^2 db
Gradients addcdiv_vjp(Builder& b, const Call& c, Grads g) {
  Tensor divisor = named(b, c, "tensor2");
  Tensor part = times_value(c, g[0]) / divisor;
  Tensor rest = -(part * (named(b, c, "tensor1") / divisor));
  return {{"self", sum_to(g[0], c.type("self"))},
          {"tensor1", sum_to(part, c.type("tensor1"))},
          {"tensor2", sum_to(rest, c.type("tensor2"))}};
}
const OpDef kAddcmul{
    .schema =
        "aten::addcmul(Tensor self, Tensor tensor1, Tensor tensor2, *, Scalar value=1) -> "
        "Tensor",
    .types = three_types,
    .lower = add_scaled<false>,
    .vjp = addcmul_vjp,
    .samples = {"$[3, 4], $[3, 4], $[3, 4]", "$[3, 4], $[4], $[3, 1], value=2", "$[0], $[1], $[0]",
                "$[3], $[3], $[], value=-0.5", "$[33]:special, $[33]:special, $[33]",
                "$[4, 3]{1, 4}, $[4, 3], $[1]"},
    .sample_dtypes = DTypes::all,
    .pointwise = true,
    .inplace = true,
    .out = true,
    .complex = {.composition = added_parts<false>}};
const OpDef kAddcdiv{
    .schema =
        "aten::addcdiv(Tensor self, Tensor tensor1, Tensor tensor2, *, Scalar value=1) -> "
        "Tensor",
    .types = addcdiv_types,
    .lower = add_scaled<true>,
    .vjp = addcdiv_vjp,
    .samples = {"$[3, 4], $[3, 4], $[3, 4]:positive", "$[3, 4], $[4], $[3, 1]:positive, value=2",
                "$[0], $[1], $[0]", "$[3], $[3], $[]:positive, value=-0.5",
                "$[33]:special, $[33]:special, $[33]:positive",
                "$[4, 3]{1, 4}, $[4, 3], $[1]:positive"},
    .sample_dtypes = DTypes::all,
    .pointwise = true,
    .inplace = true,
    .out = true,
    .complex = {.composition = added_parts<true>}};

// d(a b + c) = b da + a db + dc
const OpDef kFma{.schema = "prims::fma(Tensor a, Tensor b, Tensor c) -> Tensor",
                 .types = [](const Call& c) -> Types {
                   DType dtype = common_dtype(c, {"a", "b", "c"});
                   if (dtype == DType::boolean) c.fail("is not defined for bool");
                   return {ir::Type::tensor(dtype, broadcast_of(c, {"a", "b", "c"}))};
                 },
                 .lower =
                     [](Lowering& lowering, const Call& c) {
                       return map_definition(c, [&lowering, c](size_t, const Index& index) {
                         return fma(element(lowering, c, "a", index),
                                    element(lowering, c, "b", index),
                                    element(lowering, c, "c", index))
                             .value();
                       });
                     },
                 .vjp = [](Builder& b, const Call& c, Grads g) -> Gradients {
                   return {{"a", sum_to(g[0] * named(b, c, "b"), c.type("a"))},
                           {"b", sum_to(g[0] * named(b, c, "a"), c.type("b"))},
                           {"c", sum_to(g[0], c.type("c"))}};
                 },
                 .samples = {"$[3, 4], $[3, 4], $[3, 4]", "$[3, 4], $[], $[4]", "$[0], $[1], $[0]",
                             "$[33]:special, $[33]:special, $[33]", "$[4, 3]{1, 4}, $[4, 3], $[1]"},
                 .sample_dtypes = DTypes::numbers,
                 .pointwise = true};

// --- replacements
// ---------------------------------------------------------------------------------

const OpDef kWhereScalar{
    .schema = "aten::where.Scalar(Tensor condition, Scalar self, Scalar other) -> Tensor",
    .types = [](const Call& c) -> Types {
      if (c.type("condition").dtype != DType::boolean)
        c.fail("condition must be bool, not " + to_string(c.type("condition")));
      return {ir::Type::tensor(common_dtype(c, {"self", "other"}), c.type("condition").sizes)};
    },
    .lower =
        [](Lowering& lowering, const Call& c) {
          return map_definition(c, [&lowering, c](size_t, const Index& index) {
            return choose(operand(lowering, c, "condition", index, DType::boolean),
                          element(lowering, c, "self", index), element(lowering, c, "other", index))
                .value();
          });
        },
    .no_grad = "numbers have no gradient",
    .samples = {"bool[3, 4], 1, 2", "bool[4], 0.5, 2", "bool[0], true, false", "bool[], 1, 0.5"},
    .sample_dtypes = DTypes::booleans,
    .pointwise = true};

Types value_types(const Call& c) {
  if (is_tensor(c, "value") && !c.type("value").sizes.empty())
    c.fail(c.describe("value") + " must have no dimensions");
  return unary_same(c);
}
// Nothing is read of self: with loops of its own a fill would keep alive what made self.
const OpDef kFillScalar{.schema = "aten::fill.Scalar(Tensor self, Scalar value) -> Tensor",
                        .types = value_types,
                        .decompose = [](Builder& b, const Call& c) -> Tensors {
                          const ir::Type& self = c.type("self");
                          return {call(b, "aten.full", {self.sizes, c.arg("value"), self.dtype})};
                        },
                        .vjp = zero_gradient,
                        .samples = {"$[3, 4], 2", "$[], 1", "$[0], 3", "$[4, 3]{1, 4}, true"},
                        .sample_dtypes = DTypes::all,
                        .inplace = true,
                        .out = true,
                        .out_as = "Scalar_out",
                        .complex = {.rule = complex_each, .terms = "value"}};
/// The value of each row, broadcast to it.
Tensors fill_rows(const BatchedCall& c) {
  const ir::Type& self = c.row.type("self");
  const Tensor value = to(c.aligned(c.row.value("value"), self.rank()), self.dtype);
  return {expand(value, c.sizes(self.sizes))};
}
const OpDef kFillTensor{
    .schema = "aten::fill.Tensor(Tensor self, Tensor value) -> Tensor",
    .types = value_types,
    .decompose = [](Builder& b, const Call& c) -> Tensors {
      const ir::Type& self = c.type("self");
      return {expand(to(Tensor{b, c.value("value")}, self.dtype), self.sizes)};
    },
    // all of it to value
    .vjp = [](Builder&, const Call& c, Grads g) -> Gradients {
      return {{"value", sum_to(g[0], c.type("value"))}, {"self", Tensor{}}};
    },
    .samples = {"$[3, 4], $[]", "$[], $[]", "$[0], $[]", "$[4, 3]{1, 4}, $[]", "$[3], $[1]"},
    .sample_dtypes = DTypes::all,
    .inplace = true,
    .out = true,
    .out_as = "Tensor_out",
    .batch = fill_rows};
const OpDef kZero{.schema = "aten::zero(Tensor self) -> Tensor",
                  .types = unary_same,
                  .decompose = [](Builder& b, const Call& c) -> Tensors {
                    return {zeros_like(Tensor{b, c.value("self")})};
                  },
                  .vjp = zero_gradient,
                  .samples = {"$[3, 4]", "$[]", "$[0]"},
                  .sample_dtypes = DTypes::all,
                  .inplace = true,
                  .out = true,
                  .complex = {complex_each}};

const OpDef* const kOps[] = {&kLerpScalar,  &kLerpTensor, &kAddcmul,    &kAddcdiv, &kFma,
                             &kWhereScalar, &kFillScalar, &kFillTensor, &kZero};

}  // namespace

Family blend_family() { return kOps; }

}  // namespace tandem::ops
