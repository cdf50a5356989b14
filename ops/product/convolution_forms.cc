// The ops that come down to aten::convolution: conv1d to conv3d with numbers or a name as padding,
// their transposed forms, _convolution. Here an input may come without its batch dimension.
#include <fmt/format.h>

#include <algorithm>

#include "ops/product/convolution.h"

namespace tandem::ops {
namespace {

Tensor tensor(Builder& b, const Call& c, std::string_view name) { return {b, c.value(name)}; }

/// Input with a batch dimension: it may come without one.
bool is_batched(const Call& c) { return c.type("input").rank() == c.type("weight").rank(); }

bool has_named_padding(const Call& c) {
  const ir::Schema& schema = c.op().schema;
  return schema.params[static_cast<size_t>(schema.find("padding"))].type == ir::ParamType::string;
}
/// `padding` as numbers a dimension; "same" puts the odd element behind.
struct Padding {
  ir::Ints both;
  ir::Ints behind;
};
Padding padding_of(const Call& c, size_t dims) {
  Padding padding{ir::Ints(dims, Expr(0)), ir::Ints(dims, Expr(0))};
  if (!has_named_padding(c)) {
    std::vector<int64_t> given = convolution::padding_list(c, dims);
    padding.both.assign(given.begin(), given.end());
    return padding;
  }
  std::string mode = c.string("padding");
  if (mode != "same" && mode != "valid")
    c.fail(fmt::format("padding must be \"same\" or \"valid\", not \"{}\"", mode));
  if (mode == "valid") return padding;
  for (int64_t stride : positive_list(c, "stride", dims))
    if (stride != 1) c.fail("padding \"same\" needs a stride of 1, not " + c.describe("stride"));
  std::vector<int64_t> dilation = positive_list(c, "dilation", dims);
  for (size_t i = 0; i < dims; ++i) {
    Expr total = (c.type("weight").sizes[2 + i] - 1) * dilation[i];
    padding.both[i] = sym::floor_div(total, 2);
    padding.behind[i] = sym::mod(total, 2);
  }
  return padding;
}

bool is_transposed(const Call& c) {
  const ir::Schema& schema = c.op().schema;
  if (schema.find("transposed") >= 0) return c.boolean("transposed");
  return schema.find("output_padding") >= 0;
}
/// The input's sizes with a batch.
Sizes batched_sizes(const Call& c) {
  Sizes sizes = c.type("input").sizes;
  int64_t rank = c.type("weight").rank();
  const ir::Schema& schema = c.op().schema;
  int64_t dims = schema.params[static_cast<size_t>(schema.find("stride"))].list_size;
  if (dims > 0 && rank != dims + 2)
    c.fail(fmt::format("{} must have {} dimensions", c.describe("weight"), dims + 2));
  if (rank < 3 || (!is_batched(c) && c.type("input").rank() + 1 != rank))
    c.fail(fmt::format("{} does not fit {}", c.describe("input"), c.describe("weight")));
  if (!is_batched(c)) sizes.insert(sizes.begin(), Expr(1));
  return sizes;
}
Sizes padded_result(const Call& c, Sizes padded) {
  size_t dims = padded.size() - 2;
  Padding padding = padding_of(c, dims);
  for (size_t i = 0; i < dims; ++i)
    padded[2 + i] = padded[2 + i] + padding.both[i] * 2 + padding.behind[i];
  return convolution::forward_sizes(c, padded, std::vector<int64_t>(dims, 0));
}
Types spatial_types(const Call& c) {
  Sizes input = batched_sizes(c);
  Sizes sizes =
      is_transposed(c) ? convolution::transposed_sizes(c, input) : padded_result(c, input);
  convolution::check_operands(c, sizes[1]);
  if (!is_batched(c)) sizes.erase(sizes.begin());
  return {ir::Type::tensor(c.type("input").dtype, sizes)};
}

Tensors spatial_decompose(Builder& b, const Call& c) {
  Tensor input = tensor(b, c, "input");
  size_t dims = c.type("weight").sizes.size() - 2;
  if (!is_batched(c)) input = unsqueeze(input, 0);
  Padding padding = padding_of(c, dims);
  ir::Ints behind;  // pairs, last dimension first
  for (size_t i = dims; i-- > 0;) behind.insert(behind.end(), {Expr(0), padding.behind[i]});
  bool uneven = std::any_of(behind.begin(), behind.end(), [](Expr pad) { return pad != Expr(0); });
  if (uneven) input = call(b, "aten.constant_pad_nd", {input, behind, 0});
  std::vector<int64_t> extra(dims, 0);
  if (is_transposed(c)) extra = convolution::extra_list(c, dims);
  Tensor bias = c.has("bias") ? tensor(b, c, "bias") : Tensor();
  Tensor result =
      call(b, "aten.convolution",
           {input, tensor(b, c, "weight"), bias, spatial_list(c, "stride", dims), padding.both,
            spatial_list(c, "dilation", dims), is_transposed(c), extra, c.arg("groups")});
  return {is_batched(c) ? result : squeeze(result, 0)};
}

const OpDef kConv1d{.schema =
                        "aten::conv1d(Tensor input, Tensor weight, Tensor? bias=None, SymInt[1] "
                        "stride=[1], SymInt[1] padding=[0], "
                        "SymInt[1] dilation=[1], SymInt groups=1) -> Tensor",
                    .types = spatial_types,
                    .decompose = spatial_decompose,
                    .samples = {"$[2, 3, 11], $[4, 3, 3], $[4], [2], [1]", "$[3, 11], $[4, 3, 3]"}};
const OpDef kConv2d{
    .schema =
        "aten::conv2d(Tensor input, Tensor weight, Tensor? bias=None, SymInt[2] stride=[1, 1], "
        "SymInt[2] padding=[0, 0], "
        "SymInt[2] dilation=[1, 1], SymInt groups=1) -> Tensor",
    .types = spatial_types,
    .decompose = spatial_decompose,
    .samples = {"$[2, 3, 7, 8], $[4, 3, 3, 3], $[4], [1, 1], [1, 1]", "$[3, 7, 8], $[4, 3, 3, 3]",
                "$[2, 3, 16, 16], $[8, 3, 5, 5], $[8], [2, 2], [2, 2]",
                "$[0, 3, 7, 8], $[4, 3, 3, 3], $[4]"}};
const OpDef kConv3d{.schema =
                        "aten::conv3d(Tensor input, Tensor weight, Tensor? bias=None, SymInt[3] "
                        "stride=[1, 1, 1], SymInt[3] padding=[0, 0, 0], "
                        "SymInt[3] dilation=[1, 1, 1], SymInt groups=1) -> Tensor",
                    .types = spatial_types,
                    .decompose = spatial_decompose,
                    .samples = {"$[1, 2, 5, 6, 4], $[3, 2, 2, 3, 2], $[3]"}};
const OpDef kConv1dPadding{
    .schema =
        "aten::conv1d.padding(Tensor input, Tensor weight, Tensor? bias=None, SymInt[1] "
        "stride=[1], str "
        "padding=\"valid\", SymInt[1] dilation=[1], SymInt groups=1) -> Tensor",
    .types = spatial_types,
    .decompose = spatial_decompose,
    .samples = {"$[2, 3, 11], $[4, 3, 4], $[4], [1], \"same\""}};
const OpDef kConv2dPadding{
    .schema =
        "aten::conv2d.padding(Tensor input, Tensor weight, Tensor? bias=None, SymInt[2] stride=[1, "
        "1], str "
        "padding=\"valid\", SymInt[2] dilation=[1, 1], SymInt groups=1) -> Tensor",
    .types = spatial_types,
    .decompose = spatial_decompose,
    .samples = {"$[2, 3, 7, 8], $[4, 3, 3, 2], $[4], [1, 1], \"same\"",
                "$[2, 3, 7, 8], $[4, 3, 3, 3], none, [2, 2], \"valid\""}};
const OpDef kConv3dPadding{
    .schema =
        "aten::conv3d.padding(Tensor input, Tensor weight, Tensor? bias=None, SymInt[3] stride=[1, "
        "1, 1], str padding=\"valid\", SymInt[3] dilation=[1, 1, 1], SymInt groups=1) -> Tensor",
    .types = spatial_types,
    .decompose = spatial_decompose,
    .samples = {"$[1, 2, 5, 6, 4], $[3, 2, 2, 3, 2], $[3], [1, 1, 1], \"same\"",
                "$[2, 5, 6, 4], $[3, 2, 2, 3, 2], $[3], [1, 2, 1], \"valid\"",
                "$[1, 4, 5, 6, 4], $[2, 2, 3, 3, 2], none, [1, 1, 1], \"same\", [1, 2, 1], 2",
                "$[1, 2, 5, 6, 4], $[3, 2, 2, 3, 2], $[3], [1, 2, 1], \"same\""}};

// --- transposed
// -----------------------------------------------------------------------------------

const OpDef kTranspose1d{
    .schema =
        "aten::conv_transpose1d(Tensor input, Tensor weight, Tensor? bias=None, SymInt[1] "
        "stride=[1], SymInt[1] padding=[0], SymInt[1] output_padding=[0], SymInt groups=1, "
        "SymInt[1] dilation=[1]) -> Tensor",
    .types = spatial_types,
    .decompose = spatial_decompose,
    .samples = {
        "$[2, 3, 7], $[3, 4, 3], $[4]", "$[2, 4, 7], $[4, 3, 4], $[6], [2], [1], [1], 2",
        "$[3, 7], $[3, 4, 3], none, [3], [2], [2], 1, [2]",
        "$[2, 3, 5], $[3, 4, 3], $[4], [1], [1], [2], 1, [3]", "$[0, 3, 5], $[3, 4, 3], $[4]",
        "$[2, 3, 5], $[4, 4, 3]", "$[2, 3, 5], $[3, 4, 3], none, [2], [0], [2]",
        "$[2, 3, 1], $[3, 4, 1], none, [1], [1]", "$[2, 3, 4], $[3, 4, 0]",
        "$[2, 0, 4], $[0, 4, 3]", "$[2, 3, 0], $[3, 4, 3]", "$[2, 3, 4, 5], $[3, 4, 3, 3]"}};
const OpDef kTranspose2d{
    .schema =
        "aten::conv_transpose2d.input(Tensor input, Tensor weight, Tensor? bias=None, SymInt[2] "
        "stride=[1, 1], SymInt[2] padding=[0, 0], SymInt[2] output_padding=[0, 0], SymInt "
        "groups=1, SymInt[2] dilation=[1, 1]) -> Tensor",
    .types = spatial_types,
    .decompose = spatial_decompose,
    .samples = {"$[2, 3, 4, 5], $[3, 4, 3, 3], $[4]",
                "$[2, 16, 8, 8], $[16, 8, 4, 4], $[8], [2, 2], [1, 1]",
                "$[2, 4, 4, 5], $[4, 3, 3, 2], $[6], [2, 1], [1, 0], [1, 0], 2, [1, 2]",
                "$[3, 4, 5], $[3, 4, 2, 2], none, 2",
                "$[2, 4, 5, 5], $[4, 1, 3, 3], none, [2, 2], "
                "[1, 1], [1, 1], 4",
                "$[2, 3, 4, 5]{60, 1, 15, 3}, $[3, 4, 3, 3], $[4]"}};
const OpDef kTranspose3d{
    .schema =
        "aten::conv_transpose3d.input(Tensor input, Tensor weight, Tensor? bias=None, SymInt[3] "
        "stride=[1, 1, 1], SymInt[3] padding=[0, 0, 0], SymInt[3] output_padding=[0, 0, 0], SymInt "
        "groups=1, SymInt[3] dilation=[1, 1, 1]) -> Tensor",
    .types = spatial_types,
    .decompose = spatial_decompose,
    .samples = {"$[1, 2, 3, 4, 2], $[2, 3, 2, 3, 2], $[3]",
                "$[2, 3, 4, 2], $[2, 3, 2, 3, 2], none, [1, 2, 2], [0, 1, 0], [0, 1, 0]"}};

// --- _convolution
// ---------------------------------------------------------------------------------

#define TANDEM_CONVOLUTION(Name, text, output_padding, last)                                    \
  const OpDef Name {                                                                            \
    .schema = "aten::" text                                                                     \
              "(Tensor input, Tensor weight, Tensor? bias, SymInt[] stride, SymInt[] padding, " \
              "SymInt[] dilation, bool transposed, " output_padding                             \
              " output_padding, SymInt groups, bool benchmark, bool deterministic, bool "       \
              "cudnn_enabled" last ") -> Tensor",                                               \
    .types = spatial_types, .decompose = spatial_decompose, .samples = Name##Samples            \
  }

const Samples kWholeSamples = {
    "$[2, 3, 7, 8], $[4, 3, 3, 3], $[4], [2, 1], [1, 1], [1, 1], false, [0, 0], 1, false, false, "
    "true, true",
    "$[2, 3, 4, 5], $[3, 4, 3, 3], $[4], [2, 2], [1, 1], [1, 1], true, [1, 1], 1, false, false, "
    "true, true"};
const Samples kDeprecatedSamples = {
    "$[2, 3, 7, 8], $[4, 3, 3, 3], $[4], [2, 1], [1, 1], [1, 1], false, [0, 0], 1, false, false, "
    "true",
    "$[2, 3, 9], $[3, 4, 3], none, [2], [1], [1], true, [1], 1, false, false, true"};
TANDEM_CONVOLUTION(kWhole, "_convolution", "SymInt[]", ", bool allow_tf32");
TANDEM_CONVOLUTION(kDeprecated, "_convolution.deprecated", "int[]", "");
#undef TANDEM_CONVOLUTION

const OpDef kMode{.schema =
                      "aten::_convolution_mode(Tensor input, Tensor weight, Tensor? bias, SymInt[] "
                      "stride, str padding, SymInt[] dilation, SymInt groups) -> Tensor",
                  .types = spatial_types,
                  .decompose = spatial_decompose,
                  .samples = {"$[2, 3, 7, 8], $[4, 3, 3, 2], $[4], [1, 1], \"same\", [1, 1], 1",
                              "$[2, 3, 9], $[4, 3, 3], none, [2], \"valid\", [1], 1",
                              "$[2, 3, 9], $[4, 3, 3], none, [2], \"other\", [1], 1"}};

const OpDef* const kOps[] = {&kConv1d,        &kConv2d,        &kConv3d,      &kConv1dPadding,
                             &kConv2dPadding, &kConv3dPadding, &kTranspose1d, &kTranspose2d,
                             &kTranspose3d,   &kWhole,         &kDeprecated,  &kMode};

}  // namespace

Family convolution_forms_family() { return kOps; }

}  // namespace tandem::ops
