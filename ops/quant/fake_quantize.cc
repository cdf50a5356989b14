// Quantization in training: values are rounded to those that quantization has, and stay floats.
//   q = z + round(x * (1/s));   y = (clamp(q, quant_min, quant_max) - z) * s
//   mask = quant_min <= q <= quant_max;   dx = dy where mask, else 0 (the gradient passes straight
// through the rounding). Where z of a channel is a float, q = round(z + x * (1/s)). A NaN becomes
// quant_min. s is f32, and so is y of a whole f64 tensor. Of channels
// PyTorch holds q as a 64-bit integer, where what is too large for it counts as the least one, and
// computes y in f64; that is done here where f32 would give other bits.
#include <fmt/format.h>

#include "ops/families.h"
#include "ops/formula.h"
#include "ops/quant/ranges.h"
#include "ops/quant/steps.h"

namespace tandem::ops {
namespace {

// --- the values
// ----------------------------------------------------------------------------------

/// Of one scale and zero point, or those of channels, where the zero points may be floats.
enum class Kind : uint8_t { tensor, channels, float_channels };

struct Parameters {
  Element scale, zero_point;  // f32 and of any dtype
};

double bound(const Call& c, std::string_view name) { return static_cast<double>(c.constant(name)); }

/// What y is computed in. f64 where f32 does not hold the whole numbers between the bounds, or z is
/// not whole.
DType value_dtype(const Call& c, Kind kind) {
  constexpr double kMost = 1 << 24;
  DType compute = compute_type(c.type("self").dtype);
  if (kind == Kind::tensor) return compute;
  bool fits = bound(c, "quant_min") > -kMost && bound(c, "quant_max") < kMost;
  bool is_exact = fits && kind == Kind::channels;
  return is_exact ? compute : DType::f64;
}

/// q, in the compute type.
Element quantized(Element x, const Parameters& p, Kind kind) {
  Element inverse = (1.0 / p.scale).cast(x.dtype());
  Element zero = p.zero_point.cast(x.dtype());
  Element scaled = x * inverse;
  return kind == Kind::float_channels ? (zero + scaled).apply(Opcode::round)
                                      : zero + scaled.apply(Opcode::round);
}

Element within(const Call& c, Element q) {
  Element wide = q.cast(DType::f64);
  return both(wide >= bound(c, "quant_min"), wide <= bound(c, "quant_max"));
}

Element faked(const Call& c, Element q, const Parameters& p, Kind kind) {
  constexpr double kTooLarge = 9223372036854775808.0;  // 2^63
  DType dtype = value_dtype(c, kind);
  Element wide = q.cast(dtype);
  Element low = wide.number(bound(c, "quant_min"));
  Element clamped = min(max(wide, low), wide.number(bound(c, "quant_max")));
  Element fits = kind == Kind::tensor ? equal(wide, wide) : wide < kTooLarge;
  Element steps = choose(fits, clamped, low) - p.zero_point.cast(dtype);
  if (kind == Kind::tensor) steps = steps.cast(DType::f32);
  Element y = steps * p.scale.cast(steps.dtype());
  return y.cast(compute_type(c.type("self").dtype));
}

void check_bounds(const Call& c) {
  need_float(c, "self");
  if (c.constant("quant_min") > c.constant("quant_max"))
    c.fail(fmt::format("quant_min {} is above quant_max {}", c.constant("quant_min"),
                       c.constant("quant_max")));
}

Types value_and_mask(const Call& c) {
  const ir::Type& self = c.type("self");
  return {ir::Type::tensor(self.dtype, self.sizes), ir::Type::tensor(DType::boolean, self.sizes)};
}

/// dx = dy * mask
Gradients masked_vjp(Builder& b, const Call& c, Grads g) {
  Tensor mask{b, c.result(1)};
  std::string_view backward = "aten.fake_quantize_per_tensor_affine_cachemask_backward";
  return {{"self", call(b, backward, {g[0], mask})}};
}

template <class Rule>
Definition value_and_mask_loops(Lowering& lowering, const Call& c, Rule parameters, Kind kind) {
  return map_definition(c, [&lowering, c, parameters, kind](size_t result, const Index& index) {
    Element x{lowering.scalars(), lowering.load(c.value("self"), index)};
    Parameters p = parameters(lowering, c, index);
    Element q = quantized(x, p, kind);
    return (result == 0 ? faked(c, q, p, kind) : within(c, q)).value();
  });
}

// --- of a tensor
// ---------------------------------------------------------------------------------

void check_numbers(const Call& c) {
  check_bounds(c);
  int64_t zero = c.constant("zero_point");
  if (zero < c.constant("quant_min") || zero > c.constant("quant_max"))
    c.fail(fmt::format("zero_point {} is not between quant_min {} and quant_max {}", zero,
                       c.constant("quant_min"), c.constant("quant_max")));
}

Parameters numbers(Lowering& lowering, const Call& c, const Index&) {
  loop::ScalarPool& pool = lowering.scalars();
  return {{pool, lowering.scalar(c.arg("scale"), DType::f32)},
          {pool, lowering.scalar(c.arg("zero_point"), DType::f32)}};
}

const Samples kNumberSamples = {
    "$[3, 70], 0.05, 3, -128, 127",   "$[], 0.1, 0, 0, 255",
    "$[0, 3], 0.1, 0, 0, 255",        "$[4, 3]{1, 4}, 0.01, 7, -128, 127",
    "$[150]:halves, 1.0, 3, -20, 25", "$[150]:halves, 0.5, -5, -128, 127",
    "$[64]:special, 0.3, 2, 0, 127",  "$[70], 1e-7, 5, -2147483648, 2147483647",
    "$[3], 0.1, 200, -128, 127",      "$[3], 0.1, 0, 5, 4"};

const OpDef kFakeTensor{
    .schema =
        "aten::fake_quantize_per_tensor_affine(Tensor self, float scale, int zero_point, int "
        "quant_min, int quant_max) -> Tensor",
    .types = [](const Call& c) -> Types {
      check_numbers(c);
      return {ir::Type::tensor(c.type("self").dtype, c.type("self").sizes)};
    },
    .decompose = [](Builder& b, const Call& c) -> Tensors {
      std::vector<Operand> args(c.args().begin(), c.args().end());
      return {call_many(b, "aten.fake_quantize_per_tensor_affine_cachemask", args)[0]};
    },
    .samples = kNumberSamples};
const OpDef kFakeTensorMask{
    .schema =
        "aten::fake_quantize_per_tensor_affine_cachemask(Tensor self, float scale, int "
        "zero_point, int quant_min, int quant_max) -> (Tensor output, Tensor mask)",
    .types = [](const Call& c) -> Types {
      check_numbers(c);
      return value_and_mask(c);
    },
    .lower = [](Lowering& lowering,
                const Call& c) { return value_and_mask_loops(lowering, c, numbers, Kind::tensor); },
    .vjp = masked_vjp,
    .samples = kNumberSamples,
    .pointwise = true};

const OpDef kFakeTensorMaskBackward{
    .schema =
        "aten::fake_quantize_per_tensor_affine_cachemask_backward(Tensor grad, Tensor mask) "
        "-> Tensor",
    .types = [](const Call& c) -> Types {
      need_float(c, "grad");
      if (c.type("mask").dtype != DType::boolean) c.fail(c.describe("mask") + " must be bool");
      if (!same_sizes(c.type("grad").sizes, c.type("mask").sizes))
        c.fail(fmt::format("{} and {} must have the same sizes", c.describe("grad"),
                           c.describe("mask")));
      return {c.type("grad")};
    },
    .decompose = [](Builder& b, const Call& c) -> Tensors {
      return {Tensor{b, c.value("grad")} * Tensor{b, c.value("mask")}};
    },
    .samples = {"$[3, 4], bool[3, 4]", "$[], bool[]", "$[0], bool[0]", "$[3], bool[2]",
                "$[3], $[3]", "$[4, 3]{1, 4}, bool[4, 3]", "$[64]:special, bool[64]"}};

Parameters elements(Lowering& lowering, const Call& c, const Index&) {
  Element scale = step_of(lowering, c, "scale", first_place(c, "scale")).x;
  Element zero = step_of(lowering, c, "zero_point", first_place(c, "zero_point")).x;
  // As eager reads them: z cut to a whole number.
  return {scale.cast(DType::f32), zero.cast(DType::i32)};
}

void check_elements(const Call& c) {
  check_bounds(c);
  for (std::string_view param : {"scale", "zero_point"}) {
    need_one_element(c, param);
    need_number(c, param);
  }
}

Element is_enabled(Lowering& lowering, const Call& c) {
  Element flag = step_of(lowering, c, "fake_quant_enabled", first_place(c, "fake_quant_enabled")).x;
  return not_equal(flag, flag.number(0));
}

const OpDef kFakeElements{
    .schema =
        "aten::fake_quantize_per_tensor_affine.tensor_qparams(Tensor self, Tensor scale, "
        "Tensor zero_point, int quant_min, int quant_max) -> Tensor",
    .types = [](const Call& c) -> Types {
      check_elements(c);
      return {ir::Type::tensor(c.type("self").dtype, c.type("self").sizes)};
    },
    .decompose = [](Builder& b, const Call& c) -> Tensors {
      Tensor enabled = full(b, {Expr(1)}, 1, DType::i64);
      return {call_many(
          b, "aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams",
          {Tensor{b, c.value("self")}, Tensor{b, c.value("scale")},
           Tensor{b, c.value("zero_point")}, enabled, c.arg("quant_min"), c.arg("quant_max")})[0]};
    },
    .samples = {"$[3, 70], f32[]:unit, i32[], -128, 127", "$[3, 70], f32[1]:unit, i32[1], 0, 255",
                "$[150]:halves, f32[1]:constant(1), i32[1]:constant(3), -20, 25",
                "$[4, 3]{1, 4}, f32[1]:unit, i64[1], -8, 7", "$[0, 3], f32[1]:unit, i32[1], -8, 7",
                "$[], f32[]:unit, f32[], -8, 7", "$[3], f32[2]:unit, i32[1], -8, 7"}};
const OpDef kFakeElementsMask{
    .schema =
        "aten::_fake_quantize_per_tensor_affine_cachemask_tensor_qparams(Tensor self, Tensor "
        "scale, Tensor zero_point, Tensor fake_quant_enabled, int quant_min, int quant_max) "
        "-> (Tensor output, Tensor mask)",
    .types = [](const Call& c) -> Types {
      check_elements(c);
      need_one_element(c, "fake_quant_enabled");
      return value_and_mask(c);
    },
    .lower = [](Lowering& lowering, const Call& c) -> Definition {
      Definition fake = value_and_mask_loops(lowering, c, elements, Kind::tensor);
      return map_definition(c, [&lowering, c, fake](size_t result, const Index& index) {
        Element enabled = is_enabled(lowering, c);
        Element value{lowering.scalars(), fake.map(result, index)};
        Element self{lowering.scalars(), lowering.load(c.value("self"), index)};
        Element otherwise = result == 0 ? self : value.integer(1);
        return choose(enabled, value, otherwise).value();
      });
    },
    .vjp = masked_vjp,
    .samples = {"$[3, 70], f32[]:unit, i32[], i64[1]:constant(1), -128, 127",
                "$[3, 70], f32[1]:unit, i32[1], i64[1]:constant(0), 0, 255",
                "$[64]:special, f32[1]:unit, i32[1], u8[1]:constant(1), -8, 7",
                "$[64]:special, f32[1]:unit, i32[1], bool[1]:constant(0), -8, 7",
                "$[4, 3]{1, 4}, f32[1]:unit, i32[1], i64[]:constant(1), -8, 7",
                "$[0, 3], f32[1]:unit, i32[1], i64[1], -8, 7",
                "$[], f32[1]:unit, i32[1], i64[1]:constant(1), -8, 7"}};

// --- of channels
// ---------------------------------------------------------------------------------

size_t axis_of(const Call& c) { return static_cast<size_t>(c.constant("axis")); }

void check_channels(const Call& c) {
  check_bounds(c);
  const Sizes& sizes = c.type("self").sizes;
  int64_t axis = c.constant("axis");
  if (axis < 0 || axis >= static_cast<int64_t>(sizes.size()))
    c.fail(fmt::format("axis {} is not a dimension of {}", axis, c.describe("self")));
  DType scale = c.type("scale").dtype;
  if (scale != DType::f32 && scale != DType::bf16)
    c.fail(c.describe("scale") + " must have dtype f32 or bf16");
  DType zero = c.type("zero_point").dtype;
  if (zero != DType::i32 && zero != DType::f32 && zero != DType::f16)
    c.fail(c.describe("zero_point") + " must have dtype i32, f32 or f16");
  for (std::string_view param : {"scale", "zero_point"}) {
    need_rank(c, param, 1, 1);
    need_for_each(c, param, sizes[axis_of(c)], "channels");
  }
}

Parameters of_channel(Lowering& lowering, const Call& c, const Index& index) {
  Index place{index[axis_of(c)]};
  return {step_of(lowering, c, "scale", place).x, step_of(lowering, c, "zero_point", place).x};
}

const Samples kChannelSamples = {
    "$[3, 70], f32[3]:unit, i32[3], 0, -128, 127",
    "$[3, 70], f32[70]:unit, i32[70], 1, -10, 255",
    "$[2, 3, 4, 5], f32[3]:unit, f32[3], 1, -8, 7",
    "$[7], f32[7]:unit, f16[7], 0, -8, 7",
    "$[2, 75]:halves, f32[2]:constant(1), i32[2]:constant(3), 0, -20, 25",
    "$[2, 75]:halves, f32[2]:constant(1), f32[2]:constant(3), 0, -20, 25",
    "$[4, 3]{1, 4}, f32[3]:unit, i32[3], 1, -128, 127",
    "$[0, 3], f32[3]:unit, i32[3], 1, -8, 7",
    "$[2, 64]:special, f32[2]:unit, i32[2], 0, -8, 7",
    "$[2, 64]:special, f32[2]:unit, f32[2], 0, -8, 7",
    "$[3, 4], f32[3]:unit, i32[3], -2, -8, 7",
    "$[3, 4], f32[3]:unit, i64[3], 0, -8, 7",
    "$[3, 4], f64[3]:unit, i32[3], 0, -8, 7",
    "$[3, 4], f32[2]:unit, i32[2], 0, -8, 7",
    "$[3, 4], f32[3]:unit, i32[3], 0, 5, 4"};

const OpDef kFakeChannels{
    .schema =
        "aten::fake_quantize_per_channel_affine(Tensor self, Tensor scale, Tensor "
        "zero_point, int axis, int quant_min, int quant_max) -> Tensor",
    .types = [](const Call& c) -> Types {
      check_channels(c);
      return {ir::Type::tensor(c.type("self").dtype, c.type("self").sizes)};
    },
    .decompose = [](Builder& b, const Call& c) -> Tensors {
      std::vector<Operand> args(c.args().begin(), c.args().end());
      return {call_many(b, "aten.fake_quantize_per_channel_affine_cachemask", args)[0]};
    },
    .samples = kChannelSamples};
const OpDef kFakeChannelsMask{
    .schema =
        "aten::fake_quantize_per_channel_affine_cachemask(Tensor self, Tensor scale, Tensor "
        "zero_point, int axis, int quant_min, int quant_max) -> (Tensor output, Tensor mask)",
    .types = [](const Call& c) -> Types {
      check_channels(c);
      return value_and_mask(c);
    },
    .lower = [](Lowering& lowering, const Call& c) -> Definition {
      bool is_whole = !is_float(c.type("zero_point").dtype);
      return value_and_mask_loops(lowering, c, of_channel,
                                  is_whole ? Kind::channels : Kind::float_channels);
    },
    .vjp = masked_vjp,
    .samples = kChannelSamples};
const OpDef kFakeChannelsMaskBackward{
    .schema =
        "aten::fake_quantize_per_channel_affine_cachemask_backward(Tensor grad, Tensor mask) "
        "-> Tensor",
    .types = kFakeTensorMaskBackward.types,
    .decompose = kFakeTensorMaskBackward.decompose,
    .samples = kFakeTensorMaskBackward.samples};

// --- of channels, of torch.ao
// --------------------------------------------------------------------

size_t checked_axis(const Call& c, int64_t rank) {
  int64_t axis = c.constant("axis");
  if (axis < 0 || axis >= rank)
    c.fail(fmt::format("axis {} is not a dimension of {}", axis, c.describe("input")));
  return static_cast<size_t>(axis);
}

/// Parameter `name` in f32, broadcast along the other dimensions.
Tensor along_axis(Builder& b, const Call& c, std::string_view name, DType dtype) {
  const Sizes& sizes = c.type("input").sizes;
  Sizes shape(sizes.size(), Expr(1));
  shape[checked_axis(c, static_cast<int64_t>(sizes.size()))] = c.type(name).sizes[0];
  return to(reshape(to(Tensor{b, c.value(name)}, dtype), shape), DType::f32);
}

struct Faked {
  Tensor q, scale, zero_point;
};
Faked faked_of(Builder& b, const Call& c) {
  Tensor scale = along_axis(b, c, "scales", DType::f32);
  Tensor zero = along_axis(b, c, "zero_points", DType::i32);
  Tensor scaled = Tensor{b, c.value("input")} * reciprocal(scale);
  return {call(b, "aten.round", {scaled}) + zero, scale, zero};
}

const OpDef kFakeChannelsOfAo{
    .schema =
        "quantized_decomposed::fake_quant_per_channel(Tensor input, Tensor scales, Tensor "
        "zero_points, int axis, int quant_min, int quant_max) -> Tensor",
    .types = [](const Call& c) -> Types {
      const ir::Type& input = c.type("input");
      if (input.dtype != DType::f32) c.fail(c.describe("input") + " must have dtype f32");
      Expr channels = input.sizes[checked_axis(c, input.rank())];
      for (std::string_view param : {"scales", "zero_points"}) {
        need_rank(c, param, 1, 1);
        need_for_each(c, param, channels, "channels", Counts::each_or_one);
      }
      return {input};
    },
    .decompose = [](Builder& b, const Call& c) -> Tensors {
      Faked f = faked_of(b, c);
      Tensor clamped = clamp(f.q, bound(c, "quant_min"), bound(c, "quant_max"));
      return {(clamped - f.zero_point) * f.scale};
    },
    // dx = dy where quant_min <= q <= quant_max, else 0
    .vjp = [](Builder& b, const Call& c, Grads g) -> Gradients {
      Tensor q = faked_of(b, c).q;
      Tensor mask = both(q >= bound(c, "quant_min"), q <= bound(c, "quant_max"));
      return {{"input", g[0] * mask}};
    },
    .samples = {"$[3, 70], f32[3]:unit, i32[3], 0, -128, 127",
                "$[2, 3, 4, 5], f64[5]:unit, i64[5], 3, -8, 7",
                "$[2, 75]:halves, f32[2]:constant(1), i32[2]:constant(3), 0, -20, 25",
                "$[4, 3]{1, 4}, bf16[3]:unit, f32[3], 1, -128, 127",
                "$[0, 3], f32[3]:unit, i32[3], 1, -8, 7",
                "$[64]:special, f32[64]:unit, i32[64], 0, -8, 7",
                "$[3, 4], f32[3]:unit, i32[3], 2, -8, 7",
                "$[3, 4], f32[2]:unit, i32[2], 0, -8, 7"}};

const OpDef* const kOps[] = {
    &kFakeTensor,       &kFakeTensorMask,           &kFakeTensorMaskBackward,
    &kFakeElements,     &kFakeElementsMask,         &kFakeChannels,
    &kFakeChannelsMask, &kFakeChannelsMaskBackward, &kFakeChannelsOfAo};

}  // namespace

Family fake_quantize_family() { return kOps; }

}  // namespace tandem::ops
