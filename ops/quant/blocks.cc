// torchao's quantization by blocks: block_size has the block's size along each dimension, so that
// one op is per tensor, per channel, per group or per token. Scales s and zero points z are in
// row-major order of the blocks, whatever their own dimensions are:
//   quantize    q = clamp(round(x * (1/s)) + z, quant_min, quant_max)
//   dequantize  x = (q - z) * s
//   choose      as choose_qparams.cc, with the range widened to contain 0
// Dtypes are promoted operation by operation (steps.h).
#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "ops/families.h"
#include "ops/quant/ranges.h"
#include "ops/quant/steps.h"

namespace tandem::ops {
namespace {

std::string_view input_name(const Call& c) { return c.op().schema.params[0].name; }

// --- blocks
// --------------------------------------------------------------------------------------

/// How the sizes divide into blocks: numbers of blocks, and their sizes.
struct Blocks {
  Sizes counts, sizes;
};
/// -1 is the whole dimension.
Blocks blocks_of(const Call& c) {
  const Sizes& sizes = c.type(input_name(c)).sizes;
  const ir::Ints& given = c.ints("block_size");
  if (given.size() != sizes.size())
    c.fail(
        fmt::format("block_size has {} numbers for {}", given.size(), c.describe(input_name(c))));
  Blocks blocks;
  for (size_t i = 0; i < sizes.size(); ++i) {
    bool is_whole =
        given[i] == Expr(-1) || given[i] == sizes[i] || sym::known_eq(given[i], sizes[i]);
    Expr block = is_whole ? sizes[i] : given[i];
    std::optional<int64_t> number = block.constant();
    if (!is_whole && number && *number <= 0)
      c.fail(fmt::format("block_size {} of dimension {} must be positive", *number, i));
    if (!is_whole && !sym::known_eq(sym::mod(sizes[i], block), Expr(0)))
      c.fail(fmt::format("{}: size {} is no multiple of the block's, {}", c.describe(input_name(c)),
                         sym::to_string(sizes[i]), sym::to_string(block)));
    blocks.sizes.push_back(block);
    blocks.counts.push_back(is_whole ? Expr(1) : sym::floor_div(sizes[i], block));
  }
  return blocks;
}

void need_blocks(const Call& c, std::string_view param, const Blocks& blocks) {
  need_for_each(c, param, sym::product(blocks.counts), "blocks");
}

Step of_block(Lowering& lowering, const Call& c, std::string_view param, const Blocks& blocks,
              const Index& index) {
  Index block(index.size(), Expr(0));
  for (size_t i = 0; i < index.size(); ++i)
    if (blocks.counts[i] != Expr(1)) block[i] = sym::floor_div(index[i], blocks.sizes[i]);
  return step_of(lowering, c, param, reshape_index(c.type(param).sizes, blocks.counts, block));
}

/// quant_min or quant_max: what the call says, or the range of the integers.
double bound(const Call& c, std::string_view param, int64_t otherwise) {
  return c.has(param) ? c.floating(param) : static_cast<double>(otherwise);
}
struct Bounds {
  double least, greatest;
};
Bounds bounds_of(const Call& c, DType dtype) {
  Range range = range_of(dtype);
  Bounds bounds{bound(c, "quant_min", range.least), bound(c, "quant_max", range.greatest)};
  if (bounds.least < static_cast<double>(range.least))
    c.fail(fmt::format("quant_min {} is below {}, the least {}", bounds.least, range.least,
                       name_of(dtype)));
  if (bounds.greatest > static_cast<double>(range.greatest))
    c.fail(fmt::format("quant_max {} is above {}, the greatest {}", bounds.greatest, range.greatest,
                       name_of(dtype)));
  return bounds;
}

// --- quantize, dequantize
// ------------------------------------------------------------------------

const OpDef kQuantize{
    .schema =
        "torchao::quantize_affine(Tensor input, SymInt[] block_size, Tensor scale, Tensor? "
        "zero_point, ScalarType output_dtype, Scalar? quant_min=None, Scalar? "
        "quant_max=None) -> Tensor",
    .types = [](const Call& c) -> Types {
      const ir::Type& input = float_input(c);
      Blocks blocks = blocks_of(c);
      need_blocks(c, "scale", blocks);
      if (!c.has("zero_point")) c.fail("zero_point must not be none");
      need_blocks(c, "zero_point", blocks);
      DType dtype = quantized_dtype(c, "output_dtype");
      bounds_of(c, dtype);
      return {ir::Type::tensor(dtype, input.sizes)};
    },
    .lower = [](Lowering& lowering, const Call& c) -> Definition {
      DType dtype = c.result()->type.dtype;
      return map_definition(c, [&lowering, c, dtype, blocks = blocks_of(c),
                                bounds = bounds_of(c, dtype)](size_t, const Index& index) {
        Step q = step_of(lowering, c, "input", index) *
                 inverse(of_block(lowering, c, "scale", blocks, index));
        q = q.apply(Opcode::round) + of_block(lowering, c, "zero_point", blocks, index);
        return q.clamp(bounds.least, bounds.greatest).x.cast(dtype).value();
      });
    },
    .no_grad = "quantized values are integers",
    .samples = {"$[3, 64], [3, 64], f32[]:unit, i32[], i8",
                "$[3, 64], [1, 64], f32[3]:unit, i32[3], i8, -127, 127",
                "$[3, 64], [1, 16], f32[3, 4]:unit, i32[3, 4], i8, -8, 7",
                "$[2, 6, 4], [2, 3, 4], bf16[2]:unit, i32[2], u8, 0, 15",
                "$[2, 6, 4], [1, 6, 1], f32[2, 1, 4]:unit, i64[2, 1, 4], i8",
                "$[2, 75]:halves, [1, 75], f32[2, 1]:constant(1), i32[2, 1], i8",
                "$[2, 76]:halves, [1, 38], f32[4]:constant(0.5), i32[4], i8",
                "$[3, 64], [1, -1], f32[3]:unit, f32[3], i16", "$[], [], f32[]:unit, i32[], i8",
                "$[0, 4], [1, 4], f32[0]:unit, i32[0], i8",
                "$[4, 3]{1, 4}, [1, 3], f32[4]:unit, i32[4], i8",
                "$[3, 64], [1, 64], f32[3]:unit, none, i8",
                "$[3, 64], [64], f32[3]:unit, i32[3], i8",
                "$[3, 64], [1, 48], f32[3]:unit, i32[3], i8",
                "$[3, 64], [1, 64], f32[2]:unit, i32[2], i8",
                "$[3, 64], [1, 64], f32[3]:unit, i32[3], i8, -129",
                "$[3, 4], [1, 4], f32[3], i32[3], i64"},
    .quantizes = true};

/// x reshaped so that blocks have dimensions of their own: [count, size] for each one of x.
Tensor in_blocks(Tensor x, const Blocks& blocks) {
  Sizes sizes;
  for (size_t i = 0; i < blocks.counts.size(); ++i) {
    sizes.push_back(blocks.counts[i]);
    sizes.push_back(blocks.sizes[i]);
  }
  return reshape(x, sizes);
}
/// The parameters that broadcast to it.
Tensor beside_blocks(Tensor parameters, const Blocks& blocks) {
  Sizes sizes;
  for (const Expr& count : blocks.counts) {
    sizes.push_back(count);
    sizes.push_back(Expr(1));
  }
  return reshape(parameters, sizes);
}

/// Sum over the blocks, in its own dtype, as a gradient of `param`.
Gradient summed(const Call& c, std::string_view param, Tensor grad, Tensor beside) {
  Tensor sums = sum_to(grad, ir::Type::tensor(grad.dtype(), beside.sizes()));
  return {param, to(reshape(sums, c.type(param).sizes), c.type(param).dtype)};
}

// ds = sum over the block of dx (q - z), dz = - sum over the block of dx s; in the dtypes in which
// the product is computed, and q - z
Gradients dequantize_vjp(Builder& b, const Call& c, Grads g) {
  Blocks blocks = blocks_of(c);
  DType out = c.result()->type.dtype;
  Tensor steps = to(in_blocks(Tensor{b, c.value("input")}, blocks), out);
  Tensor scale = beside_blocks(Tensor{b, c.value("scale")}, blocks);
  DType product = promote(out, scale.dtype());
  Tensor grad = to(in_blocks(g[0], blocks), product);
  Gradients grads;
  if (c.has("zero_point")) {
    Tensor zero = beside_blocks(Tensor{b, c.value("zero_point")}, blocks);
    steps = steps - to(zero, out);
    if (is_float(zero.dtype()))
      grads.push_back(summed(c, "zero_point", -to(grad * to(scale, product), out), zero));
  }
  if (is_float(scale.dtype()))
    grads.push_back(summed(c, "scale", grad * to(steps, product), scale));
  return grads;
}

const OpDef kDequantize{
    .schema =
        "torchao::dequantize_affine(Tensor input, SymInt[] block_size, Tensor scale, Tensor? "
        "zero_point, ScalarType input_dtype, Scalar? quant_min=None, Scalar? "
        "quant_max=None, ScalarType output_dtype=6) -> Tensor",
    .types = [](const Call& c) -> Types {
      DType dtype = quantized_dtype(c, "input_dtype");
      if (c.type("input").dtype != dtype)
        c.fail(fmt::format("{} must have the dtype that is given, {}", c.describe("input"),
                           name_of(dtype)));
      DType out = dequantized_dtype(c, "output_dtype");
      if (out == DType::f64) c.fail("output_dtype f64 is not one of f32, bf16 and f16");
      bounds_of(c, dtype);
      Blocks blocks = blocks_of(c);
      need_blocks(c, "scale", blocks);
      if (c.has("zero_point")) need_blocks(c, "zero_point", blocks);
      return {ir::Type::tensor(out, c.type("input").sizes)};
    },
    .lower = [](Lowering& lowering, const Call& c) -> Definition {
      DType out = c.result()->type.dtype;
      return map_definition(
          c, [&lowering, c, out, blocks = blocks_of(c)](size_t, const Index& index) {
            Step x = step_of(lowering, c, "input", index).to(out);
            if (c.has("zero_point"))
              x = x - of_block(lowering, c, "zero_point", blocks, index).to(out);
            return (x * of_block(lowering, c, "scale", blocks, index)).to(out).x.value();
          });
    },
    .vjp = dequantize_vjp,
    .samples =
        {"$[3, 64]:index(100), [3, 64], f32[]:unit, i32[], $",
         "$[3, 64]:index(100), [1, 64], f32[3]:unit, i32[3], $, 0, 127, bf16",
         "$[3, 64], [1, 16], f32[3, 4]:unit, none, $, 0, 7",
         "$[2, 6, 4], [2, 3, 4], bf16[2]:unit, i32[2], $",
         "$[2, 6, 4]:index(100), [1, 6, 1], f64[2, 1, 4]:unit, f32[2, 1, 4], $, output_dtype=f16",
         "$[3, 64], [1, -1], f32[3]:unit, f32[3], $", "$[], [], f32[]:unit, i32[], $",
         "$[0, 4], [1, 4], f32[0]:unit, i32[0], $", "$[4, 3]{1, 4}, [1, 3], f32[4]:unit, i32[4], $",
         "i8[3, 64], [1, 64], f32[3]:unit, i32[3], u8",
         "i8[3, 64], [1, 64], f32[3]:unit, i32[3], i8, -200",
         "i8[3, 64], [1, 64], f32[3]:unit, i32[3], i8, output_dtype=f64",
         "i8[3, 64], [1, 48], f32[3]:unit, i32[3], i8", "i8[3, 4], [1, 4], f32[2]:unit, none, i8"},
    .sample_dtypes = DTypes::integers,
    .dequantizes = Scales::block};

// --- choose
// --------------------------------------------------------------------------------------

/// Of [count, size] dimensions those of blocks that have more than one element, and all where there
/// are none, as torch.amin reads an empty list.
std::vector<int64_t> reduced(const Blocks& blocks) {
  std::vector<int64_t> dims;
  for (size_t i = 0; i < blocks.sizes.size(); ++i)
    if (blocks.sizes[i] != Expr(1)) dims.push_back(2 * static_cast<int64_t>(i) + 1);
  return dims;
}

/// Sizes of the results: with keepdim one for each dimension, else without those that a block
/// spans.
Sizes chosen_sizes(const Call& c, const Blocks& blocks) {
  if (reduced(blocks).empty()) return {};
  if (c.boolean("keepdim")) return blocks.counts;
  Sizes sizes;
  const Sizes& input = c.type("input").sizes;
  for (size_t i = 0; i < input.size(); ++i) {
    bool is_spanned = blocks.sizes[i] == input[i] && input[i] != Expr(1);
    if (!is_spanned) sizes.push_back(blocks.counts[i]);
  }
  return sizes;
}

std::string_view mapping_of(const Call& c, const std::string& mapping) {
  for (std::string_view known : {"SYMMETRIC", "SYMMETRIC_NO_CLIPPING_ERR", "ASYMMETRIC"})
    if (mapping == known) return known;
  c.fail("mapping_type \"" + mapping +
         "\" is not SYMMETRIC, SYMMETRIC_NO_CLIPPING_ERR or ASYMMETRIC");
}

Types chosen_types(const Call& c) {
  if (!c.has("input")) c.fail("input must not be none");
  need_float(c, "input");
  bool is_affine = mapping_of(c, c.string("mapping_type")) == "ASYMMETRIC";
  bounds_of(c, quantized_dtype(c, "target_dtype"));
  Blocks blocks = blocks_of(c);
  for (const Expr& size : blocks.sizes)
    if (size == Expr(0)) c.fail(c.describe("input") + " has blocks without elements");
  if (reduced(blocks).empty() && c.boolean("keepdim") &&
      sym::product(c.type("input").sizes) != Expr(1))
    c.fail("blocks of one element: keepdim must be false");
  Sizes sizes = chosen_sizes(c, blocks);
  DType dtype = c.type("input").dtype;
  DType zero = c.dtype("zero_point_dtype", is_affine ? DType::i32 : dtype);
  return {ir::Type::tensor(c.dtype("scale_dtype", dtype), sizes), ir::Type::tensor(zero, sizes)};
}

/// The least scale where none is given.
double smallest_normal(DType dtype) {
  switch (dtype) {
    case DType::f16: return 6.103515625e-05;
    case DType::f64: return std::numeric_limits<double>::min();
    default: return double{std::numeric_limits<float>::min()};  // bf16 has f32's exponents
  }
}

struct Chosen {
  Tensor scale, zero_point;
};

Tensor at_least(Tensor x, double least) { return call(x.builder(), "aten.clamp_min", {x, least}); }

Chosen affine(Tensor low, Tensor high, Bounds bounds, double eps) {
  Tensor scale = at_least((high - low) / (bounds.greatest - bounds.least), eps);
  Tensor steps = call(low.builder(), "aten.round", {low / scale});
  return {scale, clamp(bounds.least - steps, bounds.least, bounds.greatest)};
}

/// Each end has a scale by which it is the end of the range; the larger one.
Tensor unclipped_scale(Tensor low, Tensor high, Bounds bounds) {
  Tensor of_low = low / bounds.least;
  Tensor of_high = high / bounds.greatest;
  return where(compare("gt", of_low, of_high), of_low, of_high);
}

Chosen symmetric(Tensor low, Tensor high, Bounds bounds, double eps, bool clips) {
  Builder& b = low.builder();
  Tensor scale =
      clips ? call(b, "aten.maximum", {-low, high}) / ((bounds.greatest - bounds.least) / 2)
            : unclipped_scale(low, high, bounds);
  double middle = std::trunc((bounds.greatest + bounds.least + 1) / 2);
  return {at_least(scale, eps), full(b, scale.sizes(), middle, scale.dtype())};
}

Tensors choose(Builder& b, const Call& c) {
  Blocks blocks = blocks_of(c);
  Tensor x = in_blocks(Tensor{b, c.value("input")}, blocks);
  std::vector<int64_t> dims = reduced(blocks);
  Tensor low = call(b, "aten.amin", {x, dims, false});
  Tensor high = call(b, "aten.amax", {x, dims, false});
  low = call(b, "aten.minimum", {low, zeros_like(low)});
  high = call(b, "aten.maximum", {high, zeros_like(high)});
  std::string_view mapping = mapping_of(c, c.string("mapping_type"));
  Bounds bounds = bounds_of(c, quantized_dtype(c, "target_dtype"));
  double eps = c.has("eps") ? c.floating("eps") : smallest_normal(x.dtype());
  Chosen chosen = mapping == "ASYMMETRIC"
                      ? affine(low, high, bounds, eps)
                      : symmetric(low, high, bounds, eps, mapping == "SYMMETRIC");
  const ir::Type& scale = c.result(0)->type;
  return {reshape(to(chosen.scale, scale.dtype), scale.sizes),
          reshape(to(chosen.zero_point, c.result(1)->type.dtype), scale.sizes)};
}

const OpDef kChoose{
    .schema =
        "torchao::choose_qparams_affine(Tensor? input, str mapping_type, SymInt[] "
        "block_size, ScalarType target_dtype, Scalar? quant_min=None, Scalar? "
        "quant_max=None, float? eps=None, ScalarType? scale_dtype=None, ScalarType? "
        "zero_point_dtype=None, bool keepdim=False) -> (Tensor, Tensor)",
    .types = chosen_types,
    .decompose = choose,
    .no_grad = "parameters of a quantization are constants to its gradient, as torchao calls it",
    .samples = {"$[3, 64], \"ASYMMETRIC\", [3, 64], i8",
                "$[3, 64], \"SYMMETRIC\", [1, 64], i8, -127, 127, 1e-5, f32, i32",
                "$[3, 64], \"SYMMETRIC\", [1, 16], i8, -8, 7, 1e-5, f32, i64, true",
                "$[3, 64], \"SYMMETRIC_NO_CLIPPING_ERR\", [1, 16], i8, -8, 7",
                "$[3, 64]:positive, \"ASYMMETRIC\", [1, 64], u8, 0, 255, scale_dtype=f32",
                "$[3, 64], \"ASYMMETRIC\", [1, -1], u8, 0, 15, zero_point_dtype=i8",
                "$[2, 6, 4], \"ASYMMETRIC\", [2, 3, 4], i8, keepdim=true",
                "$[2, 6, 4], \"SYMMETRIC\", [1, 6, 1], u8", "$[], \"ASYMMETRIC\", [], i8",
                "$[2, 4]:constant(0), \"ASYMMETRIC\", [1, 4], i8",
                "$[4, 3]{1, 4}, \"ASYMMETRIC\", [1, 3], i8", "$[2, 4], \"ASYMMETRIC\", [1, 1], i8",
                "$[0, 4], \"ASYMMETRIC\", [1, 4], i8", "$[3, 4], \"affine\", [1, 4], i8",
                "$[3, 4], \"ASYMMETRIC\", [1, 3], i8",
                "$[3, 4], \"ASYMMETRIC\", [1, 4], i8, -129"}};

const OpDef* const kOps[] = {&kQuantize, &kDequantize, &kChoose};

}  // namespace

Family blocks_family() { return kOps; }

}  // namespace tandem::ops
