// Losses of margins: of pairs, embeddings and classes. By decomposition, computed in f32 and
// rounded once; their gradients are those of the parts, and each gradient op of ATen is a formula
// of its own.
#include <fmt/format.h>

#include "ops/elements.h"
#include "ops/nn/loss.h"

namespace tandem::ops {

using namespace loss;  // NOLINT(google-build-using-namespace): what the losses' files share

namespace {

Tensor at_least_zero(Tensor x) { return call(x.builder(), "aten.clamp_min", {x, 0}); }

// --- margins of pairs
// -----------------------------------------------------------------------------

// log(1 + exp(-x y)), of self's dtype whatever the target's
Types soft_margin_types(const Call& c) {
  need_float(c, "self");
  need_number(c, "target");
  Types types = pair_types(c);
  types[0].dtype = c.type("self").dtype;
  return types;
}
const OpDef kSoftMargin{
    .schema = "aten::soft_margin_loss(Tensor self, Tensor target, int reduction=1) -> Tensor",
    .types = soft_margin_types,
    .decompose = [](Builder& b, const Call& c) -> Tensors {
      return {reduced(c, log(exp(-wide(b, c, "self") * wide(b, c, "target")) + 1))};
    },
    .samples = {"$[3, 4], $[3, 4]", "$[3, 4], $[3, 4], 0", "$[3, 4], $[3, 4], 2", "$[0], $[0], 2",
                "$[], $[]"}};
// -y z / (1 + z) with z = exp(-x y)
const OpDef kSoftMarginBackward{
    .schema =
        "aten::soft_margin_loss_backward(Tensor grad_output, Tensor self, Tensor target, int "
        "reduction) -> Tensor",
    .types = [](const Call& c) -> Types {
      soft_margin_types(c);
      Sizes sizes = broadcast(c, c.type("self").sizes, c.type("target").sizes);
      return {
          ir::Type::tensor(c.type("self").dtype, broadcast(c, sizes, c.type("grad_output").sizes))};
    },
    .decompose = [](Builder& b, const Call& c) -> Tensors {
      Tensor y = wide(b, c, "target");
      Tensor z = exp(-wide(b, c, "self") * y);
      Tensor grad = -y * z / (z + 1) * wide(b, c, "grad_output");
      if (reduction_of(c) == kMean)
        grad = call(b, "aten.div.Scalar", {grad, c.type("self").numel()});
      return {to(grad, c.result()->type.dtype)};
    },
    .samples = {"$[], $[3, 4], $[3, 4], 1", "$[3, 4], $[3, 4], $[3, 4], 0",
                "$[], $[3, 4], $[3, 4], 2"}};

/// Integers stay what they are: differences of narrow ones wrap around, as in eager.
Tensor unrounded(Builder& b, const Call& c, std::string_view name) {
  Tensor x = tensor(b, c, name);
  return is_float(x.dtype()) ? widened(x) : x;
}

// max(0, margin - y (x1 - x2))
const OpDef kMarginRanking{
    .schema =
        "aten::margin_ranking_loss(Tensor input1, Tensor input2, Tensor target, float "
        "margin=0., int reduction=1) -> Tensor",
    .types = [](const Call& c) { return broadcast_types(c, {"input1", "input2", "target"}); },
    .decompose = [](Builder& b, const Call& c) -> Tensors {
      Tensor d = unrounded(b, c, "input1") - unrounded(b, c, "input2");
      return {reduced(c, at_least_zero(-unrounded(b, c, "target") * d + c.floating("margin")))};
    },
    .samples = {"$[5], $[5], $[5]", "$[3, 4], $[3, 4], $[4], 0.5, 0", "$[5], $[5], $[5], 0.1, 2",
                "i64[5], i64[5], i64[5], 0.5", "i64[5], i64[5], i64[5]"}};

// max(0, margin - x) where y is not 1, plus x where y is not -1
const OpDef kHingeEmbedding{
    .schema =
        "aten::hinge_embedding_loss(Tensor self, Tensor target, float margin=1., int "
        "reduction=1) -> Tensor",
    .types =
        [](const Call& c) {
          need_float(c, "self");
          return broadcast_types(c, {"self", "target"});
        },
    .decompose = [](Builder& b, const Call& c) -> Tensors {
      Tensor x = wide(b, c, "self");
      Tensor y = wide(b, c, "target");
      Tensor apart = where(compare("ne", y, 1), at_least_zero(c.floating("margin") - x), 0.0);
      return {reduced(c, apart + where(compare("ne", y, -1), x, 0.0))};
    },
    .samples = {"$[5], $[5]", "$[3, 4], $[3, 4], 0.5, 0", "$[8], i64[8]:bool, 1.5, 2"}};

// --- embeddings
// -----------------------------------------------------------------------------------

/// Rows of [n, d], or one of [d], against a target of [n] or [].
Types embedding_types(const Call& c) {
  int64_t rank = c.type("target").rank();
  if (rank > 1) c.fail(c.describe("target") + " must have at most 1 dimension");
  for (std::string_view name : {"input1", "input2"})
    if (c.type(name).rank() != rank + 1)
      c.fail(fmt::format("{} does not fit {}", c.describe(name), c.describe("target")));
  Sizes rows = broadcast(c, c.type("input1").sizes, c.type("input2").sizes);
  rows.pop_back();
  Sizes sizes = broadcast(c, rows, c.type("target").sizes);
  DType dtype = to_float(common_dtype(c, {"input1", "input2"}));
  return {ir::Type::tensor(dtype, reduction_of(c) == kNone ? sizes : Sizes{})};
}
// cos = x1 . x2 / sqrt((|x1|^2 + eps) (|x2|^2 + eps)): 1 - cos where y is 1, max(0, cos - margin)
// where it is -1
Tensors cosine_embedding_parts(Builder& b, const Call& c) {
  constexpr double kEps = 1e-12;
  Tensor x1 = wide(b, c, "input1");
  Tensor x2 = wide(b, c, "input2");
  Tensor y = tensor(b, c, "target");
  std::vector<int64_t> last{c.type("target").rank()};
  Tensor size = (sum(x1 * x1, last) + kEps) * (sum(x2 * x2, last) + kEps);
  Tensor cosine = sum(x1 * x2, last) / sqrt(size);
  Tensor alike = where(compare("eq", y, 1), 1.0 - cosine, 0.0);
  Tensor apart = where(compare("eq", y, -1), at_least_zero(cosine - c.floating("margin")), 0.0);
  return {reduced(c, alike + apart)};
}
const OpDef kCosineEmbedding{
    .schema =
        "aten::cosine_embedding_loss(Tensor input1, Tensor input2, Tensor target, float "
        "margin=0., int reduction=1) -> Tensor",
    .types = embedding_types,
    .decompose = cosine_embedding_parts,
    .samples = {"$[3, 4], $[3, 4], i64[3]:bool", "$[3, 4], $[3, 4], i64[3], 0.2, 0",
                "$[4], $[4], i64[]:bool, 0.1, 2", "$[3, 4], $[3, 4], $[4]",
                "i64[3, 4], i64[3, 4], i64[3]:bool, 0.2, 0"}};

Tensor pair_distance(Builder& b, Tensor x1, Tensor x2, double p, double eps) {
  return call(b, "aten.pairwise_distance", {x1, x2, p, eps, false});
}
// max(0, margin + |a - p| - |a - n|); with `swap` the negative is the nearer one of a and p
const OpDef kTripletMargin{
    .schema =
        "aten::triplet_margin_loss(Tensor anchor, Tensor positive, Tensor negative, float "
        "margin=1., float p=2., float eps=9.9999999999999995e-07, bool swap=False, int "
        "reduction=1) -> Tensor",
    .types = [](const Call& c) -> Types {
      int64_t rank = c.type("anchor").rank();
      if (c.type("positive").rank() != rank || c.type("negative").rank() != rank)
        c.fail("anchor, positive and negative must have the same number of dimensions");
      if (rank == 0) c.fail(c.describe("anchor") + " needs a dimension");
      for (std::string_view name : {"anchor", "positive", "negative"})
        if (c.type(name).dtype == DType::boolean) c.fail(c.describe(name) + " has no differences");
      if (!(c.floating("margin") > 0)) c.fail(c.describe("margin") + " must be positive");
      Sizes sizes = broadcast(c, c.type("anchor").sizes, c.type("positive").sizes);
      sizes = broadcast(c, sizes, c.type("negative").sizes);
      sizes.pop_back();
      Promotion promotion;
      for (std::string_view name : {"anchor", "positive", "negative"}) promotion.add(c.type(name));
      const DType dtype = part_type(to_float(promotion.result(c)));
      return {ir::Type::tensor(dtype, reduction_of(c) == kNone ? sizes : Sizes{})};
    },
    .decompose = [](Builder& b, const Call& c) -> Tensors {
      Tensor anchor = unrounded(b, c, "anchor");
      Tensor positive = unrounded(b, c, "positive");
      Tensor negative = unrounded(b, c, "negative");
      double p = c.floating("p");
      double eps = c.floating("eps");
      Tensor near = pair_distance(b, anchor, positive, p, eps);
      Tensor far = pair_distance(b, anchor, negative, p, eps);
      if (c.boolean("swap"))
        far = call(b, "aten.minimum", {far, pair_distance(b, positive, negative, p, eps)});
      return {reduced(c, at_least_zero(near - far + c.floating("margin")))};
    },
    .samples = {"$[3, 4], $[3, 4], $[3, 4]", "$[3, 4], $[3, 4], $[3, 4], 0.5, 1.0, 1e-6, true, 0",
                "$[4], $[4], $[4], 2.0, 2.0, 1e-6, false, 2", "$[3, 4], $[3, 4], $[4]",
                "i64[3, 4], i64[3, 4], i64[3, 4]"}};

// --- margins of classes
// ---------------------------------------------------------------------------

/// self as rows of classes; without a batch it is one row.
Tensor class_rows(Tensor x) { return x.rank() == 1 ? unsqueeze(x, 0) : x; }
Tensor target_rows(Tensor target) { return target.rank() == 0 ? unsqueeze(target, 0) : target; }

Sizes row_sizes(const Call& c) {
  const ir::Type& self = c.type("self");
  need_rank(c, "self", 1, 2);
  need_float(c, "self");
  if (self.sizes.back() == Expr(0)) c.fail(c.describe("self") + " has no classes");
  if (c.type("target").dtype != DType::i64) c.fail(c.describe("target") + " must have dtype i64");
  return {self.sizes.begin(), self.sizes.end() - 1};
}
void check_multi_margin(const Call& c) {
  Sizes rows = row_sizes(c);
  const Sizes& target = c.type("target").sizes;
  bool one = rows.empty() && (target.empty() || target == Sizes{1});
  if (!one && !same_sizes(rows, target))
    c.fail(c.describe("target") + " must have one class for each row of " + c.describe("self"));
  double p = c.floating("p");
  if (p != 1 && p != 2) c.fail(c.describe("p") + " must be 1 or 2");
  need_same_dtype(c, {"self", "weight", "grad_output"});
  if (c.has("weight") && !same_sizes(c.type("weight").sizes, {c.type("self").sizes.back()}))
    c.fail(c.describe("weight") + " must have one element for each class");
}
struct MultiMargin {
  Tensor over;    // max(0, margin - x[y] + x[i]), 0 at i = y; [n, classes]
  Tensor hit;     // i == y
  Tensor weight;  // of each row's class; [n, 1]
};
MultiMargin multi_margin(Builder& b, const Call& c) {
  Tensor x = class_rows(wide(b, c, "self"));
  Tensor y = unsqueeze(reshape(tensor(b, c, "target"), {x.size(0)}), 1);
  MultiMargin m;
  m.hit = eq(y, arange(b, x.size(1), DType::i64));
  Tensor own = call(b, "aten.gather", {x, 1, y});
  m.over = where(m.hit, 0.0, at_least_zero(x - own + c.floating("margin")));
  if (c.has("weight"))
    m.weight = unsqueeze(
        call(b, "aten.index_select", {wide(b, c, "weight"), 0, reshape(y, {x.size(0)})}), 1);
  return m;
}
// sum over i != y of weight[y] max(0, margin - x[y] + x[i])^p / classes
Tensors multi_margin_parts(Builder& b, const Call& c) {
  MultiMargin m = multi_margin(b, c);
  Tensor each = c.floating("p") == 2 ? m.over * m.over : m.over;
  if (m.weight) each = each * m.weight;
  Tensor rows = call(b, "aten.div.Scalar", {sum(each, {1}), each.size(1)});
  return {reduced(
      c, reshape(rows, Sizes(c.type("self").sizes.begin(), c.type("self").sizes.end() - 1)))};
}
Types multi_margin_types(const Call& c) {
  check_multi_margin(c);
  Sizes rows = row_sizes(c);
  return {ir::Type::tensor(c.type("self").dtype, reduction_of(c) == kNone ? rows : Sizes{})};
}
/// grad_output for each row, [n, 1].
Tensor row_gradient(Builder& b, const Call& c, Expr rows) {
  Tensor grad = wide(b, c, "grad_output");
  if (reduction_of(c) == kMean) grad = call(b, "aten.div.Scalar", {grad, rows});
  if (reduction_of(c) != kNone) return reshape(grad, {1, 1});
  return reshape(grad, {rows, 1});
}
void check_row_gradient(const Call& c, const Sizes& rows) {
  const ir::Type& grad = c.type("grad_output");
  bool fits = reduction_of(c) == kNone ? same_sizes(grad.sizes, rows) : grad.numel() == Expr(1);
  if (!fits) c.fail(c.describe("grad_output") + " does not fit the rows of " + c.describe("self"));
}
// dx[i] = p over[i]^(p - 1) weight / classes at i != y, and minus their sum at y
Tensors multi_margin_backward(Builder& b, const Call& c) {
  MultiMargin m = multi_margin(b, c);
  Tensor slope =
      c.floating("p") == 2 ? m.over * 2.0 : where(compare("gt", m.over, 0), ones_like(m.over), 0.0);
  if (m.weight) slope = slope * m.weight;
  slope = call(b, "aten.div.Scalar", {slope, slope.size(1)});
  slope = where(m.hit, -sum(slope, {1}, true), slope);
  Tensor grad = slope * row_gradient(b, c, slope.size(0));
  return {to(reshape(grad, c.type("self").sizes), c.type("self").dtype)};
}
const OpDef kMultiMargin{
    .schema =
        "aten::multi_margin_loss(Tensor self, Tensor target, Scalar p=1, Scalar margin=1, "
        "Tensor? weight=None, int reduction=1) -> Tensor",
    .types = multi_margin_types,
    .decompose = multi_margin_parts,
    .samples = {"$[3, 4], i64[3]:index(4)", "$[3, 4], i64[3]:index(4), 2, 0.5, $[4]:positive, 0",
                "$[4], i64[]:index(4), 1, 1, none, 2", "$[4], i64[1]:index(4)",
                "$[3, 4], i64[3]:index(4), 3", "$[3, 4], i64[2]:index(4)"},
    .can_fail = true};
const OpDef kMultiMarginBackward{
    .schema =
        "aten::multi_margin_loss_backward(Tensor grad_output, Tensor self, Tensor target, "
        "Scalar p, Scalar margin, Tensor? weight=None, int reduction=1) -> Tensor",
    .types = [](const Call& c) -> Types {
      check_multi_margin(c);
      check_row_gradient(c, row_sizes(c));
      return {ir::Type::tensor(c.type("self").dtype, c.type("self").sizes)};
    },
    .decompose = multi_margin_backward,
    .samples = {"$[], $[3, 4], i64[3]:index(4), 1, 1",
                "$[3], $[3, 4], i64[3]:index(4), 2, 0.5, $[4]:positive, 0",
                "$[], $[4], i64[]:index(4), 2, 1, none, 2"},
    .can_fail = true};

// --- several classes a row
// ------------------------------------------------------------------------
// A row of `target` lists classes up to the first -1.

struct MultiLabel {
  Tensor x;          // [n, classes]
  Tensor listed;     // [n, j]: target j counts
  Tensor classes;    // [n, j]: it, or 0
  Tensor is_target;  // [n, classes] as 0 and 1
};
MultiLabel multi_label(Builder& b, const Call& c) {
  MultiLabel m;
  m.x = class_rows(wide(b, c, "self"));
  Tensor target = class_rows(target_rows(tensor(b, c, "target")));
  Tensor ends = to(compare("lt", target, 0), DType::i64);
  m.listed = compare("eq", call(b, "aten.cumsum", {ends, 1}), 0);
  m.classes = target * to(m.listed, DType::i64);
  Tensor same = eq(unsqueeze(m.classes, 2), arange(b, m.x.size(1), DType::i64));
  Tensor counted = call(b, "aten.logical_and", {same, unsqueeze(m.listed, 2)});
  m.is_target = amax(to(counted, DType::i64), {1});
  return m;
}
/// max(0, 1 - (x[classes j] - x[i])) where j is listed and i is no target; [n, j, i].
Tensor label_margins(const MultiLabel& m) {
  Builder& b = m.x.builder();
  Tensor own = unsqueeze(call(b, "aten.gather", {m.x, 1, m.classes}), 2);
  Tensor over = at_least_zero(1.0 - own + unsqueeze(m.x, 1));
  Tensor counts = call(b, "aten.logical_and",
                       {unsqueeze(m.listed, 2), unsqueeze(compare("lt", m.is_target, 0.5), 1)});
  return where(counts, over, 0.0);
}
Types multi_label_types(const Call& c) {
  Sizes rows = row_sizes(c);
  const ir::Type& self = c.type("self");
  if (!same_sizes(c.type("target").sizes, self.sizes))
    c.fail(c.describe("target") + " must have the sizes of " + c.describe("self"));
  return {ir::Type::tensor(self.dtype, reduction_of(c) == kNone ? rows : Sizes{}),
          ir::Type::tensor(self.dtype, self.sizes)};
}
Tensors multi_label_parts(Builder& b, const Call& c) {
  MultiLabel m = multi_label(b, c);
  Tensor rows = call(b, "aten.div.Scalar", {sum(label_margins(m), {1, 2}), m.x.size(1)});
  const Sizes& sizes = c.type("self").sizes;
  Tensors results{reduced(c, reshape(rows, Sizes(sizes.begin(), sizes.end() - 1)))};
  if (c.result_count() == 2)
    results.push_back(to(reshape(m.is_target, sizes), c.result(1)->type.dtype));
  return results;
}
// dx[i] = number of margins that i exceeds / classes; dx[class j] = minus those that exceed it
Tensors multi_label_backward(Builder& b, const Call& c) {
  MultiLabel m = multi_label(b, c);
  m.is_target = class_rows(wide(b, c, "is_target"));
  Tensor margins = label_margins(m);
  Tensor exceeded = to(compare("gt", margins, 0), m.x.dtype());
  Tensor grad =
      call(b, "aten.scatter_add", {sum(exceeded, {1}), 1, m.classes, -sum(exceeded, {2})});
  grad = call(b, "aten.div.Scalar", {grad, m.x.size(1)}) * row_gradient(b, c, m.x.size(0));
  return {to(reshape(grad, c.type("self").sizes), c.type("self").dtype)};
}
const OpDef kMultiLabel{
    .schema = "aten::multilabel_margin_loss(Tensor self, Tensor target, int reduction=1) -> Tensor",
    .types = [](const Call& c) -> Types { return {multi_label_types(c)[0]}; },
    .decompose = multi_label_parts,
    .samples = {"$[3, 4], i64[3, 4]:index(4)", "$[4], i64[4]:index(4), 2",
                "$[3, 4], i64[3, 4]:index(4), 0", "$[3, 4], i64[3]:index(4)"},
    .can_fail = true};
const OpDef kMultiLabelForward{
    .schema =
        "aten::multilabel_margin_loss_forward(Tensor self, Tensor target, int reduction) -> "
        "(Tensor output, Tensor is_target)",
    .types = multi_label_types,
    .decompose = multi_label_parts,
    .samples = {"$[3, 4], i64[3, 4]:index(4), 1", "$[4], i64[4]:index(4), 0"},
    .can_fail = true};
const OpDef kMultiLabelBackward{
    .schema =
        "aten::multilabel_margin_loss_backward(Tensor grad_output, Tensor self, Tensor "
        "target, int reduction, Tensor is_target) -> Tensor",
    .types = [](const Call& c) -> Types {
      multi_label_types(c);
      check_row_gradient(c, row_sizes(c));
      need_same_dtype(c, {"grad_output", "self", "is_target"});
      if (!same_sizes(c.type("is_target").sizes, c.type("self").sizes))
        c.fail(c.describe("is_target") + " must have the sizes of " + c.describe("self"));
      return {c.type("self")};
    },
    .decompose = multi_label_backward,
    .samples = {"$[], $[2, 3], i64[2, 3]:index(1), 1, $[2, 3]:bool"},
    .can_fail = true};

const OpDef* const kOps[] = {

    &kSoftMargin,      &kSoftMarginBackward, &kMarginRanking,     &kHingeEmbedding,
    &kCosineEmbedding, &kTripletMargin,      &kMultiMargin,       &kMultiMarginBackward,
    &kMultiLabel,      &kMultiLabelForward,  &kMultiLabelBackward};

}  // namespace

Family margin_loss_family() { return kOps; }

}  // namespace tandem::ops
