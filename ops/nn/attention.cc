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
  Expr heads = c.type(name).sizes[c.type(name).rank() - 3];
  if (heads == Expr(0)) c.fail(c.describe(name) + " has no heads to share");
  return sym::floor_div(c.type("query").sizes[c.type("query").rank() - 3], heads);
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
  if (c.has("attn_mask") && c.type("attn_mask").rank() < 2)
    c.fail(c.describe("attn_mask") + " needs a dimension of rows and one of columns");
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
    scores = where(causal(b, scores.size(-2), scores.size(-1)), scores, kNever);
  if (!c.has("attn_mask")) return scores;
  Tensor mask{b, c.value("attn_mask")};
  return mask.dtype() == DType::boolean ? where(mask, scores, kNever)
                                        : scores + to(mask, scores.dtype());
}

/// `scale`, or 1 / sqrt(width of a query).
double scale_of(const Call& c) {
  if (c.has("scale")) return c.floating("scale");
  const sym::Expr width = c.type("query").sizes.back();
  if (!width.constant()) c.fail_unknown("without a scale, the width of query", width);
  if (width == sym::Expr(0)) c.fail(c.describe("query") + ": of width 0 follows no scale");
  return 1 / std::sqrt(static_cast<double>(*width.constant()));
}

/// Zero there already, whatever row and column; said again, so that what backward computes there is
/// seen to be thrown away.
Tensor said_hidden(Builder& b, const Call& c, Tensor weights) {
  if (!c.boolean("is_causal")) return weights;
  return where(causal(b, weights.size(-2), weights.size(-1)), weights, 0.0);
}

Tensor dropped(Builder& b, const Call& c, Tensor weights) {
  if (c.floating("dropout_p") <= 0) return weights;
  return call(b, "aten.dropout", {weights, c.floating("dropout_p"), true});
}

/// `value`, rounded to bf16: the gradient is that of what it was, as a sum of differences of what
/// is rounded is small.
Tensor rounded(Builder& b, Tensor value) {
  return call(b, "tandem.with_history", {value, to(to(value, DType::bf16), value.dtype())});
}

/// `value` itself, whose gradient is rounded to bf16.
Tensor rounds_gradient(Builder& b, Tensor value) {
  return call(b, "tandem.with_history", {to(to(value, DType::bf16), value.dtype()), value});
}

/// What O = E V / s is for its gradients, in products of bf16: P = E / s is rounded, and dO is
/// given so, for
///   dV = P^T dO,    dE = (dO V^T - rowsum(dO O)) / s
/// The second term comes through s alone, of which O is a constant times 1 / s. What a mask hides
/// is 0 in P, and no matter what s is, so that no sum over P goes that far. The value of this is
/// nobody's.
Tensor history_of(Builder& b, const Call& c, Tensor weights, Tensor sums, Tensor value,
                  Tensor result) {
  const Sizes rows{result.size(0), result.size(1), 1};
  const auto fixed = [&](Tensor x) { return call(b, "aten.detach", {x}); };
  const Tensor shares = said_hidden(b, c, weights * reciprocal(fixed(sums)));
  const Sizes batch(weights.sizes().begin(), weights.sizes().end() - 2);
  const Tensor own = bmm(flattened(rounded(b, shares), batch), value);
  return own + fixed(result) * reshape(fixed(sums) / sums, rows);
}

/// O = E V / rowsum(E), E = exp(S - rowmax(S)), as eager's kernel has it. The maximum cancels out,
/// so it has no gradient, and that of the sum takes no sums over S: rowsum(E) has -rowsum(dO O) /
/// rowsum(E). A row that a mask lets see nothing gives zeros, not NaN. In bf16, for which
/// processors have products, E is rounded; the largest of a row is 1, and exact.
Tensor mixed(Builder& b, const Call& c, Tensor scores, Tensor value) {
  const std::vector<int64_t> last{scores.rank() - 1};
  const Sizes batch(scores.sizes().begin(), scores.sizes().end() - 2);
  Tensor most = call(b, "aten.detach", {amax(scores, last, true)});
  const Tensor blind = compare("eq", most, -HUGE_VAL);
  if (c.has("attn_mask")) most = where(blind, 0.0, most);
  Tensor weights = exp(scores - most);
  Tensor sums = sum(weights, last, true);
  if (c.has("attn_mask")) sums = where(blind, 1.0, sums);
  const Tensor kept = dropped(b, c, said_hidden(b, c, weights));
  const bool is_bf16 = c.result()->type.dtype == DType::bf16;
  const Tensor result = bmm(flattened(is_bf16 ? rounded(b, kept) : kept, batch), value) /
                        reshape(sums, {sym::product(batch), scores.size(-2), 1});
  if (!is_bf16 || c.floating("dropout_p") > 0) return result;
  return call(b, "tandem.with_history", {history_of(b, c, weights, sums, value, result), result});
}

/// The same where there may be no keys, of which there is no maximum: results are then zeros.
Tensor mixed_of_any(Builder& b, const Call& c, Tensor scores, Tensor value) {
  const Sizes batch(scores.sizes().begin(), scores.sizes().end() - 2);
  const int64_t last = scores.rank() - 1;
  const Tensor weights = c.has("attn_mask") ? call(b, "aten._safe_softmax", {scores, last})
                                            : call(b, "aten._softmax", {scores, last, false});
  return bmm(flattened(dropped(b, c, said_hidden(b, c, weights)), batch), value);
}

Tensors attend(Builder& b, const Call& c) {
  // Scores and sums of 16 bit floats are f32, as in eager's kernel.
  const ir::Type& result = c.result()->type;
  auto wide = [&](const char* name) {
    return to(Tensor{b, c.value(name)}, compute_type(result.dtype));
  };
  Tensor query = wide("query");
  Tensor key = repeated_heads(c, "key", wide("key"));
  Tensor value = repeated_heads(c, "value", wide("value"));
  Sizes batch = common_batch(c);
  double scale = scale_of(c);
  Tensor scores = bmm(flattened(query, batch), transpose(flattened(key, batch), -2, -1));
  if (result.dtype == DType::bf16) scores = rounds_gradient(b, scores);
  scores = scores * scale;
  Sizes sizes = batch;
  sizes.insert(sizes.end(), {query.size(-2), key.size(-2)});
  scores = masked_scores(b, c, reshape(scores, sizes));
  const auto mix = sym::known_le(1, key.size(-2)) ? mixed : mixed_of_any;
  const Tensor whole = mix(b, c, scores, flattened(value, batch));
  return {to(reshape(whole, result.sizes), result.dtype)};
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
                "$[2, 4, 5, 8], $[2, 1, 5, 8], $[2, 1, 5, 8], none, 0.0, true, scale=0.25, "
                "enable_gqa=true",
                "$[2, 5, 5, 8], $[2, 2, 7, 8], $[2, 2, 7, 8], enable_gqa=true",
                "$[2, 4, 5, 8], $[2, 2, 7, 8], $[2, 2, 7, 8]",
                "$[4, 5, 8], $[2, 7, 8], $[2, 7, 8], bool[4, 5, 7], enable_gqa=true",
                "$[2, 3, 5, 8], $[2, 3, 7, 8], $[2, 3, 7, 8], bool[5, 7], 0.0, true",
                "$[2, 3, 5, 8], $[2, 3, 7, 8], $[2, 3, 7, 8], none, 0.5",
                "$[2, 3, 5, 8], $[2, 3, 7, 8], $[2, 3, 7, 8], none, 0.0, true",
                "$[2, 3, 7, 8], $[2, 3, 5, 8], $[2, 3, 5, 8], none, 0.0, true",
                "$[2, 3, 5, 8], $[2, 3, 7, 8], $[2, 3, 7, 8], bool[2, 3, 5, 1]",
                "$[2, 3, 5, 8], $[2, 3, 7, 8], $[2, 3, 7, 8], $[7]",
                "$[2, 3, 5, 8]{120, 8, 24, 1}, $[2, 3, 5, 8]{120, 8, 24, 1}, $[2, 3, 5, 8]{120, 8, "
                "24, 1}, is_causal=true"}};

// --- the CPU kernel of eager as an op
// -------------------------------------------------------------
// Its second result is each row's logsumexp of the scores, from which the gradient op has the
// weights again. A row that sees nothing has the result 0 and the logsumexp 0.

Sizes flash_sizes(const Call& c) {
  const ir::Type& query = c.type("query");
  need_float(c, "query");
  need_same_dtype(c, {"query", "key", "value", "out", "grad_out"});
  for (std::string_view name : {"query", "key", "value"}) need_rank(c, name, 4, 4);
  check_equal(c, "query", -1, "key", -1);
  check_equal(c, "query", -1, "value", -1);
  check_equal(c, "key", -2, "value", -2);
  for (int64_t dim : {-3, -4}) {
    check_equal(c, "query", dim, "key", dim);
    check_equal(c, "query", dim, "value", dim);
  }
  if (c.floating("dropout_p") != 0) c.fail(c.describe("dropout_p") + " must be 0");
  Sizes scores(query.sizes.begin(), query.sizes.end() - 1);
  scores.push_back(c.type("key").sizes[2]);
  if (!c.has("attn_mask")) return scores;
  const ir::Type& mask = c.type("attn_mask");
  if (mask.dtype != query.dtype && mask.dtype != DType::f32)
    c.fail(c.describe("attn_mask") + " must have the dtype of " + c.describe("query"));
  if (mask.rank() != 2 && mask.rank() != 4)
    c.fail(c.describe("attn_mask") + " must have 2 or 4 dimensions");
  broadcast(c, mask.sizes, scores);
  return scores;
}

/// The operands of a call with the batch flattened, in the compute type.
struct Flash {
  Builder& b;
  const Call& c;
  Sizes batch;
  DType dtype;
  double scale;
  Flash(Builder& builder, const Call& call)
      : b(builder),
        c(call),
        batch(batch_of(c.type("query"))),
        dtype(compute_type(c.type("query").dtype)),
        scale(scale_of(c)) {}
  Tensor flat(std::string_view name) const {
    return flattened(to(Tensor{b, c.value(name)}, dtype), batch);
  }
  /// One number a row; [count, rows, 1].
  Tensor flat_rows(Tensor x) const {
    return reshape(to(x, dtype), {sym::product(batch), x.size(-1), 1});
  }
  /// [count, rows, columns], masked.
  Tensor scores() const {
    Tensor flat_scores = bmm(flat("query"), transpose(flat("key"), -2, -1)) * scale;
    Sizes sizes = batch;
    sizes.insert(sizes.end(), {flat_scores.size(-2), flat_scores.size(-1)});
    Tensor x = reshape(flat_scores, sizes);
    if (c.has("attn_mask")) x = x + to(Tensor{b, c.value("attn_mask")}, dtype);
    if (c.boolean("is_causal")) x = where(causal(b, x.size(-2), x.size(-1)), x, -HUGE_VAL);
    return reshape(x, flat_scores.sizes());
  }
  /// A result of [batch, rows, ..] from its flattened form.
  Tensor result(Tensor x, size_t i) const {
    return to(reshape(x, c.result(i)->type.sizes), c.result(i)->type.dtype);
  }
};
Tensors flash_forward(Builder& b, const Call& c) {
  Flash f(b, c);
  Tensor scores = f.scores();
  Tensor blind = compare("eq", amax(scores, {2}, true), -HUGE_VAL);
  Tensor seen = where(blind, 0.0, scores);
  Tensor weights = where(blind, 0.0, call(b, "aten._softmax", {seen, 2, false}));
  Tensor sums = call(b, "aten.logsumexp", {seen, std::vector<int64_t>{2}, true});
  return {f.result(bmm(weights, f.flat("value")), 0), f.result(where(blind, 0.0, sums), 1)};
}
/// P = exp(S - lse), the weights again.
Tensor flash_weights(Tensor scores, Tensor lse) {
  Tensor hidden = compare("eq", scores, -HUGE_VAL);
  return where(hidden, 0.0, exp(where(hidden, 0.0, scores) - lse));
}
// P = exp(S - lse), dV = P^T dO, dS = P (dO V^T - rowsum(dO O)), dQ = scale dS K, dK = scale dS^T Q
Tensors flash_backward(Builder& b, const Call& c) {
  Flash f(b, c);
  Tensor weights = flash_weights(f.scores(), f.flat_rows({b, c.value("logsumexp")}));
  Tensor grad = f.flat("grad_out");
  Tensor rows = sum(grad * f.flat("out"), {2}, true);
  Tensor of_scores = weights * (bmm(grad, transpose(f.flat("value"), -2, -1)) - rows) * f.scale;
  return {f.result(bmm(of_scores, f.flat("key")), 0),
          f.result(bmm(transpose(of_scores, -2, -1), f.flat("query")), 1),
          f.result(bmm(transpose(weights, -2, -1), grad), 2)};
}
/// What a gradient of lse adds, which only the gradient of the gradient has: dS = dlse P.
Tensors through_logsumexp(Builder& b, const Call& c, Tensor of_lse) {
  Flash f(b, c);
  Tensor weights = flash_weights(f.scores(), f.flat_rows({b, c.result(1)}));
  Tensor of_scores = weights * f.flat_rows(of_lse) * f.scale;
  const auto like = [&](Tensor x, std::string_view name) {
    return to(reshape(x, c.type(name).sizes), c.type(name).dtype);
  };
  return {like(bmm(of_scores, f.flat("key")), "query"),
          like(bmm(transpose(of_scores, -2, -1), f.flat("query")), "key")};
}
const OpDef kFlash{
    .schema =
        "aten::_scaled_dot_product_flash_attention_for_cpu(Tensor query, Tensor key, Tensor "
        "value, float dropout_p=0., bool is_causal=False, *, Tensor? attn_mask=None, float? "
        "scale=None) -> (Tensor output, Tensor logsumexp)",
    .types = [](const Call& c) -> Types {
      Sizes rows = flash_sizes(c);
      rows.pop_back();
      const ir::Type& query = c.type("query");
      return {ir::Type::tensor(query.dtype, query.sizes),
              ir::Type::tensor(compute_type(query.dtype), rows)};
    },
    .decompose = flash_forward,
    .vjp = [](Builder& b, const Call& c, Grads g) -> Gradients {
      Tensors of_lse(2);
      if (g[1]) of_lse = through_logsumexp(b, c, g[1]);
      if (!g[0]) return {{"query", of_lse[0]}, {"key", of_lse[1]}};
      Tensors grads = call_many(b, "aten._scaled_dot_product_flash_attention_for_cpu_backward",
                                {g[0], c.arg("query"), c.arg("key"), c.arg("value"),
                                 Tensor{b, c.result(0)}, Tensor{b, c.result(1)}, c.arg("dropout_p"),
                                 c.arg("is_causal"), c.arg("attn_mask"), c.arg("scale")});
      for (size_t i = 0; g[1] && i < 2; ++i) grads[i] = grads[i] + of_lse[i];
      return {{"query", grads[0]}, {"key", grads[1]}, {"value", grads[2]}};
    },
    .samples = {"$[2, 3, 5, 8], $[2, 3, 7, 8], $[2, 3, 7, 8]",
                "$[2, 3, 5, 8], $[2, 3, 5, 8], $[2, 3, 5, 8], 0.0, true",
                "$[2, 3, 5, 8], $[2, 3, 7, 8], $[2, 3, 7, 8], attn_mask=$[5, 7], scale=0.5",
                "$[2, 3, 5, 8], $[2, 3, 7, 8], $[2, 3, 7, 8], attn_mask=f32[2, 1, 5, 7]",
                "$[2, 3, 5, 8], $[2, 3, 7, 8], $[2, 3, 7, 8], 0.1",
                "$[3, 5, 8], $[3, 7, 8], $[3, 7, 8]"}};
const OpDef kFlashBackward{
    .schema =
        "aten::_scaled_dot_product_flash_attention_for_cpu_backward(Tensor grad_out, Tensor "
        "query, Tensor key, Tensor value, Tensor out, Tensor logsumexp, float dropout_p, "
        "bool is_causal, *, Tensor? attn_mask=None, float? scale=None) -> (Tensor "
        "grad_query, Tensor grad_key, Tensor grad_value)",
    .types = [](const Call& c) -> Types {
      Sizes rows = flash_sizes(c);
      rows.pop_back();
      for (std::string_view name : {"out", "grad_out"})
        if (!same_sizes(c.type(name).sizes, c.type("query").sizes))
          c.fail(c.describe(name) + " must have the sizes of " + c.describe("query"));
      if (!same_sizes(c.type("logsumexp").sizes, rows))
        c.fail(c.describe("logsumexp") + " must have one element for each row of " +
               c.describe("query"));
      Types types;
      for (std::string_view name : {"query", "key", "value"})
        types.push_back(ir::Type::tensor(c.type(name).dtype, c.type(name).sizes));
      return types;
    },
    .decompose = flash_backward,
    .samples = {"f32[2, 3, 5, 8], f32[2, 3, 5, 8], f32[2, 3, 7, 8], f32[2, 3, 7, 8], f32[2, 3, 5, "
                "8], f32[2, 3, 5], 0.0, false",
                "f32[2, 3, 5, 8], f32[2, 3, 5, 8], f32[2, 3, 5, 8], f32[2, 3, 5, 8], f32[2, 3, 5, "
                "8], f32[2, 3, 5], 0.0, true, attn_mask=f32[5, 5], scale=0.3"},
    .sample_dtypes = DTypes::f32_only};

const OpDef* const kOps[] = {&kAttention, &kFlash, &kFlashBackward};

}  // namespace

Family attention_family() { return kOps; }

}  // namespace tandem::ops
