// Quantization with scales s and zero points z of parts of a tensor: a channel of one axis, a group
// of neighbours in a row of a matrix, or a token (a row).
//   channel   q = clamp(round(x * (1/s)) + z, quant_min, quant_max),  x = (q - z) * s
//   others    q = clamp(round(x * (1/s) + z), quant_min, quant_max),  x = (q - z) * s
// Only the first adds z behind the rounding, as PyTorch does. Dtypes are promoted operation by
// operation (steps.h): i8 - i64 is an i64, f32 * f64 is computed in f64.
#include <fmt/format.h>

#include "ops/families.h"
#include "ops/quant/ranges.h"
#include "ops/quant/steps.h"

namespace tandem::ops {
namespace {

constexpr std::string_view kNoGradient = "quantized values are integers";

/// Where in scales and zero_points the parameters of an element are.
using Place = Index (*)(const Call&, std::string_view param, const Index& index);

double bound(const Call& c, std::string_view name) { return static_cast<double>(c.constant(name)); }
Step clamped(const Call& c, const Step& q) {
  return q.clamp(bound(c, "quant_min"), bound(c, "quant_max"));
}

/// x, f32 of a 16-bit float where `widens`.
Step scaled(Lowering& lowering, const Call& c, const Index& index, const Index& place,
            bool widens) {
  Step x = step_of(lowering, c, "input", index);
  if (widens) x = x.to(DType::f32);
  return x * inverse(step_of(lowering, c, "scales", place));
}

template <Place place>
Definition dequantize(Lowering& lowering, const Call& c, std::string_view out_dtype) {
  DType wanted = c.dtype(out_dtype, DType::f32);
  return map_definition(c, [&lowering, c, wanted](size_t, const Index& index) {
    Step q = step_of(lowering, c, c.op().schema.params[0].name, index);
    if (c.has("zero_points"))
      q = q - step_of(lowering, c, "zero_points", place(c, "zero_points", index));
    return (q * step_of(lowering, c, "scales", place(c, "scales", index))).to(wanted).x.value();
  });
}

// --- channels of an axis
// -------------------------------------------------------------------------

Index channel_place(const Call& c, std::string_view param, const Index& index) {
  if (c.type(param).sizes[0] == Expr(1)) return {Expr(0)};
  return {index[static_cast<size_t>(c.dim("axis", static_cast<int64_t>(index.size())))]};
}

void need_channels(const Call& c, std::string_view param, Expr channels) {
  if (!c.has(param)) return;
  need_rank(c, param, 1, 1);
  need_for_each(c, param, channels, "channels", Counts::each_or_one);
}

void check_channels(const Call& c, const Sizes& sizes) {
  if (sizes.empty()) c.fail(c.describe("input") + " has no axis");
  Expr channels = sizes[static_cast<size_t>(c.dim("axis", static_cast<int64_t>(sizes.size())))];
  need_channels(c, "scales", channels);
  need_channels(c, "zero_points", channels);
}

Definition quantize_channels(Lowering& lowering, const Call& c) {
  return map_definition(c, [&lowering, c](size_t, const Index& index) {
    Step q = scaled(lowering, c, index, channel_place(c, "scales", index), true);
    q = q.apply(Opcode::round);
    q = q + step_of(lowering, c, "zero_points", channel_place(c, "zero_points", index));
    return clamped(c, q).x.cast(c.result()->type.dtype).value();
  });
}

const OpDef kQuantizeChannels{
    .schema =
        "quantized_decomposed::quantize_per_channel(Tensor input, Tensor scales, Tensor "
        "zero_points, int axis, int quant_min, int quant_max, ScalarType dtype) -> Tensor",
    .types = [](const Call& c) -> Types {
      Sizes sizes = float_input(c).sizes;
      check_channels(c, sizes);
      DType dtype = quantized_dtype(c);
      check_range(c, dtype);
      return {ir::Type::tensor(dtype, sizes)};
    },
    .lower = quantize_channels,
    .no_grad = kNoGradient,
    .samples = {"$[3, 70], f32[3]:unit, i64[3], 0, -128, 127, i8",
                "$[3, 70], f32[70]:unit, i64[70], 1, 0, 255, u8",
                "$[2, 3, 4, 5], f64[5]:unit, i64[5], -1, -127, 127, i8",
                "$[2, 3, 4, 5], f32[3]:unit, i32[3], 1, -128, 127, i8",
                "$[4, 3], f32[4]:unit, f32[4], -2, -7, 8, i8",
                "$[7], f32[7]:unit, i64[7], 0, 0, 15, u8",
                "$[2, 75]:halves, f32[2]:constant(1), i64[2], 0, 0, 255, u8",
                "$[2, 75]:halves, bf16[2]:constant(0.5), i64[2], 0, -128, 127, i8",
                "$[4, 3]{1, 4}, bf16[3]:unit, i64[3], 1, -128, 127, i8",
                "$[0, 3], f32[3]:unit, i64[3], 1, -128, 127, i8",
                "$[3, 0], f32[3]:unit, i64[3], 0, -128, 127, i8",
                "$[3, 4], f32[1]:unit, i64[1], 0, -128, 127, i8",
                "$[3, 21]:special, f32[3]:unit, i64[3], 0, -128, 127, i8",
                "$[3, 4], f32[3]:unit, i64[3], 2, -128, 127, i8",
                "$[3, 4], f32[3]:unit, i64[3], -3, -128, 127, i8",
                "$[3, 4], f32[3]:unit, i64[3], 0, -129, 127, i8",
                "$[3, 4], f32[2]:unit, i64[3], 0, -128, 127, i8",
                "$[], f32[1]:unit, i64[1], 0, -128, 127, i8"},
    .quantizes = true};
const OpDef kDequantizeChannels{
    .schema =
        "quantized_decomposed::dequantize_per_channel(Tensor input, Tensor scales, Tensor? "
        "zero_points, int axis, int quant_min, int quant_max, ScalarType dtype, *, "
        "ScalarType? out_dtype=None) -> Tensor",
    .types = [](const Call& c) -> Types {
      Sizes sizes = quantized_input(c).sizes;
      check_channels(c, sizes);
      check_range(c, quantized_dtype(c));
      return {ir::Type::tensor(dequantized_dtype(c, "out_dtype"), sizes)};
    },
    .lower = [](Lowering& lowering,
                const Call& c) { return dequantize<channel_place>(lowering, c, "out_dtype"); },
    .no_grad = kNoGradient,
    .samples = {"$[3, 70], f32[3]:unit, i64[3], 0, 0, 127, $",
                "$[3, 70], f32[70]:unit, i64[70], 1, 0, 127, $",
                "$[2, 3, 4, 5], f64[5]:unit, none, -1, 0, 127, $",
                "$[2, 3, 4, 5]:index(99), f32[3]:unit, i8[3], 1, 0, 127, $",
                "$[4, 3], f32[4]:unit, f32[4], -2, 0, 127, $",
                "$[7], f32[7]:unit, none, 0, 0, 15, $",
                "$[2, 75]:index(200), bf16[2]:unit, i64[2], 0, 0, 127, $",
                "$[2, 75]:index(200), f32[2]:unit, i64[2], 0, 0, 127, $, out_dtype=bf16",
                "$[2, 75]:index(200), f32[2]:unit, i64[2], 0, 0, 127, $, out_dtype=f64",
                "$[4, 3]{1, 4}, f32[3]:unit, i64[3], 1, 0, 127, $",
                "$[0, 3], f32[3]:unit, i64[3], 1, 0, 127, $",
                "i8[3, 4], f32[3], none, 0, 0, 127, u8", "i8[3, 4], f32[3], none, 0, -200, 127, i8",
                "$[], f32[1]:unit, none, 0, 0, 127, $"},
    .sample_dtypes = DTypes::integers,
    .dequantizes = Scales::channel};

// --- groups of neighbours in the rows of a matrix
// ------------------------------------------------

/// Of one column for GPTQ, a group may be longer than the row.
Expr group_size(const Call& c) {
  const Sizes& sizes = c.type(c.op().schema.params[0].name).sizes;
  int64_t size = c.constant("group_size");
  std::optional<int64_t> length = sizes.back().constant();
  const Sizes& scales = c.type("scales").sizes;
  bool is_longer = length && *length > 0 && size > *length;
  return is_longer && !scales.empty() && scales.back() == Expr(1) ? sizes.back() : Expr(size);
}

void check_groups(const Call& c) {
  std::string_view input = c.op().schema.params[0].name;
  need_rank(c, input, 2, 2);
  int64_t given = c.constant("group_size");
  if (given <= 1) c.fail(fmt::format("group_size {} must be above 1", given));
  const Sizes& sizes = c.type(input).sizes;
  Expr size = group_size(c);
  if (!sym::known_eq(sym::mod(sizes.back(), size), Expr(0)))
    c.fail(fmt::format("{}: the rows must be a multiple of group_size {}", c.describe(input),
                       sym::to_string(size)));
  Expr groups = sizes[0] * sym::floor_div(sizes[1], size);
  for (std::string_view param : {"scales", "zero_points"})
    if (c.has(param)) need_for_each(c, param, groups, "groups", Counts::each_or_one);
}

Index group_place(const Call& c, std::string_view param, const Index& index) {
  const Sizes& sizes = c.type(param).sizes;
  if (sym::product(sizes) == Expr(1)) return Index(sizes.size(), Expr(0));
  Expr columns = c.type(c.op().schema.params[0].name).sizes[1];
  Expr size = group_size(c);
  Expr in_row = sym::floor_div(columns, size);
  return reshape_index(sizes, {c.type(c.op().schema.params[0].name).sizes[0], in_row},
                       {index[0], sym::floor_div(index[1], size)});
}

// --- tokens: rows, however many dimensions they lie in
// -------------------------------------------

Index token_place(const Call& c, std::string_view param, const Index& index) {
  return broadcast_index(c.type(param).sizes, index);
}

Sizes token_sizes(const Call& c) {
  Sizes sizes = c.type("input").sizes;
  Expr tokens = sizes.empty() ? Expr(1) : sym::product(Sizes(sizes.begin(), sizes.end() - 1));
  for (std::string_view param : {"scales", "zero_points"}) {
    need_for_each(c, param, tokens, "rows");
    if (broadcast(c, sizes, c.type(param).sizes) != sizes)
      c.fail(c.describe(param) + " must broadcast to " + c.describe("input"));
  }
  return sizes;
}

template <Place place>
Definition quantize_inside(Lowering& lowering, const Call& c) {
  return map_definition(c, [&lowering, c](size_t, const Index& index) {
    Step q = scaled(lowering, c, index, place(c, "scales", index), false);
    q = q + step_of(lowering, c, "zero_points", place(c, "zero_points", index));
    return clamped(c, q.apply(Opcode::round)).x.cast(c.result()->type.dtype).value();
  });
}

const OpDef kQuantizeGroups{
    .schema =
        "quantized_decomposed::quantize_per_channel_group(Tensor input, Tensor scales, "
        "Tensor zero_points, int quant_min, int quant_max, ScalarType dtype, int group_size) "
        "-> Tensor",
    .types = [](const Call& c) -> Types {
      check_groups(c);
      return {ir::Type::tensor(quantized_dtype(c), c.type("input").sizes)};
    },
    .lower = quantize_inside<group_place>,
    .no_grad = kNoGradient,
    .samples = {"$[3, 64], f32[3, 2]:unit, i32[3, 2], -8, 7, i8, 32",
                "$[3, 64], f32[6]:unit, f32[6], 0, 15, u8, 32",
                "$[3, 64], bf16[3, 4]:unit, i32[3, 4], -128, 127, i8, 16",
                "$[2, 60]:halves, f32[2, 1]:constant(1), i32[2, 1], -128, 127, i8, 60",
                "$[3, 10], f64[3, 1]:unit, i64[3, 1], -8, 7, i8, 128",
                "$[6, 4]{1, 6}, f32[6, 2]:unit, i32[6, 2], -8, 7, i8, 2",
                "$[0, 4], f32[0, 2]:unit, i32[0, 2], -8, 7, i8, 2",
                "$[3, 64], f32[3, 2]:unit, i32[3, 2], -8, 7, i8, 1",
                "$[3, 62], f32[3, 2]:unit, i32[3, 2], -8, 7, i8, 32",
                "$[3, 2, 4], f32[6]:unit, i32[6], -8, 7, i8, 4"},
    .quantizes = true};
const OpDef kDequantizeGroups{
    .schema =
        "quantized_decomposed::dequantize_per_channel_group(Tensor input, Tensor scales, "
        "Tensor? zero_points, int quant_min, int quant_max, ScalarType dtype, int "
        "group_size, ScalarType output_dtype) -> Tensor",
    .types = [](const Call& c) -> Types {
      need_number(c, "input");
      check_groups(c);
      return {ir::Type::tensor(dequantized_dtype(c, "output_dtype"), c.type("input").sizes)};
    },
    .lower = [](Lowering& lowering,
                const Call& c) { return dequantize<group_place>(lowering, c, "output_dtype"); },
    .no_grad = kNoGradient,
    .samples = {"$[3, 64], f32[3, 2]:unit, i32[3, 2], -8, 7, i8, 32, f32",
                "$[3, 64], f32[6]:unit, none, 0, 15, u8, 32, bf16",
                "$[3, 64], bf16[3, 4]:unit, i32[3, 4], -8, 7, i8, 16, f32",
                "$[3, 10], f64[3, 1]:unit, f32[3, 1], -8, 7, i8, 128, f16",
                "$[6, 4]{1, 6}, f32[6, 2]:unit, i32[6, 2], -8, 7, i8, 2, f32",
                "$[0, 4], f32[0, 2]:unit, i32[0, 2], -8, 7, i8, 2, f32",
                "$[3, 64], f32[3, 2]:unit, i32[3, 2], -8, 7, i8, 0, f32",
                "$[3, 62], f32[3, 2]:unit, i32[3, 2], -8, 7, i8, 32, f32"},
    .sample_dtypes = DTypes::integers,
    .dequantizes = Scales::block};

const OpDef kQuantizeTokens{
    .schema =
        "quantized_decomposed::quantize_per_token(Tensor input, Tensor scales, Tensor "
        "zero_points, int quant_min, int quant_max, ScalarType dtype) -> Tensor",
    .types = [](const Call& c) -> Types {
      DType dtype = quantized_dtype(c);
      check_range(c, dtype);
      return {ir::Type::tensor(dtype, token_sizes(c))};
    },
    .lower = quantize_inside<token_place>,
    .no_grad = kNoGradient,
    .samples = {"$[3, 70], f32[3, 1]:unit, f32[3, 1], -128, 127, i8",
                "$[2, 3, 33], f64[2, 3, 1]:unit, i64[2, 3, 1], 0, 255, u8",
                "$[3, 70], bf16[3, 1]:unit, bf16[3, 1], -127, 127, i8",
                "$[2, 75]:halves, f32[2, 1]:constant(1), f32[2, 1]:constant(3), 0, 255, u8",
                "$[2, 75]:halves, f64[2, 1]:constant(0.5), i64[2, 1], -128, 127, i8",
                "$[5], f32[1]:unit, i32[1], -8, 7, i8",
                "$[0, 3], f32[0, 1]:unit, i64[0, 1], -8, 7, i8",
                "$[4, 3]{1, 4}, f32[4, 1]:unit, i64[4, 1], -8, 7, i8",
                "$[3, 70], f32[2, 1]:unit, f32[3, 1], -128, 127, i8",
                "$[3, 70], f32[3, 1]:unit, f32[3, 1], -128, 128, i8"},
    .quantizes = true};
const OpDef kDequantizeTokens{
    .schema =
        "quantized_decomposed::dequantize_per_token(Tensor input, Tensor scales, Tensor "
        "zero_points, int quant_min, int quant_max, ScalarType dtype, ScalarType "
        "output_dtype) -> Tensor",
    .types = [](const Call& c) -> Types {
      need_number(c, "input");
      return {ir::Type::tensor(dequantized_dtype(c, "output_dtype"), token_sizes(c))};
    },
    .lower = [](Lowering& lowering,
                const Call& c) { return dequantize<token_place>(lowering, c, "output_dtype"); },
    .no_grad = kNoGradient,
    .samples = {"$[3, 70], f32[3, 1]:unit, f32[3, 1], -128, 127, i8, f32",
                "$[2, 3, 33], f64[2, 3, 1]:unit, i64[2, 3, 1], 0, 255, u8, f32",
                "$[3, 70], bf16[3, 1]:unit, bf16[3, 1], -127, 127, i8, bf16",
                "$[5], f32[1]:unit, i32[1], -8, 7, i8, f16",
                "$[0, 3], f32[0, 1]:unit, i64[0, 1], -8, 7, i8, f32",
                "$[4, 3]{1, 4}, f64[4, 1]:unit, i64[4, 1], -8, 7, i8, f64"},
    .sample_dtypes = DTypes::integers,
    .dequantizes = Scales::token};

const OpDef* const kOps[] = {&kQuantizeChannels, &kDequantizeChannels, &kQuantizeGroups,
                             &kDequantizeGroups, &kQuantizeTokens,     &kDequantizeTokens};

}  // namespace

Family per_channel_family() { return kOps; }

}  // namespace tandem::ops
