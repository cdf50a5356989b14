// clamp with numbers or tensors as bounds, and its one-sided forms. The bounds are differentiable
// when tensors.
#include "ops/elements.h"
#include "ops/families.h"

namespace tandem::ops {
namespace {

Tensor self_of(Builder& b, const Call& c) { return {b, c.value("self")}; }
Tensor both(Tensor a, Tensor b) { return call(a.builder(), "aten.logical_and", {a, b}); }

Types clamp_types(const Call& c) {
  Promotion promotion;
  ir::Sizes sizes = c.type("self").sizes;
  for (std::string_view name : {"self", "min", "max"}) {
    if (c.op().schema.find(name) < 0 || !c.has(name)) continue;
    promotion.add(c.arg(name));
    if (ir::Value* const* value = std::get_if<ir::Value*>(&c.arg(name)))
      if ((*value)->type.is_tensor()) sizes = broadcast(c, sizes, (*value)->type.sizes);
  }
  if (!c.has("min") && !c.has("max")) c.fail("at least one of min and max must be given");
  bool by_two = c.op().schema.overload == "Tensor" && c.has("min") && c.has("max");
  if (by_two && promotion.result(c) == DType::boolean) need_number(c, "self");
  return {ir::Type::tensor(promotion.result(c), sizes)};
}
/// min(max(x, lo), hi): hi wins where the bounds cross, NaN bounds give NaN.
Definition clamp_lower(Lowering& lowering, const Call& c) {
  DType compute = compute_type(c.result()->type.dtype);
  return map_definition(c, [&lowering, c, compute](size_t, const Index& index) {
    Element x = operand(lowering, c, "self", index, compute);
    if (c.has("min")) x = max(x, operand(lowering, c, "min", index, compute));
    if (c.has("max")) x = min(x, operand(lowering, c, "max", index, compute));
    return x.value();
  });
}
/// a `op` the bound `name`, a number or a tensor.
Tensor compare_bound(Builder& b, std::string_view op, Tensor a, const Call& c,
                     std::string_view name) {
  ir::Value* const* value = std::get_if<ir::Value*>(&c.arg(name));
  bool is_tensor = value != nullptr && (*value)->type.is_tensor();
  return call(b, "aten." + std::string(op) + (is_tensor ? ".Tensor" : ".Scalar"), {a, c.arg(name)});
}
// The gradient passes where lo <= x <= hi; outside it goes to the bound, to hi where the bounds
// cross.
Gradients clamp_vjp(Builder& b, const Call& c, Grads g) {
  Tensor x = self_of(b, c);
  Tensor inside;
  if (c.has("min")) inside = compare_bound(b, "ge", x, c, "min");
  if (c.has("max")) {
    Tensor below = compare_bound(b, "le", x, c, "max");
    inside = inside ? both(inside, below) : below;
  }
  Gradients grads{{"self", sum_to(where(inside, g[0], 0.0), x.type())}};
  if (c.op().schema.overload != "Tensor") return grads;
  Tensor crossed;
  if (c.has("min") && c.has("max"))
    crossed = compare_bound(b, "gt", Tensor{b, c.value("min")}, c, "max");
  if (c.has("min")) {
    Tensor taken = compare_bound(b, "lt", x, c, "min");
    if (crossed) taken = both(taken, logical_not(crossed));
    grads.push_back({"min", sum_to(where(taken, g[0], 0.0), c.type("min"))});
  }
  if (c.has("max")) {
    Tensor taken = compare_bound(b, "gt", x, c, "max");
    if (crossed) taken = call(b, "aten.logical_or", {taken, crossed});
    grads.push_back({"max", sum_to(where(taken, g[0], 0.0), c.type("max"))});
  }
  return grads;
}
const OpDef kClamp{
    .schema = "aten::clamp(Tensor self, Scalar? min=None, Scalar? max=None) -> Tensor",
    .types = clamp_types,
    .lower = clamp_lower,
    .vjp = clamp_vjp,
    .samples = {"$[3, 4], -1, 1", "$[5], 0", "$[5], none, 0.5", "$[5], 1, -1", "$[0], 0, 1",
                "$[64]:special, -1, 1", "$[4, 3]{1, 4}, 0, 1"},
    .sample_dtypes = DTypes::numbers,
    .pointwise = true,
    .inplace = true,
    .out = true};
const OpDef kClampTensor{
    .schema = "aten::clamp.Tensor(Tensor self, Tensor? min=None, Tensor? max=None) -> Tensor",
    .types = clamp_types,
    .lower = clamp_lower,
    .vjp = clamp_vjp,
    .samples = {"$[3, 4], $[3, 4], $[4]", "$[3, 4], $[4]", "$[5], none, $[1]"},
    .sample_dtypes = DTypes::numbers,
    .pointwise = true,
    .inplace = true,
    .out = true,
    .out_as = "Tensor_out"};

/// clamp with one bound: `lower` says which.
template <bool lower>
Tensors one_bound(Builder& b, const Call& c) {
  std::string_view op = c.op().schema.overload == "Tensor" ? "aten.clamp.Tensor" : "aten.clamp";
  Operand none{ir::Arg(ir::None{})};
  if (lower) return {call(b, op, {self_of(b, c), c.arg("min"), none})};
  return {call(b, op, {self_of(b, c), none, c.arg("max")})};
}
Types one_bound_types(const Call& c) {
  Promotion promotion;
  std::string_view bound = c.op().schema.params[1].name;
  promotion.add(c.arg("self"));
  promotion.add(c.arg(bound));
  ir::Sizes sizes = c.type("self").sizes;
  if (c.op().schema.overload == "Tensor") sizes = broadcast(c, sizes, c.type(bound).sizes);
  return {ir::Type::tensor(promotion.result(c), sizes)};
}
const OpDef kClampMin{.schema = "aten::clamp_min(Tensor self, Scalar min) -> Tensor",
                      .types = one_bound_types,
                      .decompose = one_bound<true>,
                      .samples = {"$[3, 4], 0", "$[5], -0.5"},
                      .sample_dtypes = DTypes::numbers,
                      .inplace = true,
                      .out = true};
const OpDef kClampMax{.schema = "aten::clamp_max(Tensor self, Scalar max) -> Tensor",
                      .types = one_bound_types,
                      .decompose = one_bound<false>,
                      .samples = {"$[3, 4], 0", "$[5], -0.5"},
                      .sample_dtypes = DTypes::numbers,
                      .inplace = true,
                      .out = true};
const OpDef kClampMinTensor{.schema = "aten::clamp_min.Tensor(Tensor self, Tensor min) -> Tensor",
                            .types = one_bound_types,
                            .decompose = one_bound<true>,
                            .samples = {"$[3, 4], $[4]"},
                            .sample_dtypes = DTypes::numbers,
                            .inplace = true,
                            .out = true,
                            .out_as = "Tensor_out"};
const OpDef kClampMaxTensor{.schema = "aten::clamp_max.Tensor(Tensor self, Tensor max) -> Tensor",
                            .types = one_bound_types,
                            .decompose = one_bound<false>,
                            .samples = {"$[3, 4], $[4]"},
                            .sample_dtypes = DTypes::numbers,
                            .inplace = true,
                            .out = true,
                            .out_as = "Tensor_out"};

const OpDef* const kOps[] = {&kClamp,    &kClampTensor,    &kClampMin,
                             &kClampMax, &kClampMinTensor, &kClampMaxTensor};

}  // namespace

Family clamp_family() { return kOps; }

}  // namespace tandem::ops
