// Quantization of a whole tensor by one scale s and one zero point z, as numbers, as tensors of one
// element, or as tensors together with the range:
//   quantize    q = clamp(round(x * (1/s)) + z, quant_min, quant_max)     round: half to even
//   dequantize  x = (q - z) * s
// z is added behind the rounding, so ties do not depend on it. x and round are f32; 1/s is computed
// in f64 and rounded once. Dequantization rounds to its dtype twice, as each operation does.
#include <fmt/format.h>

#include "ops/families.h"
#include "ops/quant/ranges.h"
#include "ops/quant/steps.h"

namespace tandem::ops {
namespace {

constexpr std::string_view kNoGradient = "quantized values are integers";

/// A parameter of the whole tensor, in `dtype`.
Element parameter(Lowering& lowering, const Call& c, std::string_view name, DType dtype) {
  if (!is_tensor(c, name)) return {lowering.scalars(), lowering.scalar(c.arg(name), dtype)};
  return step_of(lowering, c, name, first_place(c, name)).x.cast(dtype);
}

Element inverse_scale(Lowering& lowering, const Call& c) {
  if (const double* scale = std::get_if<double>(&c.arg("scale")))
    return {lowering.scalars(), lowering.scalars().constant(DType::f32, 1.0 / *scale)};
  return (1.0 / parameter(lowering, c, "scale", DType::f64)).cast(DType::f32);
}

void check_parameters(const Call& c) {
  for (std::string_view name : {"scale", "zero_point", "quant_min", "quant_max"}) {
    if (!is_tensor(c, name)) continue;
    need_one_element(c, name);
    need_number(c, name);
  }
  if (const double* scale = std::get_if<double>(&c.arg("scale")); scale != nullptr && *scale == 0)
    c.fail("scale must not be 0");
}

Types quantized_types(const Call& c) {
  Sizes sizes = float_input(c).sizes;
  DType dtype = quantized_dtype(c);
  check_parameters(c);
  if (!is_tensor(c, "quant_min")) check_range(c, dtype);
  return {ir::Type::tensor(dtype, sizes)};
}

Types dequantized_types(const Call& c) {
  Sizes sizes = quantized_input(c).sizes;
  check_parameters(c);
  return {ir::Type::tensor(dequantized_dtype(c, "out_dtype"), sizes)};
}

/// A bound that a tensor gives, which must be within the dtype's range.
Element checked_bound(Lowering& lowering, const Call& c, std::string_view name) {
  DType dtype = c.result()->type.dtype;
  Range range = range_of(dtype);
  Element bound = parameter(lowering, c, name, DType::i64);
  bool is_least = name == "quant_min";
  Element holds =
      is_least ? bound >= bound.integer(range.least) : bound <= bound.integer(range.greatest);
  int32_t error = lowering.error(fmt::format("[{}] {} is outside of the range of {}",
                                             c.op().schema.full_name(), name, name_of(dtype)));
  return Element{bound.pool(), lowering.check(holds.value(), bound.value(), error)}.cast(
      DType::f32);
}

Element bound(Lowering& lowering, const Call& c, std::string_view name) {
  return is_tensor(c, name) ? checked_bound(lowering, c, name)
                            : parameter(lowering, c, name, DType::f32);
}

Definition quantize(Lowering& lowering, const Call& c) {
  return map_definition(c, [&lowering, c](size_t, const Index& index) {
    Element x{lowering.scalars(), lowering.load(c.value("input"), index)};
    Element scaled = (x * inverse_scale(lowering, c)).apply(Opcode::round);
    Element moved = scaled + parameter(lowering, c, "zero_point", DType::f32);
    Element least = bound(lowering, c, "quant_min");
    return min(max(moved, least), bound(lowering, c, "quant_max"))
        .cast(c.result()->type.dtype)
        .value();
  });
}

Definition dequantize(Lowering& lowering, const Call& c) {
  return map_definition(c, [&lowering, c](size_t, const Index& index) {
    Step q = step_of(lowering, c, "input", index).to(c.result()->type.dtype);
    DType compute = q.x.dtype();
    return q.with(Opcode::sub, parameter(lowering, c, "zero_point", compute))
        .with(Opcode::mul, parameter(lowering, c, "scale", compute))
        .x.value();
  });
}

const OpDef kQuantize{
    .schema =
        "quantized_decomposed::quantize_per_tensor(Tensor input, float scale, int "
        "zero_point, int quant_min, int quant_max, ScalarType dtype) -> Tensor",
    .types = quantized_types,
    .lower = quantize,
    .no_grad = kNoGradient,
    .samples = {"$[3, 70], 0.05, 3, -128, 127, i8", "$[], 0.1, 0, 0, 255, u8",
                "$[0, 3], 0.1, 0, 0, 255, u8", "$[4, 3]{1, 4}, 0.01, 7, -128, 127, i8",
                "$[150]:halves, 1.0, 3, 0, 255, u8", "$[150]:halves, 0.5, -5, -128, 127, i8",
                "$[150]:halves, 1.0, 0, -7, 8, i8", "$[70], 0.0001, 11, -30000, 30000, i16",
                "$[70], 1e-7, 0, -2000000000, 2000000000, i32", "$[64]:special, 0.3, 2, 0, 127, u8",
                "$[3], 0.1, 0, -129, 127, i8", "$[3], 0.1, 0, 0, 256, u8",
                "$[3], 0.1, 0, 0, 1, i64", "$[3], 0.0, 0, 0, 1, u8"},
    .pointwise = true,
    .quantizes = true};
const OpDef kQuantizeTensor{
    .schema =
        "quantized_decomposed::quantize_per_tensor.tensor(Tensor input, Tensor scale, Tensor "
        "zero_point, int quant_min, int quant_max, ScalarType dtype) -> Tensor",
    .types = quantized_types,
    .lower = quantize,
    .no_grad = kNoGradient,
    .samples = {"$[3, 70], f32[]:unit, i64[], -128, 127, i8",
                "$[3, 70], f64[1]:unit, i64[1], 0, 255, u8",
                "$[150]:halves, f32[1, 1]:constant(1), i32[], -128, 127, i8",
                "$[], f32[1]:unit, i64[1], 0, 255, u8", "$[0, 3], f32[]:unit, i64[], 0, 255, u8",
                "$[4, 3]{1, 4}, f64[]:unit, i64[], -8, 7, i8",
                "$[64]:special, f32[]:unit, f32[], 0, 127, u8",
                "$[3], f32[2]:unit, i64[1], 0, 255, u8", "$[3], f32[]:unit, i64[2], 0, 255, u8"},
    .pointwise = true,
    .quantizes = true};
const OpDef kQuantizeTensor2{
    .schema =
        "quantized_decomposed::quantize_per_tensor.tensor2(Tensor input, Tensor scale, Tensor "
        "zero_point, Tensor quant_min, Tensor quant_max, ScalarType dtype) -> Tensor",
    .types = quantized_types,
    .lower = quantize,
    .no_grad = kNoGradient,
    .samples = {"$[3, 70], f32[]:unit, i64[], i64[]:index(1), i64[]:positive, i8",
                "$[70]:halves, f64[1]:unit, i64[1], i64[1]:index(1), i64[1]:positive, u8",
                "$[0, 3], f32[]:unit, i64[], i64[]:index(1), i64[]:positive, u8",
                "$[], f32[]:unit, i64[], i64[]:index(1), i64[]:positive, u8"},
    .pointwise = true,
    .quantizes = true,
    .can_fail = true};

const OpDef kDequantize{
    .schema =
        "quantized_decomposed::dequantize_per_tensor(Tensor input, float scale, int "
        "zero_point, int quant_min, int quant_max, ScalarType dtype, *, ScalarType? "
        "out_dtype=None) -> Tensor",
    .types = dequantized_types,
    .lower = dequantize,
    .no_grad = kNoGradient,
    .samples = {"$[3, 70], 0.05, 3, -128, 127, $", "$[], 0.1, 0, 0, 255, $",
                "$[0, 3], 0.1, 0, 0, 255, $", "$[4, 3]{1, 4}, 0.01, 7, -8, 7, $",
                "$[70]:index(200), 0.1, 130, 0, 127, $, out_dtype=bf16",
                "$[70]:index(200), 0.1, -5, 0, 127, $, out_dtype=f16",
                "$[70]:index(200), 0.1, 77, 0, 127, $, out_dtype=f64", "i8[3], 0.1, 0, 0, 1, u8",
                "f32[3], 0.1, 0, 0, 1, f32"},
    .sample_dtypes = DTypes::integers,
    .pointwise = true,
    .dequantizes = Scales::tensor};
const OpDef kDequantizeTensor{
    .schema =
        "quantized_decomposed::dequantize_per_tensor.tensor(Tensor input, Tensor scale, "
        "Tensor zero_point, int quant_min, int quant_max, ScalarType dtype, *, ScalarType? "
        "out_dtype=None) -> Tensor",
    .types = dequantized_types,
    .lower = dequantize,
    .no_grad = kNoGradient,
    .samples = {"$[3, 70], f32[]:unit, i64[], -128, 127, $", "$[], f64[1]:unit, i64[1], 0, 255, $",
                "$[0, 3], f32[]:unit, i64[], 0, 255, $",
                "$[4, 3]{1, 4}, f32[1]:unit, i32[1], -8, 7, $",
                "$[70], f64[]:unit, i64[], 0, 127, $, out_dtype=bf16",
                "$[70], f32[]:unit, f32[], 0, 127, $, out_dtype=f64",
                "$[3], f32[2]:unit, i64[], 0, 127, $"},
    .sample_dtypes = DTypes::integers,
    .pointwise = true,
    .dequantizes = Scales::tensor};
const OpDef kDequantizeTensor2{
    .schema =
        "quantized_decomposed::dequantize_per_tensor.tensor2(Tensor input, Tensor scale, "
        "Tensor zero_point, Tensor quant_min, Tensor quant_max, ScalarType dtype, *, "
        "ScalarType? out_dtype=None) -> Tensor",
    .types = dequantized_types,
    .lower = dequantize,
    .no_grad = kNoGradient,
    .samples = {"$[3, 70], f32[]:unit, i64[], i64[], i64[], $",
                "$[70], f64[1]:unit, i64[1], i64[1], i64[1], $, out_dtype=f16"},
    .sample_dtypes = DTypes::integers,
    .pointwise = true,
    .dequantizes = Scales::tensor};

// What must stay rounded to a narrower dtype: a cast of its own.
const OpDef kConvert{
    .schema =
        "quantized_decomposed::convert_element_type.no_fuse(Tensor input, ScalarType dtype) "
        "-> Tensor",
    .types = [](const Call& c) -> Types {
      ir::Type type = c.type("input");
      type.dtype = c.dtype("dtype", type.dtype);
      return {type};
    },
    .lower = [](Lowering& lowering, const Call& c) -> Definition {
      return map_definition(c, [&lowering, c](size_t, const Index& index) {
        return step_of(lowering, c, "input", index).to(c.result()->type.dtype).x.value();
      });
    },
    .no_grad = "PyTorch does not differentiate it",
    .samples = {"$[3, 4], f16", "$[3, 4], f32", "$[], bf16", "$[0], f16", "$[4, 3]{1, 4}, f64",
                "$[33]:special, f16", "$[33]:index(99), u8"},
    .pointwise = true};

const OpDef* const kOps[] = {&kConvert,          &kQuantize,   &kQuantizeTensor,
                             &kQuantizeTensor2,  &kDequantize, &kDequantizeTensor,
                             &kDequantizeTensor2};

}  // namespace

Family per_tensor_family() { return kOps; }

}  // namespace tandem::ops
