// ATen's upsampling ops: one template for all modes and numbers of dimensions. Each is a chain of
// one-dimensional resamplings (resample.h) in the compute type, and so is its gradient op.
#include <fmt/format.h>

#include <cmath>

#include "base/diagnostic.h"
#include "ops/nn/resample.h"
#include "ops/types.h"

namespace tandem::ops {
namespace {

using resample::Mode;
using resample::Step;

bool has(const Call& c, std::string_view name) {
  return c.op().schema.find(name) >= 0 && c.has(name);
}
/// `scales`, or `scales_d`, `scales_h`, `scales_w`; absent and negative ones are 0.
std::vector<double> factors_of(const Call& c, size_t dims) {
  std::vector<double> factors(dims, 0);
  if (c.op().schema.find("scale_factors") >= 0) {
    if (!c.has("scale_factors")) return factors;
    const auto* given = std::get_if<std::vector<double>>(&c.arg("scale_factors"));
    if (given == nullptr || given->size() != dims)
      c.fail(fmt::format("scale_factors needs {} numbers", dims));
    return *given;
  }
  constexpr std::string_view kNames[] = {"scales_d", "scales_h", "scales_w"};
  for (size_t i = 0; i < dims; ++i) {
    std::string_view name = dims == 1 ? "scales" : kNames[3 - dims + i];
    if (c.has(name) && c.floating(name) > 0) factors[i] = c.floating(name);
  }
  return factors;
}
Step step_of(const Call& c, Mode mode, double factor) {
  return {mode, has(c, "align_corners") && c.boolean("align_corners"), factor};
}

/// floor(in * factor)
Expr scaled_size(const Call& c, Expr in, double factor) {
  if (std::optional<int64_t> known = in.constant())
    return static_cast<int64_t>(static_cast<double>(*known) * factor);
  for (int64_t part = 1; part <= 1024; part *= 2)
    if (double whole = factor * static_cast<double>(part); whole == std::floor(whole))
      return sym::floor_div(in * static_cast<int64_t>(whole), part);
  c.fail_unknown(fmt::format("a size that is multiplied by {}", factor), in);
}
std::string_view operand_of(const Call& c) {
  return c.op().schema.params[0].name;  // self, input or grad_output
}
Sizes output_size(const Call& c, size_t dims) {
  bool by_factor = c.op().schema.find("scale_factors") >= 0 && c.has("scale_factors");
  if (c.has("output_size") == by_factor)
    c.fail("needs exactly one of output_size and scale_factors");
  if (!by_factor) {
    const ir::Ints& sizes = c.ints("output_size");
    if (sizes.size() == 1) return Sizes(dims, sizes[0]);
    if (sizes.size() != dims) c.fail(fmt::format("output_size needs {} numbers", dims));
    return sizes;
  }
  Sizes sizes;
  std::vector<double> factors = factors_of(c, dims);
  for (size_t i = 0; i < dims; ++i) {
    if (!(factors[i] > 0 && factors[i] < 1e9))
      c.fail(c.describe("scale_factors") + " must be positive");
    sizes.push_back(scaled_size(c, c.type("input").sizes[2 + i], factors[i]));
  }
  return sizes;
}

/// Dtypes that eager takes in its CPU kernels; integers are copied, never averaged.
void check_dtype(const Call& c, Mode mode) {
  std::string_view name = operand_of(c);
  DType dtype = c.type(name).dtype;
  bool copies = mode == Mode::nearest || mode == Mode::exact;
  if (name == "grad_output") return need_float(c, name);
  if (dtype == DType::u8 && !copies)
    throw Unsupported(fmt::format("[{}] u8 is not interpolated (ops); floats are accepted",
                                  c.op().schema.full_name()));
  if (dtype != DType::u8) need_float(c, name);
}
/// Result sizes of upsampling a tensor of `input` sizes.
Sizes upsampled(const Call& c, const Sizes& input, size_t dims, const Sizes& output) {
  if (input.size() != dims + 2)
    c.fail(fmt::format("{} must have {} dimensions", c.describe(operand_of(c)), dims + 2));
  Sizes sizes{input[0], input[1]};
  for (size_t i = 0; i < dims; ++i) {
    if (sym::known_lt(output[i], 1) || sym::known_lt(input[2 + i], 1))
      c.fail(fmt::format("input and output sizes {} and {} must be positive", ir::to_string(input),
                         ir::to_string(output)));
    sizes.push_back(output[i]);
  }
  if (input[1] == Expr(0)) c.fail(c.describe(operand_of(c)) + " has no channels");
  return sizes;
}

template <Mode mode, size_t dims>
Types forward_types(const Call& c) {
  check_dtype(c, mode);
  const ir::Type& self = c.type(operand_of(c));
  need_rank(c, operand_of(c), dims + 2, dims + 2);
  return {ir::Type::tensor(self.dtype, upsampled(c, self.sizes, dims, output_size(c, dims)))};
}
template <Mode mode, size_t dims>
Tensors forward_parts(Builder& b, const Call& c) {
  Tensor x{b, c.value(operand_of(c))};
  DType dtype = x.dtype();
  std::vector<double> factors = factors_of(c, dims);
  if (mode != Mode::nearest && mode != Mode::exact) x = to(x, compute_type(dtype));
  for (size_t i = 0; i < dims; ++i) {
    int64_t dim = static_cast<int64_t>(2 + i);
    x = resample::forward(x, dim, step_of(c, mode, factors[i]), c.result()->type.sizes[dim]);
  }
  return {to(x, dtype)};
}

template <Mode mode, size_t dims>
Types backward_types(const Call& c) {
  check_dtype(c, mode);
  const ir::Ints& input = c.ints("input_size");
  Sizes expected = upsampled(c, input, dims, output_size(c, dims));
  if (!same_sizes(c.type("grad_output").sizes, expected))
    c.fail(
        fmt::format("{} must have sizes {}", c.describe("grad_output"), ir::to_string(expected)));
  return {ir::Type::tensor(c.type("grad_output").dtype, input)};
}
template <Mode mode, size_t dims>
Tensors backward_parts(Builder& b, const Call& c) {
  Tensor grad{b, c.value("grad_output")};
  DType dtype = grad.dtype();
  std::vector<double> factors = factors_of(c, dims);
  grad = to(grad, compute_type(dtype));
  for (size_t i = 0; i < dims; ++i) {
    int64_t dim = static_cast<int64_t>(2 + i);
    grad = resample::backward(grad, dim, step_of(c, mode, factors[i]), c.ints("input_size")[dim]);
  }
  return {to(grad, dtype)};
}

// --- samples
// --------------------------------------------------------------------------------------

struct SampleSet {
  Samples forward, vec, backward;
};
const SampleSet kNearest1 = {
    {"$[2, 3, 5], [10]", "$[2, 3, 5], [7]", "$[2, 3, 6], [3]", "$[1, 2, 5], [15], 3.0",
     "$[1, 2, 7], [17], 2.5", "$[0, 2, 3], [6]", "u8[1, 2, 4], [7]", "$[2, 3], [4]",
     "$[2, 3, 5]:special, [9]", "$[2, 3, 4], [5], 2.0", "$[1, 1, 5], [98]", "$[1, 2, 4], [0]",
     "$[2, 3, 1], [49]"},
    {"$[2, 3, 5], [10], none", "$[2, 3, 5], none, [1.7]", "$[2, 3, 5], [7], [2.0]",
     "$[2, 3, 5], none, [2]", "$[2, 3, 5], none, [0.0]", "$[2, 3, 5], none, [0.1]",
     "$[2, 3, 5], none, [2.0, 2.0]"},
    {"$[2, 3, 10], [10], [2, 3, 5]", "$[2, 3, 7], [7], [2, 3, 5]", "$[2, 3, 3], [3], [2, 3, 6]",
     "$[2, 3, 5], [5], [2, 3, 4], 2.0", "$[1, 2, 17], [17], [1, 2, 7], 2.5"}};
const SampleSet kNearest2 = {
    {"$[2, 3, 4, 5], [8, 10]", "$[2, 3, 4, 5], [7, 9]", "$[1, 2, 8, 6]{96, 1, 12, 2}, [4, 9]",
     "$[1, 2, 3, 4], [9, 6], 3.0, 1.5", "i64[1, 2, 3, 4], [6, 8]"},
    {"$[2, 3, 4, 5], [8, 10], none", "$[2, 3, 4, 5], none, [2.0, 2.0]",
     "$[2, 3, 4, 5], none, [0.5, 1.3]"},
    {"$[2, 3, 8, 10], [8, 10], [2, 3, 4, 5]", "$[2, 3, 7, 9], [7, 9], [2, 3, 4, 5], 1.8, 1.9"}};
const SampleSet kNearest3 = {
    {"$[1, 2, 3, 4, 5], [6, 8, 10]", "$[1, 2, 3, 4, 5], [2, 7, 5], 0.9, 1.75, 1.0"},
    {"$[1, 2, 3, 4, 5], none, [2.0, 1.5, 0.5]"},
    {"$[1, 2, 6, 8, 10], [6, 8, 10], [1, 2, 3, 4, 5]"}};
const SampleSet kLinear1 = {
    {"$[2, 3, 5], [10], false", "$[2, 3, 5], [10], true", "$[2, 3, 5], [7], false",
     "$[2, 3, 9], [4], false", "$[2, 3, 9], [4], true", "$[2, 3, 5], [12], false, 2.5",
     "$[2, 3, 5], [1], true", "$[2, 3, 1], [6], true", "$[2, 3, 1], [6], false",
     "$[2, 3, 4], [9], false, 1.5", "$[2, 3, 4], [4], false, 2.0", "$[0, 2, 3], [6], true",
     "$[3, 4], [6], true"},
    {"$[2, 3, 5], [10], false, none", "$[2, 3, 5], none, true, [2.0]",
     "$[2, 3, 7], none, false, [1.3]"},
    {"$[2, 3, 10], [10], [2, 3, 5], false", "$[2, 3, 10], [10], [2, 3, 5], true",
     "$[2, 3, 4], [4], [2, 3, 9], false", "$[2, 3, 12], [12], [2, 3, 5], false, 2.5",
     "$[2, 3, 6], [6], [2, 3, 1], true", "$[2, 3, 9], [9], [2, 3, 4], false, 1.5"}};
const SampleSet kLinear2 = {
    {"$[2, 3, 4, 5], [8, 10], false", "$[2, 3, 4, 5], [8, 10], true",
     "$[2, 3, 4, 5]{60, 1, 15, 3}, [7, 9], false", "$[2, 3, 8, 9], [3, 5], false",
     "$[1, 2, 3, 4], [6, 12], false, 2.0, 3.0", "$[1, 2, 3, 4], [3, 4], true",
     "$[1, 2, 17, 20], [13, 31], false"},
    {"$[2, 3, 4, 5], [8, 10], false, none", "$[2, 3, 4, 5], none, false, [2.0, 2.0]",
     "$[2, 3, 4, 5], none, true, [1.5, 2.6]", "$[1, 2, 9, 8], none, false, [0.5, 0.7]"},
    {"$[2, 3, 8, 10], [8, 10], [2, 3, 4, 5], false", "$[2, 3, 7, 11], [7, 11], [2, 3, 4, 5], true",
     "$[2, 3, 8, 10], [8, 10], [2, 3, 4, 5], false, 2.0, 2.0"}};
const SampleSet kLinear3 = {
    {"$[1, 2, 3, 4, 5], [6, 8, 10], false", "$[1, 2, 3, 4, 5], [5, 3, 7], true",
     "$[1, 2, 3, 4, 5], [6, 6, 5], false, 2.0, 1.5, 1.0"},
    {"$[1, 2, 3, 4, 5], none, false, [2.0, 1.5, 0.5]"},
    {"$[1, 2, 6, 8, 10], [6, 8, 10], [1, 2, 3, 4, 5], false",
     "$[1, 2, 5, 3, 7], [5, 3, 7], [1, 2, 3, 4, 5], true"}};

// --- the ops
// --------------------------------------------------------------------------------------

#define TANDEM_UPSAMPLE(Name, text, mode, dims, in_dims, align, scales, set)                     \
  const OpDef Name{.schema = "aten::" text "(Tensor self, SymInt[" dims                          \
                             "] output_size" align scales ") -> Tensor",                         \
                   .types = forward_types<Mode::mode, std::string_view(dims)[0] - '0'>,          \
                   .decompose = forward_parts<Mode::mode, std::string_view(dims)[0] - '0'>,      \
                   .samples = set.forward};                                                      \
  const OpDef Name##Vec{.schema = "aten::" text ".vec(Tensor input, SymInt[]? output_size" align \
                                  ", float[]? scale_factors) -> Tensor",                         \
                        .types = forward_types<Mode::mode, std::string_view(dims)[0] - '0'>,     \
                        .decompose = forward_parts<Mode::mode, std::string_view(dims)[0] - '0'>, \
                        .samples = set.vec};                                                     \
  const OpDef Name##Backward {                                                                   \
    .schema = "aten::" text "_backward(Tensor grad_output, SymInt[" dims                         \
              "] output_size, SymInt[" in_dims "] input_size" align scales ") -> Tensor",        \
    .types = backward_types<Mode::mode, std::string_view(dims)[0] - '0'>,                        \
    .decompose = backward_parts<Mode::mode, std::string_view(dims)[0] - '0'>,                    \
    .samples = set.backward                                                                      \
  }

#define TANDEM_ALIGN ", bool align_corners"
#define TANDEM_SCALES1 ", float? scales=None"
#define TANDEM_SCALES2 ", float? scales_h=None, float? scales_w=None"
#define TANDEM_SCALES3 ", float? scales_d=None, float? scales_h=None, float? scales_w=None"

TANDEM_UPSAMPLE(kNearest1d, "upsample_nearest1d", nearest, "1", "3", "", TANDEM_SCALES1, kNearest1);
TANDEM_UPSAMPLE(kNearest2d, "upsample_nearest2d", nearest, "2", "4", "", TANDEM_SCALES2, kNearest2);
TANDEM_UPSAMPLE(kNearest3d, "upsample_nearest3d", nearest, "3", "5", "", TANDEM_SCALES3, kNearest3);
TANDEM_UPSAMPLE(kExact1d, "_upsample_nearest_exact1d", exact, "1", "3", "", TANDEM_SCALES1,
                kNearest1);
TANDEM_UPSAMPLE(kExact2d, "_upsample_nearest_exact2d", exact, "2", "4", "", TANDEM_SCALES2,
                kNearest2);
TANDEM_UPSAMPLE(kExact3d, "_upsample_nearest_exact3d", exact, "3", "5", "", TANDEM_SCALES3,
                kNearest3);
TANDEM_UPSAMPLE(kLinear1d, "upsample_linear1d", linear, "1", "3", TANDEM_ALIGN, TANDEM_SCALES1,
                kLinear1);
TANDEM_UPSAMPLE(kBilinear2d, "upsample_bilinear2d", linear, "2", "4", TANDEM_ALIGN, TANDEM_SCALES2,
                kLinear2);
TANDEM_UPSAMPLE(kTrilinear3d, "upsample_trilinear3d", linear, "3", "5", TANDEM_ALIGN,
                TANDEM_SCALES3, kLinear3);
TANDEM_UPSAMPLE(kBicubic2d, "upsample_bicubic2d", cubic, "2", "4", TANDEM_ALIGN, TANDEM_SCALES2,
                kLinear2);
TANDEM_UPSAMPLE(kBilinearAa, "_upsample_bilinear2d_aa", aa_linear, "2", "4", TANDEM_ALIGN,
                TANDEM_SCALES2, kLinear2);
TANDEM_UPSAMPLE(kBicubicAa, "_upsample_bicubic2d_aa", aa_cubic, "2", "4", TANDEM_ALIGN,
                TANDEM_SCALES2, kLinear2);
#undef TANDEM_UPSAMPLE

#define TANDEM_THREE(Name) &Name, &Name##Vec, &Name##Backward
const OpDef* const kOps[] = {
    TANDEM_THREE(kNearest1d), TANDEM_THREE(kNearest2d),  TANDEM_THREE(kNearest3d),
    TANDEM_THREE(kExact1d),   TANDEM_THREE(kExact2d),    TANDEM_THREE(kExact3d),
    TANDEM_THREE(kLinear1d),  TANDEM_THREE(kBilinear2d), TANDEM_THREE(kTrilinear3d),
    TANDEM_THREE(kBicubic2d), TANDEM_THREE(kBilinearAa), TANDEM_THREE(kBicubicAa)};
#undef TANDEM_THREE

}  // namespace

Family upsample_family() { return kOps; }

}  // namespace tandem::ops
