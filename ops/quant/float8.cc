// torchao's quantization to floats of 8 bits. There is no zero point, and no rounding but that of
// the type itself, whose largest finite number M bounds what is kept:
//   quantize    q = float8(clamp(f32(x) / s, -M, M))        a NaN stays one
//   dequantize  x = output(f32(q) * s)
// The scale is one number, or broadcasts, or has a number for each block: then each of its sizes
// divides that of the tensor.
#include <fmt/format.h>

#include <algorithm>

#include "ops/elements.h"
#include "ops/families.h"
#include "ops/types.h"

namespace tandem::ops {
namespace {

/// Whether dimension for dimension the scale has the tensor's size, or 1.
bool broadcasts(const Sizes& scale, const Sizes& sizes) {
  if (scale.size() > sizes.size()) return false;
  for (size_t i = 0; i < scale.size(); ++i) {
    const Expr& size = sizes[sizes.size() - scale.size() + i];
    if (scale[i] != Expr(1) && !sym::known_eq(scale[i], size)) return false;
  }
  return true;
}

bool is_one_number(const Sizes& scale) {
  return std::ranges::all_of(scale, [](const Expr& size) { return size == Expr(1); });
}

void need_scale(const Call& c, std::string_view scale_name) {
  const ir::Type& scale = c.type(scale_name);
  const Sizes& sizes = c.type("tensor").sizes;
  if (scale.dtype == DType::f64) c.fail(c.describe(scale_name) + " must not have dtype f64");
  if (is_one_number(scale.sizes) || broadcasts(scale.sizes, sizes)) return;
  bool fits = scale.rank() == static_cast<int64_t>(sizes.size());
  for (size_t i = 0; fits && i < sizes.size(); ++i) {
    const std::optional<int64_t> count = scale.sizes[i].constant();
    fits = count && *count > 0 && sym::known_eq(sym::mod(sizes[i], scale.sizes[i]), Expr(0));
  }
  if (!fits)
    c.fail(fmt::format("{} has neither one number, nor one for each block of {}",
                       c.describe(scale_name), c.describe("tensor")));
}

/// The scale of the element at `index`, in f32.
Element scale_at(Lowering& lowering, const Call& c, const Index& index) {
  const Sizes& scale = c.type("scale").sizes;
  const Sizes& sizes = c.type("tensor").sizes;
  Index at(scale.size(), Expr(0));
  const bool same = is_one_number(scale) || broadcasts(scale, sizes);
  for (size_t i = 0; i < scale.size() && !is_one_number(scale); ++i) {
    const size_t dim = sizes.size() - scale.size() + i;
    if (scale[i] == Expr(1) || sizes[dim] == Expr(0)) continue;  // blocks of no element
    at[i] = same ? index[dim] : sym::floor_div(index[dim], sym::floor_div(sizes[dim], scale[i]));
  }
  Element found{lowering.scalars(), lowering.load(c.value("scale"), at)};
  return found.cast(DType::f32);
}

const OpDef kQuantize{
    .schema =
        "torchao::quantize_affine_float8_non_decomposed(Tensor tensor, Tensor scale, ScalarType "
        "float8_dtype=24) -> Tensor",
    .types = [](const Call& c) -> Types {
      need_scale(c, "scale");
      const DType dtype = c.dtype("float8_dtype", DType::f8e4m3fn);
      if (!is_float8(dtype))
        c.fail(fmt::format("float8_dtype {} is not one of f8e4m3fn and f8e5m2", name_of(dtype)));
      return {ir::Type::tensor(dtype, c.type("tensor").sizes)};
    },
    .lower = [](Lowering& lowering, const Call& c) -> Definition {
      return map_definition(c, [&lowering, c](size_t, const Index& index) {
        const double most = largest_finite(c.result()->type.dtype);
        Element x{lowering.scalars(), lowering.load(c.value("tensor"), index)};
        Element scaled = x.cast(DType::f32) / scale_at(lowering, c, index);
        return min(max(scaled, scaled.number(-most)), scaled.number(most)).value();
      });
    },
    .no_grad = "PyTorch's operator has no gradient",
    .samples = {"$[3, 64], f32[]:unit", "$[3, 64], f32[1]:constant(0.001)",
                "$[3, 64], f32[3, 1]:unit, f8e5m2", "$[4, 6], f32[2, 3]:unit",
                "$[4, 6]{1, 4}, f32[1, 6]:unit", "$[0, 4], f32[]:unit", "$[], f32[]:unit, f8e5m2",
                "$[3, 64]:special, f32[]:unit", "$[3, 64]:special, f32[]:unit, f8e5m2",
                "$[3, 4], f32[2, 4]", "i32[3], i32[]:positive"}};

const OpDef kDequantize{
    .schema =
        "torchao::dequantize_affine_float8_non_decomposed(Tensor tensor, Tensor scale, ScalarType "
        "output_dtype=6) -> Tensor",
    .types = [](const Call& c) -> Types {
      if (!is_float8(c.type("tensor").dtype))
        c.fail(c.describe("tensor") + " must have dtype f8e4m3fn or f8e5m2");
      need_scale(c, "scale");
      const DType dtype = c.dtype("output_dtype", DType::f32);
      if (!is_float(dtype)) c.fail(fmt::format("output_dtype {} is no float", name_of(dtype)));
      return {ir::Type::tensor(dtype, c.type("tensor").sizes)};
    },
    .lower = [](Lowering& lowering, const Call& c) -> Definition {
      return map_definition(c, [&lowering, c](size_t, const Index& index) {
        Element q{lowering.scalars(), lowering.load(c.value("tensor"), index)};
        const DType compute = compute_type(c.result()->type.dtype);
        return (q.cast(DType::f32) * scale_at(lowering, c, index)).cast(compute).value();
      });
    },
    .no_grad = "PyTorch's operator has no gradient",
    .samples = {"f8e4m3fn[3, 64], f32[]:unit", "f8e5m2[3, 64], f32[1]:unit",
                "f8e4m3fn[3, 64], f32[3, 1]:unit, $", "f8e4m3fn[4, 6], f32[2, 3]:unit, $",
                "f8e5m2[4, 6]{1, 4}, bf16[1, 6]:unit, $", "f8e4m3fn[0, 4], f32[]:unit",
                "f8e4m3fn[3, 64]:special, f32[]:unit", "f8e5m2[3, 64]:special, f32[]:unit",
                "f8e4m3fn[3, 4], f32[2, 4]"}};

const OpDef* const kOps[] = {&kQuantize, &kDequantize};

}  // namespace

Family float8_family() { return kOps; }

}  // namespace tandem::ops
