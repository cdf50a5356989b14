// Scaled dot-product attention as products, a scale, a mask and a softmax:
//   O = dropout(softmax(scale Q K^T + mask)) V
// Batch dimensions are flattened by views alone, so that the library reads q, k and v where they
// lie.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ops/elements.h"
#include "ops/families.h"

namespace tandem::ops {
namespace {

bool grouped(const Call& c) { return c.boolean("enable_gqa"); }

Sizes batch_of(const ir::Type& type) { return {type.sizes.begin(), type.sizes.end() - 2}; }

/// Query heads that share one head of keys (or values).
Expr heads_per_key(const Call& c, std::string_view name) {
  return sym::floor_div(c.type("query").sizes[c.type("query").rank() - 3],
                        c.type(name).sizes[c.type(name).rank() - 3]);
}

/// Batch of keys (or values) after grouping.
Sizes shared_batch(const Call& c, std::string_view name) {
  Sizes batch = batch_of(c.type(name));
  if (grouped(c)) batch.back() = batch.back() * heads_per_key(c, name);
  return batch;
}

Sizes common_batch(const Call& c) {
  Sizes batch = broadcast(c, batch_of(c.type("query")), shared_batch(c, "key"));
  return broadcast(c, batch, shared_batch(c, "value"));
}

void check_equal(const Call& c, std::string_view a, int64_t dim_a, std::string_view b,
                 int64_t dim_b) {
  Expr x = c.type(a).sizes[c.type(a).rank() + dim_a];
  Expr y = c.type(b).sizes[c.type(b).rank() + dim_b];
  if (x != y && !sym::known_eq(x, y))
    c.fail(fmt::format("{} and {}: sizes {} and {} differ", c.describe(a), c.describe(b),
                       sym::to_string(x), sym::to_string(y)));
}

Types attention_types(const Call& c) {
  const ir::Type& query = c.type("query");
  for (std::string_view name : {"query", "key", "value"}) {
    if (c.type(name).rank() < (grouped(c) ? 3 : 2))
      c.fail(c.describe(name) + " has too few dimensions");
    if (c.type(name).dtype != query.dtype)
      c.fail(
          fmt::format("{} and {} must have the same dtype", c.describe("query"), c.describe(name)));
  }
  need_float(c, "query");
  if (c.has("attn_mask") && c.type("attn_mask").dtype != DType::boolean) need_float(c, "attn_mask");
  check_equal(c, "query", -1, "key", -1);
  check_equal(c, "key", -2, "value", -2);
  if (c.has("attn_mask") && c.boolean("is_causal"))
    c.fail("attn_mask and is_causal exclude each other");
  Sizes sizes = common_batch(c);
  Sizes scores = sizes;
  scores.insert(scores.end(),
                {query.sizes[query.rank() - 2], c.type("key").sizes[c.type("key").rank() - 2]});
  if (c.has("attn_mask")) broadcast(c, c.type("attn_mask").sizes, scores);
  sizes.insert(sizes.end(), {scores[scores.size() - 2], c.type("value").sizes.back()});
  return {ir::Type::tensor(query.dtype, sizes)};
}

/// [count, rows, columns] with the batch broadcast and flattened.
Tensor flattened(Tensor x, const Sizes& batch) {
  Sizes sizes = batch;
  sizes.insert(sizes.end(), {x.size(-2), x.size(-1)});
  return reshape(expand(x, sizes), {sym::product(batch), x.size(-2), x.size(-1)});
}

/// Each head of keys (or values) once for every query head of its group.
Tensor repeated_heads(const Call& c, std::string_view name, Tensor x) {
  if (!grouped(c) || heads_per_key(c, name) == Expr(1)) return x;
  int64_t heads = x.rank() - 3;
  Sizes apart = x.sizes();
  apart.insert(apart.begin() + heads + 1, heads_per_key(c, name));
  Sizes merged = x.sizes();
  merged[heads] = merged[heads] * heads_per_key(c, name);
  return reshape(expand(unsqueeze(x, heads + 1), apart), merged);
}

/// Row i sees columns 0 to i, counted from the upper left corner.
Tensor causal(Builder& b, Expr rows, Expr columns) {
  Tensor row = unsqueeze(arange(b, rows, DType::i64), 1);
  return compare("ge", row, arange(b, columns, DType::i64));
}

Tensor masked_scores(Builder& b, const Call& c, Tensor scores) {
  constexpr double kNever = -HUGE_VAL;
  if (c.boolean("is_causal"))
    return where(causal(b, scores.size(-2), scores.size(-1)), scores, kNever);
  if (!c.has("attn_mask")) return scores;
  Tensor mask{b, c.value("attn_mask")};
  return mask.dtype() == DType::boolean ? where(mask, scores, kNever)
                                        : scores + to(mask, scores.dtype());
}

/// A row that may see nothing gives zeros, not NaN; its scores are taken out first, so that its
/// gradient is zero as well.
Tensor row_softmax(Builder& b, const Call& c, Tensor scores) {
  int64_t last = scores.rank() - 1;
  if (!c.has("attn_mask")) return call(b, "aten._softmax", {scores, last, false});
  Tensor blind = compare("eq", amax(scores, {last}, true), -HUGE_VAL);
  Tensor weights = call(b, "aten._softmax", {where(blind, 0.0, scores), last, false});
  return where(blind, 0.0, weights);
}

Tensors attend(Builder& b, const Call& c) {
  Tensor query{b, c.value("query")};
  Tensor key = repeated_heads(c, "key", {b, c.value("key")});
  Tensor value = repeated_heads(c, "value", {b, c.value("value")});
  Sizes batch = common_batch(c);
  double width = static_cast<double>(query.size(-1).constant().value_or(0));
  if (!c.has("scale") && width == 0)
    c.fail(c.describe("query") + ": the last size must be known to derive the scale");
  double scale = c.has("scale") ? c.floating("scale") : 1 / std::sqrt(width);
  Tensor scores = bmm(flattened(query, batch), transpose(flattened(key, batch), -2, -1)) * scale;
  Sizes sizes = batch;
  sizes.insert(sizes.end(), {query.size(-2), key.size(-2)});
  Tensor weights = row_softmax(b, c, masked_scores(b, c, reshape(scores, sizes)));
  if (c.floating("dropout_p") > 0)
    weights = call(b, "aten.dropout", {weights, c.floating("dropout_p"), true});
  return {reshape(bmm(flattened(weights, batch), flattened(value, batch)), c.result()->type.sizes)};
}

const OpDef kAttention{
    .schema =
        "aten::scaled_dot_product_attention(Tensor query, Tensor key, Tensor value, Tensor? "
        "attn_mask=None, "
        "float dropout_p=0., bool is_causal=False, *, float? scale=None, bool enable_gqa=False) -> "
        "Tensor",
    .types = attention_types,
    .decompose = attend,
    .samples = {"$[2, 3, 5, 8], $[2, 3, 7, 8], $[2, 3, 7, 4]",
                "$[2, 3, 5, 8], $[2, 3, 5, 8], $[2, 3, 5, 8], is_causal=true",
                "$[2, 3, 5, 8], $[2, 3, 7, 8], $[2, 3, 7, 8], bool[5, 7]",
                "$[2, 3, 5, 8], $[2, 3, 7, 8], $[2, 3, 7, 8], $[2, 1, 5, 7], scale=0.5",
                "$[3, 4, 8], $[3, 6, 8], $[3, 6, 8], is_causal=true", "$[5, 8], $[7, 8], $[7, 8]",
                "$[2, 4, 5, 8], $[2, 2, 7, 8], $[2, 2, 7, 8], enable_gqa=true",
                "$[2, 3, 5, 8]{120, 8, 24, 1}, $[2, 3, 5, 8]{120, 8, 24, 1}, $[2, 3, 5, 8]{120, 8, "
                "24, 1}, is_causal=true"}};

const OpDef* const kOps[] = {&kAttention};

}  // namespace

Family attention_family() { return kOps; }

}  // namespace tandem::ops
