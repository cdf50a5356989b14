// Activations of two operands, formulas as in activation.cc: a gate (glu), slopes (prelu), random
// slopes (rrelu).
#include <string>

#include "ops/families.h"
#include "ops/formula.h"

namespace tandem::ops {
namespace {

Tensor self_of(Builder& b, const Call& c) { return {b, c.value("self")}; }

// --- glu
// ------------------------------------------------------------------------------------------

struct Halves {
  int64_t dim;
  sym::Expr size;  // of a half
};
Halves halves_of(const Call& c) {
  const ir::Type& self = c.type("self");
  if (self.rank() == 0) c.fail("glu does not take " + c.describe("self") + ": no dimension to cut");
  int64_t dim = c.dim("dim", self.rank());
  sym::Expr size = self.sizes[static_cast<size_t>(dim)];
  if (sym::mod(size, 2) != sym::Expr(0) && sym::mod(size, 2).is_constant())
    c.fail("dimension " + std::to_string(dim) + " of " + c.describe("self") + " is odd");
  return {dim, sym::floor_div(size, 2)};
}
Types glu_types(const Call& c) {
  Halves halves = halves_of(c);
  Types types = float_same(c);
  types[0].sizes[static_cast<size_t>(halves.dim)] = halves.size;
  return types;
}
const OpDef kGlu{
    .schema = "aten::glu(Tensor self, int dim=-1) -> Tensor",
    .types = glu_types,
    // the first half times the sigmoid of the second
    .lower =
        [](Lowering& lowering, const Call& c) {
          DType compute = compute_type(c.result()->type.dtype);
          Halves halves = halves_of(c);
          return map_definition(c, [&lowering, c, compute, halves](size_t, const Index& index) {
            Index other = index;
            other[static_cast<size_t>(halves.dim)] =
                index[static_cast<size_t>(halves.dim)] + halves.size;
            Element a = operand(lowering, c, "self", index, compute);
            return (a * sigmoid(operand(lowering, c, "self", other, compute))).value();
          });
        },
    .vjp = [](Builder& b, const Call& c, Grads g) -> Gradients {
      return {{"self", call(b, "aten.glu_backward", {g[0], self_of(b, c), halves_of(c).dim})}};
    },
    .samples = {"$[3, 4]", "$[4, 3], 0", "$[2, 6, 3], 1", "$[0, 2]", "$[4, 4]{1, 4}",
                "$[64]:special", "$[3, 5]", "$[]"},
    .out = true};
// d(a s(b)) = s da + a s (1 - s) db
const OpDef kGluBackward{
    .schema = "aten::glu_backward(Tensor grad_output, Tensor self, int dim) -> Tensor",
    .types = [](const Call& c) -> Types {
      Halves halves = halves_of(c);
      Sizes half = c.type("self").sizes;
      half[static_cast<size_t>(halves.dim)] = halves.size;
      if (!same_sizes(half, c.type("grad_output").sizes))
        c.fail(c.describe("grad_output") + " is not half of " + c.describe("self"));
      return {c.type("self")};
    },
    .decompose = [](Builder& b, const Call& c) -> Tensors {
      Halves halves = halves_of(c);
      DType compute = compute_type(c.type("self").dtype);
      Tensor x = to(self_of(b, c), compute);
      Tensor g = to(Tensor{b, c.value("grad_output")}, compute);
      Tensor first = slice(x, halves.dim, 0, halves.size);
      Tensor s = sigmoid(slice(x, halves.dim, halves.size, x.size(halves.dim)));
      Tensor gated = g * s;
      return {to(cat({gated, gated * (1.0 - s) * first}, halves.dim), c.type("self").dtype)};
    },
    .samples = {"$[3, 2], $[3, 4], 1", "$[2, 3], $[4, 3], 0", "$[0, 1], $[0, 2], -1"}};

// --- prelu
// ----------------------------------------------------------------------------------------

Types prelu_kernel_types(const Call& c) {
  need_float(c, "self");
  need_same_dtype(c, {"self", "weight"});
  return {ir::Type::tensor(c.type("self").dtype, broadcast_of(c, {"self", "weight"}))};
}
// x where x > 0, else w x
constexpr auto kPreluValue = [](const Call&, auto x, auto w) { return pick(x > 0.0, x, w * x); };
const OpDef kPreluKernel{
    .schema = "aten::_prelu_kernel(Tensor self, Tensor weight) -> Tensor",
    .types = prelu_kernel_types,
    .lower = formula<kPreluValue>,
    .vjp = [](Builder& b, const Call& c, Grads g) -> Gradients {
      Tensors grads =
          call_many(b, "aten._prelu_kernel_backward", {g[0], self_of(b, c), c.arg("weight")});
      return {{"self", sum_to(grads[0], c.type("self"))},
              {"weight", sum_to(grads[1], c.type("weight"))}};
    },
    .samples = {"$[3, 4], $[1, 4]", "$[3, 4], $[1, 1]", "$[0], $[1]", "$[64]:special, $[1]",
                "$[2, 3, 5], $[1, 3, 1]", "f32[3], f64[1]"},
    .pointwise = true};
template <bool of_weight>
constexpr auto kPreluGrad = [](auto g, auto x, auto w) {
  if constexpr (of_weight)
    return pick(x > 0.0, 0.0, x * g);
  else
    return pick(x > 0.0, g, w * g);
};
// dx = dy where x > 0, else w dy; dw = 0 where x > 0, else x dy
const OpDef kPreluKernelBackward{
    .schema =
        "aten::_prelu_kernel_backward(Tensor grad_output, Tensor self, Tensor weight) -> "
        "(Tensor, Tensor)",
    .types = [](const Call& c) -> Types {
      ir::Type type = prelu_kernel_types(c)[0];
      return {type, type};
    },
    .lower =
        [](Lowering& lowering, const Call& c) {
          DType compute = compute_type(c.result()->type.dtype);
          return map_definition(c, [&lowering, c, compute](size_t result, const Index& index) {
            Element g = operand(lowering, c, "grad_output", index, compute);
            Element x = operand(lowering, c, "self", index, compute);
            Element w = operand(lowering, c, "weight", index, compute);
            return (result == 0 ? kPreluGrad<false>(g, x, w) : kPreluGrad<true>(g, x, w)).value();
          });
        },
    .decompose = [](Builder& b, const Call& c) -> Tensors {
      DType dtype = c.result()->type.dtype;
      auto wide = [&](std::string_view name) {
        return to(Tensor{b, c.value(name)}, compute_type(dtype));
      };
      Tensor g = wide("grad_output");
      Tensor x = wide("self");
      Tensor w = wide("weight");
      return {to(kPreluGrad<false>(g, x, w), dtype), to(kPreluGrad<true>(g, x, w), dtype)};
    },
    .samples = {"$[3, 4], $[3, 4], $[1, 4]", "$[0], $[0], $[1]",
                "$[2, 3, 5], $[2, 3, 5], $[1, 3, 1]"},
    .pointwise = true};
const OpDef kPrelu{
    .schema = "aten::prelu(Tensor self, Tensor weight) -> Tensor",
    .types = [](const Call& c) -> Types {
      need_same_dtype(c, {"self", "weight"});
      const ir::Type& self = c.type("self");
      const ir::Type& weight = c.type("weight");
      if (weight.rank() > 1) c.fail(c.describe("weight") + " must have at most one dimension");
      sym::Expr count = weight.rank() == 0 ? sym::Expr(1) : weight.sizes[0];
      if (count != sym::Expr(1)) {
        if (self.rank() == 0) c.fail("self has no dimensions, so one weight is enough");
        sym::Expr channels = self.rank() > 1 ? self.sizes[1] : sym::Expr(1);
        if (count != channels && !sym::known_eq(count, channels))
          c.fail(c.describe("weight") + " does not fit the channels of " + c.describe("self"));
      }
      return float_same(c);
    },
    .decompose = [](Builder& b, const Call& c) -> Tensors {
      Tensor x = self_of(b, c);
      Tensor weight{b, c.value("weight")};
      ir::Sizes sizes(static_cast<size_t>(x.rank()), sym::Expr(1));
      if (x.rank() > 1 && weight.rank() == 1) sizes[1] = weight.sizes()[0];
      if (x.rank() != weight.rank() || x.rank() > 1) weight = reshape(weight, sizes);
      return {call(b, "aten._prelu_kernel", {x, weight})};
    },
    .samples = {"$[3, 4], $[4]", "$[3, 4], $[1]", "$[5], $[1]", "$[], $[1]", "$[2, 3, 5], $[3]",
                "$[0, 3], $[3]", "$[3, 4], $[]", "$[3, 4], $[3]", "$[3, 4], $[1, 4]",
                "f32[3], f64[1]"}};

// --- rrelu
// ----------------------------------------------------------------------------------------

double mean_slope(const Call& c) { return (c.floating("lower") + c.floating("upper")) / 2; }
/// As eager draws: uniform in [lower, upper) where x <= 0, else 1.
Tensor drawn_noise(Builder& b, const Call& c) {
  Tensor x = self_of(b, c);
  double lower = c.floating("lower");
  double width = c.floating("upper") - lower;
  Tensor uniform = call(b, "tandem.random_uniform", {x.sizes()});
  return where(compare("le", x, 0.0), to(uniform * width + lower, x.dtype()), 1.0);
}
Tensor rrelu_eval(Builder& b, const Call& c) {
  return call(b, "aten.leaky_relu", {self_of(b, c), mean_slope(c)});
}
Types rrelu_types(const Call& c) {
  if (!(c.floating("lower") <= c.floating("upper")))
    c.fail("lower must not be above upper: " + c.describe("lower") + ", " + c.describe("upper"));
  return float_same(c);
}
const OpDef kRrelu{
    .schema =
        "aten::rrelu(Tensor self, Scalar lower=0.125, Scalar upper=0.33333333333333331, bool "
        "training=False, Generator? generator=None) -> Tensor",
    .types = rrelu_types,
    .decompose = [](Builder& b, const Call& c) -> Tensors {
      if (!c.boolean("training")) return {rrelu_eval(b, c)};
      return {self_of(b, c) * drawn_noise(b, c)};
    },
    .samples = {"$[3, 4]", "$[5], 0.1, 0.5", "$[0]", "$[64]:special", "$[3], 0.5, 0.25",
                "$[3, 4], 0.25, 0.25, true", "$[7], 0.1, 0.5, true"},
    .inplace = true};
Types noise_types(const Call& c) {
  need_same_dtype(c, {"self", "noise"});
  if (!same_sizes(c.type("self").sizes, c.type("noise").sizes))
    c.fail(c.describe("self") + " and " + c.describe("noise") + " differ in sizes");
  Types types = rrelu_types(c);
  return {types[0], types[0]};
}
const OpDef kRreluFunctional{
    .schema =
        "aten::rrelu_with_noise_functional(Tensor self, Tensor noise, Scalar lower=0.125, "
        "Scalar upper=0.33333333333333331, bool training=False, Generator? generator=None) -> "
        "(Tensor, Tensor noise_out)",
    .types = noise_types,
    .decompose = [](Builder& b, const Call& c) -> Tensors {
      if (!c.boolean("training"))
        return {rrelu_eval(b, c), call(b, "aten.clone", {c.arg("noise")})};
      Tensor noise = drawn_noise(b, c);
      return {self_of(b, c) * noise, noise};
    },
    .samples = {"$[3, 4], $[3, 4]", "$[5], $[5], 0.1, 0.5", "$[3, 4], $[3, 4], 0.25, 0.25, true"}};
/// The same, but the noise is written into its operand.
const OpDef kRreluWithNoise{
    .schema =
        "aten::rrelu_with_noise(Tensor self, Tensor(b!) noise, Scalar lower=0.125, Scalar "
        "upper=0.33333333333333331, bool training=False, Generator? generator=None) -> Tensor",
    .types = [](const Call& c) -> Types { return {noise_types(c)[0]}; },
    .functional = [](Builder& b, const Call& c) -> Tensors {
      Tensors results = call_many(
          b, "aten.rrelu_with_noise_functional",
          {c.arg("self"), c.arg("noise"), c.arg("lower"), c.arg("upper"), c.arg("training")});
      if (!c.boolean("training")) results[1] = {};
      return results;
    }};
const OpDef kRreluBackward{
    .schema =
        "aten::rrelu_with_noise_backward(Tensor grad_output, Tensor self, Tensor noise, Scalar "
        "lower, Scalar upper, bool training, bool self_is_result) -> Tensor",
    .types = backward_types,
    .decompose = [](Builder& b, const Call& c) -> Tensors {
      Tensor g{b, c.value("grad_output")};
      constexpr double kSpread = 1e-6;  // below it eager takes the mean slope
      if (c.boolean("training") && c.floating("upper") - c.floating("lower") > kSpread)
        return {g * Tensor{b, c.value("noise")}};
      return {call(b, "aten.leaky_relu_backward",
                   {g, self_of(b, c), mean_slope(c), c.arg("self_is_result")})};
    },
    .samples = {"$[3, 4], $[3, 4], $[3, 4], 0.1, 0.3, true, false",
                "$[3, 4], $[3, 4], $[3, 4], 0.1, 0.3, false, false",
                "$[0], $[0], $[0], 0.1, 0.3, true, false"}};

const OpDef* const kOps[] = {
    &kGlu,   &kGluBackward,     &kPreluKernel,    &kPreluKernelBackward, &kPrelu,
    &kRrelu, &kRreluFunctional, &kRreluWithNoise, &kRreluBackward};

}  // namespace

Family gate_family() { return kOps; }

}  // namespace tandem::ops
