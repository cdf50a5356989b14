// Comparison, logic, choice and extremes of two: ops whose point is a condition.
#include <cmath>

#include "ops/elements.h"
#include "ops/families.h"

namespace tandem::ops {
namespace {

constexpr std::string_view kBool = "the result is not differentiable (bool)";

template <Opcode op>
constexpr auto kBinary = [](Element a, Element b) { return a.apply(op, b); };

Tensor self_of(Builder& b, const Call& c) { return {b, c.value("self")}; }
Tensor other_of(Builder& b, const Call& c) { return {b, c.value("other")}; }

const Samples kPairs = {"$[3, 4], $[3, 4]",    "$[3, 4], $[4]", "$[2, 1, 5], $[3, 1]",
                        "$[], $[3]",           "$[0, 4], $[4]", "$[4, 3]{1, 4}, $[4, 3]",
                        "$[33], $[33]:special"};
const Samples kUnarySamples = {"$[3, 4]",       "$[]",           "$[0, 3]",
                               "$[4, 3]{1, 4}", "$[67]:special", "$[2, 3, 5]"};
const Samples kScalarSamples = {"$[3, 4], 2", "$[5], -1.5", "$[0], 3", "$[4, 3]{1, 4}, 0.5",
                                "$[19]:special, 2"};

// --- comparison and logic
// -------------------------------------------------------------------------

#define TANDEM_COMPARISON(Name, text, opcode, ...)                                                 \
  const OpDef Name##Tensor{.schema = "aten::" text ".Tensor(Tensor self, Tensor other) -> Tensor", \
                           .types = binary_bool,                                                   \
                           .lower = binary_map<kBinary<opcode>>,                                   \
                           .no_grad = kBool,                                                       \
                           .samples = kPairs,                                                      \
                           .sample_dtypes = DTypes::all,                                           \
                           .pointwise = true,                                                      \
                           .inplace = true,                                                        \
                           .out = true,                                                            \
                           .out_as = "Tensor_out",                                                 \
                           .complex = {__VA_ARGS__}};                                              \
  const OpDef Name##Scalar {                                                                       \
    .schema = "aten::" text ".Scalar(Tensor self, Scalar other) -> Tensor", .types = binary_bool,  \
    .lower = binary_map<kBinary<opcode>>, .no_grad = kBool, .samples = kScalarSamples,             \
    .sample_dtypes = DTypes::numbers, .pointwise = true, .inplace = true, .out = true,             \
    .out_as = "Scalar_out", .complex = {                                                           \
      __VA_ARGS__                                                                                  \
    }                                                                                              \
  }

TANDEM_COMPARISON(kEq, "eq", Opcode::eq, .rule = complex_both, .terms = "other");
TANDEM_COMPARISON(kNe, "ne", Opcode::ne, .rule = complex_either, .terms = "other");
TANDEM_COMPARISON(kLt, "lt", Opcode::lt);
TANDEM_COMPARISON(kLe, "le", Opcode::le);
TANDEM_COMPARISON(kGt, "gt", Opcode::gt);
TANDEM_COMPARISON(kGe, "ge", Opcode::ge);
#undef TANDEM_COMPARISON

/// Truth of an element: != 0 (NaN is true).
Element truth(Element x) { return x.cast(DType::boolean); }

const OpDef kLogicalNot{
    .schema = "aten::logical_not(Tensor self) -> Tensor",
    .types = unary_bool,
    .lower = unary<[](Element x) { return truth(x).apply(Opcode::logical_not); }>,
    .no_grad = kBool,
    .samples = kUnarySamples,
    .sample_dtypes = DTypes::all,
    .pointwise = true,
    .inplace = true,
    .out = true,
    .complex = {.composition = truth_of_complex}};
const OpDef kLogicalAnd{
    .schema = "aten::logical_and(Tensor self, Tensor other) -> Tensor",
    .types = binary_bool,
    .lower = binary_map<[](Element a, Element b) { return both(truth(a), truth(b)); }>,
    .no_grad = kBool,
    .samples = kPairs,
    .sample_dtypes = DTypes::all,
    .pointwise = true,
    .inplace = true,
    .out = true,
    .complex = {.composition = truth_of_complex}};
const OpDef kLogicalOr{
    .schema = "aten::logical_or(Tensor self, Tensor other) -> Tensor",
    .types = binary_bool,
    .lower = binary_map<[](Element a, Element b) { return either(truth(a), truth(b)); }>,
    .no_grad = kBool,
    .samples = kPairs,
    .sample_dtypes = DTypes::all,
    .pointwise = true,
    .inplace = true,
    .out = true,
    .complex = {.composition = truth_of_complex}};
const OpDef kLogicalXor{
    .schema = "aten::logical_xor(Tensor self, Tensor other) -> Tensor",
    .types = binary_bool,
    .lower = binary_map<[](Element a, Element b) { return not_equal(truth(a), truth(b)); }>,
    .no_grad = kBool,
    .samples = kPairs,
    .sample_dtypes = DTypes::all,
    .pointwise = true,
    .inplace = true,
    .out = true,
    .complex = {.composition = truth_of_complex}};
const OpDef kIsnan{.schema = "aten::isnan(Tensor self) -> Tensor",
                   .types = unary_bool,
                   .lower = unary<[](Element x) { return not_equal(x, x); }>,
                   .no_grad = kBool,
                   .samples = kUnarySamples,
                   .pointwise = true,
                   .out = true,
                   .complex = {complex_either}};
// --- minimum, maximum, where
// ------------------------------------------------------------------------

// The gradient goes to the operand that does not lose; equal operands share it half and half, and
// beside a NaN both get all of it, as in eager.
Gradients extremum_vjp(Builder& b, const Call& c, Grads g, std::string_view loses) {
  Tensor x = self_of(b, c);
  Tensor y = other_of(b, c);
  Tensor tie = eq(x, y);
  Tensor half = g[0] / 2;
  Tensor dx = where(tie, half, where(compare(loses, x, y), 0.0, g[0]));
  Tensor dy = where(tie, half, where(compare(loses, y, x), 0.0, g[0]));
  return {{"self", sum_to(dx, x.type())}, {"other", sum_to(dy, y.type())}};
}

const OpDef kMaximum{
    .schema = "aten::maximum(Tensor self, Tensor other) -> Tensor",
    .types = binary,
    .lower = binary_map<kBinary<Opcode::max>>,
    .vjp = [](Builder& b, const Call& c, Grads g) { return extremum_vjp(b, c, g, "lt"); },
    .samples = kPairs,
    .sample_dtypes = DTypes::numbers,
    .pointwise = true,
    .out = true};
const OpDef kMinimum{
    .schema = "aten::minimum(Tensor self, Tensor other) -> Tensor",
    .types = binary,
    .lower = binary_map<kBinary<Opcode::min>>,
    .vjp = [](Builder& b, const Call& c, Grads g) { return extremum_vjp(b, c, g, "gt"); },
    .samples = kPairs,
    .sample_dtypes = DTypes::numbers,
    .pointwise = true,
    .out = true};

Definition where_lower(Lowering& lowering, const Call& c) {
  DType compute = compute_type(c.result()->type.dtype);
  return map_definition(c, [&lowering, c, compute](size_t, const Index& index) {
    Element cond = operand(lowering, c, "condition", index, DType::boolean);
    return choose(cond, operand(lowering, c, "self", index, compute),
                  operand(lowering, c, "other", index, compute))
        .value();
  });
}

Types where_types(const Call& c) {
  if (c.type("condition").dtype != DType::boolean)
    c.fail("condition must be bool, not " + to_string(c.type("condition")));
  ir::Sizes sizes = c.type("condition").sizes;
  for (std::string_view name : {"self", "other"})
    if (std::holds_alternative<ir::Value*>(c.arg(name)) && c.type(name).is_tensor())
      sizes = broadcast(c, sizes, c.type(name).sizes);
  return {ir::Type::tensor(common_dtype(c, {"self", "other"}), sizes)};
}

// The gradient goes to the chosen operand.
Gradients where_vjp(Builder& b, const Call& c, Grads g) {
  Tensor cond{b, c.value("condition")};
  Gradients grads;
  if (std::holds_alternative<ir::Value*>(c.arg("self")))
    grads.push_back({"self", sum_to(where(cond, g[0], 0.0), c.type("self"))});
  if (std::holds_alternative<ir::Value*>(c.arg("other")))
    grads.push_back({"other", sum_to(where(cond, 0.0, g[0]), c.type("other"))});
  return grads;
}

const OpDef kWhere{
    .schema = "aten::where.self(Tensor condition, Tensor self, Tensor other) -> Tensor",
    .types = where_types,
    .lower = where_lower,
    .vjp = where_vjp,
    .samples = {"bool[3, 4], $[3, 4], $[3, 4]", "bool[4], $[3, 1], $[4]", "bool[0], $[0], $[1]"},
    .sample_dtypes = DTypes::all,
    .pointwise = true,
    .out = true,
    .out_as = "self_out",
    .complex = {.rule = complex_each, .places = "condition"}};
const OpDef kWhereScalarOther{
    .schema = "aten::where.ScalarOther(Tensor condition, Tensor self, Scalar other) -> Tensor",
    .types = where_types,
    .lower = where_lower,
    .vjp = where_vjp,
    .samples = {"bool[3, 4], $[3, 4], 2", "bool[4], $[3, 1], 0.5"},
    .pointwise = true,
    .complex = {.rule = complex_each, .places = "condition", .terms = "other"}};
const OpDef kWhereScalarSelf{
    .schema = "aten::where.ScalarSelf(Tensor condition, Scalar self, Tensor other) -> Tensor",
    .types = where_types,
    .lower = where_lower,
    .vjp = where_vjp,
    .samples = {"bool[3, 4], 2, $[3, 4]", "bool[4], 0.5, $[3, 1]"},
    .pointwise = true,
    .complex = {.rule = complex_each, .places = "condition", .terms = "self"}};

const OpDef kMaskedFill{
    .schema = "aten::masked_fill.Scalar(Tensor self, Tensor mask, Scalar value) -> Tensor",
    .types = [](const Call& c) -> Types {
      if (c.type("mask").dtype != DType::boolean) c.fail(c.describe("mask") + " must be bool");
      return {ir::Type::tensor(c.type("self").dtype,
                               broadcast(c, c.type("self").sizes, c.type("mask").sizes))};
    },
    .lower =
        [](Lowering& lowering, const Call& c) {
          DType compute = compute_type(c.result()->type.dtype);
          return map_definition(c, [&lowering, c, compute](size_t, const Index& index) {
            return choose(operand(lowering, c, "mask", index, DType::boolean),
                          operand(lowering, c, "value", index, compute),
                          operand(lowering, c, "self", index, compute))
                .value();
          });
        },
    .vjp = [](Builder& b, const Call& c, Grads g) -> Gradients {
      return {{"self", sum_to(where(Tensor{b, c.value("mask")}, 0.0, g[0]), c.type("self"))}};
    },
    .samples = {"$[3, 4], bool[3, 4], 2", "$[3, 4], bool[4], 0.5", "$[0], bool[0], 1"},
    .pointwise = true,
    .inplace = true,
    .out = true,
    .out_as = "Scalar_out",
    .complex = {.rule = complex_each, .places = "mask", .terms = "value"}};

const OpDef* const kOps[] = {
    &kEqTensor,   &kEqScalar,   &kNeTensor,         &kNeScalar,        &kLtTensor,   &kLtScalar,
    &kLeTensor,   &kLeScalar,   &kGtTensor,         &kGtScalar,        &kGeTensor,   &kGeScalar,
    &kLogicalNot, &kLogicalAnd, &kLogicalOr,        &kLogicalXor,      &kIsnan,      &kMaximum,
    &kMinimum,    &kWhere,      &kWhereScalarOther, &kWhereScalarSelf, &kMaskedFill,
};

}  // namespace

Family compare_family() { return kOps; }

}  // namespace tandem::ops
