// Eager's fused inference ops of transformer encoders, by decomposition: multi-head self-attention
// with one weight for queries, keys and values, and the whole encoder layer around it.
#include <fmt/format.h>

#include <cmath>

#include "ops/families.h"
#include "ops/types.h"

namespace tandem::ops {
namespace {

Tensor tensor(Builder& b, const Call& c, std::string_view name) { return {b, c.value(name)}; }
Tensor linear(Tensor x, Tensor weight, Tensor bias) {
  return call(x.builder(), "aten.linear", {x, weight, bias});
}

/// What `mask_type` says of the sizes of a mask: it hides keys of [rows, keys], [batch, keys] or
/// [batch, heads, rows, keys].
enum MaskKind : int64_t { kOfPairs = 0, kOfKeys = 1, kOfHeads = 2 };

void check_mask(const Call& c, const ir::Type& input, int64_t heads) {
  if (!c.has("mask")) return;
  if (!c.has("mask_type")) c.fail("mask_type must say what the mask is of");
  Expr batch = input.sizes[0];
  Expr length = input.sizes[1];
  const Sizes expected[] = {{length, length}, {batch, length}, {batch, heads, length, length}};
  int64_t kind = c.constant("mask_type");
  if (kind < kOfPairs || kind > kOfHeads) c.fail(c.describe("mask_type") + " must be 0, 1 or 2");
  if (!same_sizes(c.type("mask").sizes, expected[kind]))
    c.fail(fmt::format("{} must have sizes {}", c.describe("mask"), ir::to_string(expected[kind])));
}
void check_heads(const Call& c, const ir::Type& input, int64_t heads) {
  int64_t width = c.constant("embed_dim");
  if (input.rank() != 3) c.fail("the input must have 3 dimensions");
  if (heads < 1 || width % heads != 0)
    c.fail(fmt::format("embed_dim {} does not divide into {} heads", width, heads));
  if (!same_sizes({input.sizes[2]}, {Expr(width)}))
    c.fail(fmt::format("the input's last size must be embed_dim, {}", width));
  if (!same_sizes(c.type("qkv_weight").sizes, {Expr(3 * width), Expr(width)}))
    c.fail(c.describe("qkv_weight") + " must have 3 rows and 1 column for each of embed_dim");
  if (!same_sizes(c.type("qkv_bias").sizes, {Expr(3 * width)}))
    c.fail(c.describe("qkv_bias") + " must have 3 elements for each of embed_dim");
  check_mask(c, input, heads);
}

struct Attended {
  Tensor output;   // [batch, rows, width], projected
  Tensor weights;  // [batch, heads, rows, keys]
};
/// Operands that are one tensor are projected together.
Tensors projected(Builder& b, const Call& c, Tensor query, Tensor key, Tensor value) {
  Tensor weight = tensor(b, c, "qkv_weight");
  Tensor bias = tensor(b, c, "qkv_bias");
  bool same = query.value() == key.value() && key.value() == value.value();
  if (same) return call_many(b, "aten.chunk", {linear(query, weight, bias), 3, -1});
  Tensors weights = call_many(b, "aten.chunk", {weight, 3, 0});
  Tensors biases = call_many(b, "aten.chunk", {bias, 3, 0});
  return {linear(query, weights[0], biases[0]), linear(key, weights[1], biases[1]),
          linear(value, weights[2], biases[2])};
}
/// True where a key is hidden, against [batch, heads, rows, keys].
Tensor hidden_keys(Builder& b, const Call& c) {
  Tensor mask = to(tensor(b, c, "mask"), DType::boolean);
  if (c.constant("mask_type") != kOfKeys) return mask;
  return reshape(mask, {mask.size(0), 1, 1, mask.size(1)});
}
Attended attended(Builder& b, const Call& c, const Tensors& operands, int64_t heads) {
  Tensors parts = projected(b, c, operands[0], operands[1], operands[2]);
  DType dtype = parts[0].dtype();
  Sizes sizes = parts[0].sizes();
  Expr width = sym::floor_div(sizes[2], heads);
  auto by_head = [&](Tensor x) {
    Tensor apart = transpose(reshape(x, {sizes[0], sizes[1], heads, width}), 1, 2);
    return to(reshape(apart, {sizes[0] * heads, sizes[1], width}), compute_type(dtype));
  };
  int64_t width_of_head = c.constant("embed_dim") / heads;
  double scale = 1 / std::sqrt(static_cast<double>(width_of_head));
  Tensor scores = bmm(by_head(parts[0]) * scale, transpose(by_head(parts[1]), 1, 2));
  scores = reshape(scores, {sizes[0], heads, sizes[1], sizes[1]});
  if (c.has("mask")) scores = where(hidden_keys(b, c), -HUGE_VAL, scores);
  Tensor weights = call(b, "aten._softmax", {scores, 3, false});
  Tensor rows = reshape(weights, {sizes[0] * heads, sizes[1], sizes[1]});
  Tensor output = reshape(bmm(rows, by_head(parts[2])), {sizes[0], heads, sizes[1], width});
  output = to(reshape(transpose(output, 1, 2), sizes), dtype);
  return {linear(output, tensor(b, c, "proj_weight"), tensor(b, c, "proj_bias")), weights};
}

const OpDef kMultiHead{
    .schema =
        "aten::_native_multi_head_attention(Tensor query, Tensor key, Tensor value, int "
        "embed_dim, int num_head, Tensor qkv_weight, Tensor qkv_bias, Tensor proj_weight, "
        "Tensor proj_bias, Tensor? mask=None, bool need_weights=True, bool "
        "average_attn_weights=True, int? mask_type=None) -> (Tensor, Tensor)",
    .types = [](const Call& c) -> Types {
      const ir::Type& query = c.type("query");
      int64_t heads = c.constant("num_head");
      need_float(c, "query");
      need_same_dtype(
          c, {"query", "key", "value", "qkv_weight", "qkv_bias", "proj_weight", "proj_bias"});
      check_heads(c, query, heads);
      for (std::string_view name : {"key", "value"})
        if (!same_sizes(c.type(name).sizes, query.sizes))
          c.fail(c.describe(name) + " must have the sizes of " + c.describe("query"));
      Sizes weights{query.sizes[0], heads, query.sizes[1], query.sizes[1]};
      if (c.boolean("average_attn_weights")) weights.erase(weights.begin() + 1);
      if (!c.boolean("need_weights")) weights = {Expr(0)};  // undefined in eager
      return {ir::Type::tensor(query.dtype, query.sizes), ir::Type::tensor(query.dtype, weights)};
    },
    .decompose = [](Builder& b, const Call& c) -> Tensors {
      Tensors operands{tensor(b, c, "query"), tensor(b, c, "key"), tensor(b, c, "value")};
      Attended result = attended(b, c, operands, c.constant("num_head"));
      const ir::Type& type = c.result(1)->type;
      Tensor weights = result.weights;
      if (!c.boolean("need_weights"))
        weights = full(b, type.sizes, 0, type.dtype);
      else if (c.boolean("average_attn_weights"))
        weights = mean(weights, {1});
      return {result.output, to(weights, type.dtype)};
    },
    .samples = {"$[2, 5, 8], $[2, 5, 8], $[2, 5, 8], 8, 2, $[24, 8], $[24], $[8, 8], $[8]",
                "$[2, 5, 8], $[2, 5, 8], $[2, 5, 8], 8, 4, $[24, 8], $[24], $[8, 8], $[8], "
                "bool[5, 5], true, false, 0",
                "$[2, 5, 8], $[2, 5, 8], $[2, 5, 8], 8, 2, $[24, 8], $[24], $[8, 8], $[8], "
                "bool[2, 5], true, true, 1",
                "$[2, 9, 8], $[2, 9, 8], $[2, 9, 8], 8, 2, $[24, 8], $[24], $[8, 8], $[8], "
                "bool[2, 2, 9, 9], true, true, 2",
                "$[2, 5, 8], $[2, 7, 8], $[2, 7, 8], 8, 2, $[24, 8], $[24], $[8, 8], $[8]",
                "$[2, 5, 8], $[2, 5, 8], $[2, 5, 8], 8, 3, $[24, 8], $[24], $[8, 8], $[8]"}};

Tensor normed(Builder& b, const Call& c, Tensor x, std::string_view number) {
  std::string weight = "norm_weight_" + std::string(number);
  std::string bias = "norm_bias_" + std::string(number);
  return call(b, "aten.layer_norm",
              {x, ir::Ints{x.size(-1)}, tensor(b, c, weight), tensor(b, c, bias), c.arg("eps")});
}
// x + attention(x), then x + feed_forward(x); the norms stand before each of them or behind it.
const OpDef kEncoderLayer{
    .schema =
        "aten::_transformer_encoder_layer_fwd(Tensor src, int embed_dim, int num_heads, "
        "Tensor qkv_weight, Tensor qkv_bias, Tensor proj_weight, Tensor proj_bias, bool "
        "use_gelu, bool norm_first, float eps, Tensor norm_weight_1, Tensor norm_bias_1, "
        "Tensor norm_weight_2, Tensor norm_bias_2, Tensor ffn_weight_1, Tensor ffn_bias_1, "
        "Tensor ffn_weight_2, Tensor ffn_bias_2, Tensor? mask=None, int? mask_type=None) -> "
        "Tensor",
    .types = [](const Call& c) -> Types {
      const ir::Type& src = c.type("src");
      need_float(c, "src");
      need_same_dtype(c, {"src", "qkv_weight", "qkv_bias", "proj_weight", "proj_bias",
                          "ffn_weight_1", "ffn_bias_1", "ffn_weight_2", "ffn_bias_2"});
      check_heads(c, src, c.constant("num_heads"));
      return {ir::Type::tensor(src.dtype, src.sizes)};
    },
    .decompose = [](Builder& b, const Call& c) -> Tensors {
      bool first = c.boolean("norm_first");
      Tensor src = tensor(b, c, "src");
      Tensor x = first ? normed(b, c, src, "1") : src;
      x = attended(b, c, {x, x, x}, c.constant("num_heads")).output + src;
      if (!first) x = normed(b, c, x, "1");
      Tensor y = first ? normed(b, c, x, "2") : x;
      y = linear(y, tensor(b, c, "ffn_weight_1"), tensor(b, c, "ffn_bias_1"));
      y = call(b, c.boolean("use_gelu") ? "aten.gelu" : "aten.relu", {y});
      y = linear(y, tensor(b, c, "ffn_weight_2"), tensor(b, c, "ffn_bias_2")) + x;
      return {first ? y : normed(b, c, y, "2")};
    },
    .samples = {"f32[2, 5, 8], 8, 2, f32[24, 8], f32[24], f32[8, 8], f32[8], true, false, 1e-5, "
                "f32[8], f32[8], f32[8], f32[8], f32[16, 8], f32[16], f32[8, 16], f32[8]",
                "f32[2, 5, 8], 8, 2, f32[24, 8], f32[24], f32[8, 8], f32[8], false, true, 1e-5, "
                "f32[8], f32[8], f32[8], f32[8], f32[16, 8], f32[16], f32[8, 16], f32[8], bool[5, "
                "5], 0"},
    .sample_dtypes = DTypes::f32_only};

const OpDef* const kOps[] = {&kMultiHead, &kEncoderLayer};

}  // namespace

Family encoder_layer_family() { return kOps; }

}  // namespace tandem::ops
