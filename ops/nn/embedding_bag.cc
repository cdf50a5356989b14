// Bags of embeddings: rows of a table summed, averaged or maximised by ranges of the index list
// that `offsets` starts. By decomposition: the bag of each index, a gather, and a sum by bag;
// gradients are those of the parts. A maximum compares every row with every bag, which is for small
// bags.
#include <fmt/format.h>

#include <limits>

#include "ops/families.h"
#include "ops/types.h"

namespace tandem::ops {
namespace {

enum Mode : int64_t { kSum = 0, kMean = 1, kMax = 2 };

Tensor tensor(Builder& b, const Call& c, std::string_view name) { return {b, c.value(name)}; }
bool lists_ends(const Call& c) { return c.boolean("include_last_offset"); }
Expr bag_count(const Call& c) {
  return c.type("offsets").sizes[0] - (lists_ends(c) ? Expr(1) : Expr(0));
}
/// The index that counts nothing; none when negative.
std::optional<int64_t> padding_of(const Call& c) {
  if (!c.has("padding_idx")) return std::nullopt;
  int64_t padding = c.constant("padding_idx");
  bool wraps = c.op().schema.overload == "padding_idx";  // the composite counts from the end
  if (padding >= 0) return padding;
  if (!wraps) return std::nullopt;
  std::optional<int64_t> rows = c.type("weight").sizes[0].constant();
  if (!rows) c.fail(c.describe("padding_idx") + " must not be negative");
  return padding + *rows;
}

/// Eager's kernel for plain sums does not tell the bag of each index.
bool tells_bags(const Call& c) {
  return c.constant("mode") != kSum || c.type("weight").dtype == DType::f64 || padding_of(c);
}

Types bag_types(const Call& c) {
  const ir::Type& weight = c.type("weight");
  need_float(c, "weight");
  need_rank(c, "weight", 2, 2);
  need_rank(c, "indices", 1, 1);
  need_rank(c, "offsets", 1, 1);
  for (std::string_view name : {"indices", "offsets"})
    if (DType dtype = c.type(name).dtype; dtype != DType::i64 && dtype != DType::i32)
      c.fail(c.describe(name) + " must have dtype i64 or i32");
  int64_t mode = c.constant("mode");
  if (mode < kSum || mode > kMax) c.fail(c.describe("mode") + " must be 0, 1 or 2");
  if (lists_ends(c) && sym::known_lt(c.type("offsets").sizes[0], 1))
    c.fail(c.describe("offsets") + " must have an end");
  if (c.has("per_sample_weights")) {
    if (mode != kSum) c.fail("per_sample_weights are for sums");
    need_same_dtype(c, {"weight", "per_sample_weights"});
    if (!same_sizes(c.type("per_sample_weights").sizes, c.type("indices").sizes))
      c.fail(c.describe("per_sample_weights") + " does not fit " + c.describe("indices"));
  }
  Sizes sizes{bag_count(c), weight.sizes[1]};
  DType integer = promote(c.type("indices").dtype, c.type("offsets").dtype);
  auto counts = [&](Sizes of) { return ir::Type::tensor(integer, std::move(of)); };
  return {ir::Type::tensor(weight.dtype, sizes),
          counts(tells_bags(c) ? c.type("indices").sizes : Sizes{Expr(0)}), counts({sizes[0]}),
          counts(mode == kMax ? sizes : Sizes{sizes[0]})};
}

struct Bags {
  Tensor of_index;  // [n]
  Tensor counts;    // [n]: whether an index counts
  Tensor sizes;     // [bags]
};
/// The bag of an index is the number of bags that start at or before it, less one.
Bags bags_of(Builder& b, const Call& c) {
  Expr count = bag_count(c);
  Tensor starts = slice(tensor(b, c, "offsets"), 0, 0, count);
  Tensor indices = tensor(b, c, "indices");
  Tensor place = unsqueeze(arange(b, indices.size(0), starts.dtype()), 1);
  Bags bags;
  bags.of_index =
      call(b, "aten.sub.Scalar", {sum(to(compare("ge", place, starts), DType::i64), {1}), 1});
  bags.counts = full(b, indices.sizes(), 1, DType::boolean);
  if (std::optional<int64_t> padding = padding_of(c))
    bags.counts = compare("ne", indices, static_cast<double>(*padding));
  Tensor zeros = full(b, {count}, 0, DType::i64);
  bags.sizes = call(b, "aten.index_add", {zeros, 0, bags.of_index, to(bags.counts, DType::i64)});
  return bags;
}

Tensor summed(Builder& b, const Call& c, const Bags& bags, Tensor rows) {
  if (c.has("per_sample_weights")) {
    Tensor weights = tensor(b, c, "per_sample_weights");
    rows = rows * unsqueeze(to(weights, rows.dtype()), 1);
  }
  rows = where(unsqueeze(bags.counts, 1), rows, 0.0);
  Tensor zeros = full(b, {bag_count(c), rows.size(1)}, 0, rows.dtype());
  Tensor sums = call(b, "aten.index_add", {zeros, 0, bags.of_index, rows});
  if (c.constant("mode") != kMean) return sums;
  Tensor sizes = call(b, "aten.clamp_min", {bags.sizes, 1});
  return sums / unsqueeze(to(sizes, rows.dtype()), 1);
}
/// The largest row of each bag, element by element, and where it stands in the index list.
Tensors largest(Builder& b, const Call& c, const Bags& bags, Tensor rows) {
  Tensor number = unsqueeze(arange(b, bag_count(c), DType::i64), 1);
  Tensor member = call(b, "aten.logical_and", {eq(number, bags.of_index), bags.counts});
  Tensor shown = where(unsqueeze(member, 2), rows, -std::numeric_limits<double>::infinity());
  Tensors best = call_many(b, "aten.max.dim", {shown, 1, false});
  Tensor empty = unsqueeze(compare("eq", bags.sizes, 0), 1);
  Tensor indices = call(b, "aten.index.Tensor", {tensor(b, c, "indices"), Tensors{best[1]}});
  return {where(empty, 0.0, best[0]), where(empty, zeros_like(indices), indices)};
}
Tensors bag_parts(Builder& b, const Call& c) {
  int64_t mode = c.constant("mode");
  Bags bags = bags_of(b, c);
  Tensor rows =
      call(b, "aten.embedding",
           {tensor(b, c, "weight"), tensor(b, c, "indices"), -1, c.arg("scale_grad_by_freq")});
  rows = to(rows, compute_type(rows.dtype()));
  auto counts = [&](Tensor x, size_t result) { return to(x, c.result(result)->type.dtype); };
  Tensors results{Tensor(), counts(tells_bags(c) ? bags.of_index : full(b, {0}, 0, DType::i64), 1),
                  counts(mode == kSum ? zeros_like(bags.sizes) : bags.sizes, 2), Tensor()};
  if (mode == kMax) {
    Tensors best = largest(b, c, bags, rows);
    results[0] = best[0];
    results[3] = counts(best[1], 3);
  } else {
    results[0] = summed(b, c, bags, rows);
    results[3] = results[2];
  }
  results[0] = to(results[0], c.result(0)->type.dtype);
  return results;
}

const Samples kBags = {"$[5, 3], i64[4]:index(5), i64[1]:index(1)",
                       "$[5, 3], i64[4]:index(5), i64[1]:index(1), false, 1",
                       "$[5, 3], i64[4]:index(5), i64[1]:index(1), false, 2",
                       "$[5, 3], i64[4]:index(5), i64[3]:index(1), false, 1",
                       "$[5, 3], i64[4]:index(5), i64[3]:index(1), true, 0",
                       "$[5, 3], i64[4]:index(5), i64[1]:index(1), false, 0, false, $[4]",
                       "$[5, 3], i32[4]:index(5), i32[2]:index(1), false, 2",
                       "$[5, 3], i64[0], i64[2]:index(1), false, 1",
                       "$[5, 3], i64[4]:index(5), i64[1]:index(1), "
                       "false, 1, false, $[4]"};
const Samples kPaddedBags = {
    "$[5, 3], i64[8]:index(5), i64[1]:index(1), false, 0, false, none, false, 1",
    "$[5, 3], i64[8]:index(5), i64[1]:index(1), false, 1, false, none, false, 2",
    "$[5, 3], i64[8]:index(5), i64[1]:index(1), false, 2, false, none, false, 1"};
Samples with_padding() {
  Samples samples = kBags;
  samples.insert(samples.end(), kPaddedBags.begin(), kPaddedBags.end());
  return samples;
}

#define TANDEM_BAG(Name, text, padding, set, reason)                                           \
  const OpDef Name {                                                                           \
    .schema = "aten::" text                                                                    \
              "(Tensor weight, Tensor indices, Tensor offsets, bool scale_grad_by_freq=False," \
              " int mode=0, bool sparse=False, Tensor? per_sample_weights=None, bool "         \
              "include_last_offset=False" padding ") -> (Tensor, Tensor, Tensor, Tensor)",     \
    .types = bag_types, .decompose = bag_parts, .no_grad = reason, .samples = set,             \
    .can_fail = true                                                                           \
  }
TANDEM_BAG(kInner, "_embedding_bag", ", int padding_idx=-1", with_padding(), "");
TANDEM_BAG(kForwardOnly, "_embedding_bag_forward_only", ", int padding_idx=-1", with_padding(),
           "eager gives none: it is what runs without gradients");
TANDEM_BAG(kBag, "embedding_bag", "", kBags, "");
#undef TANDEM_BAG
const OpDef kPadded{
    .schema =
        "aten::embedding_bag.padding_idx(Tensor weight, Tensor indices, Tensor offsets, bool "
        "scale_grad_by_freq, int mode, bool sparse, Tensor? per_sample_weights, bool "
        "include_last_offset, int? padding_idx) -> (Tensor, Tensor, Tensor, Tensor)",
    .types = bag_types,
    .decompose = bag_parts,
    .samples = kPaddedBags,
    .can_fail = true};

const OpDef* const kOps[] = {&kInner, &kForwardOnly, &kBag, &kPadded};

}  // namespace

Family embedding_bag_family() { return kOps; }

}  // namespace tandem::ops
