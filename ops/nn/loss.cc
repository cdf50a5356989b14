// Losses, by decomposition computed in f32 and rounded once. A class-index loss picks each row's
// element at a checked position, so with log_softmax it is one kernel that never writes the
// log-probabilities; its gradient compares every class with the target instead of scattering.
#include <fmt/format.h>

#include <cmath>

#include "ops/elements.h"
#include "ops/nn/loss.h"

namespace tandem::ops {

using namespace loss;  // NOLINT(google-build-using-namespace): what the losses' files share

namespace {

// --- distances
// ------------------------------------------------------------------------------------

Tensor distance(Builder& b, const Call& c) { return wide(b, c, "self") - wide(b, c, "target"); }

const Samples kPairs = {"$[3, 4], $[3, 4]", "$[3, 4], $[3, 4], 0", "$[3, 4], $[3, 4], 2",
                        "$[], $[]",         "$[0], $[0], 2",       "$[4, 3]{1, 4}, $[4, 3]",
                        "$[300], $[300]"};
const OpDef kMse{.schema = "aten::mse_loss(Tensor self, Tensor target, int reduction=1) -> Tensor",
                 .types = pair_types,
                 .decompose = [](Builder& b, const Call& c) -> Tensors {
                   Tensor d = distance(b, c);
                   return {reduced(c, d * d)};
                 },
                 .samples = kPairs};
const OpDef kL1{.schema = "aten::l1_loss(Tensor self, Tensor target, int reduction=1) -> Tensor",
                .types =
                    [](const Call& c) {
                      need_number(c, "self");
                      need_number(c, "target");
                      return pair_types(c);
                    },
                .decompose = [](Builder& b, const Call& c) -> Tensors {
                  return {reduced(c, abs(distance(b, c)))};
                },
                .samples = kPairs};
/// By the gradient op of the same name: through the decomposition the side that was not taken would
/// count 0 times infinity.
Gradients slope_vjp(Builder& b, const Call& c, Grads g, const char* op, const char* parameter) {
  const Sizes sizes = broadcast(c, c.type("self").sizes, c.type("target").sizes);
  const auto whole = [&](const char* name) {
    return expand(to(Tensor{b, c.value(name)}, g[0].dtype()), sizes);
  };
  Tensor slope =
      call(b, op, {g[0], whole("self"), whole("target"), c.arg("reduction"), c.arg(parameter)});
  return {{"self", sum_to(slope, c.type("self"))}, {"target", sum_to(-slope, c.type("target"))}};
}
const OpDef kSmoothL1{
    .schema =
        "aten::smooth_l1_loss(Tensor self, Tensor target, int reduction=1, float beta=1.) -> "
        "Tensor",
    .types =
        [](const Call& c) {
          if (!(c.floating("beta") >= 0)) c.fail(c.describe("beta") + " must not be negative");
          return pair_types(c);
        },
    .decompose = [](Builder& b, const Call& c) -> Tensors {
      Tensor d = abs(distance(b, c));
      double beta = c.floating("beta");
      if (beta == 0) return {reduced(c, d)};
      return {reduced(c, where(compare("lt", d, beta), d * d * (0.5 / beta), d - 0.5 * beta))};
    },
    .vjp = [](Builder& b, const Call& c,
              Grads g) { return slope_vjp(b, c, g, "aten.smooth_l1_loss_backward", "beta"); },
    .samples = {"$[3, 4], $[3, 4]", "$[3, 4], $[3, 4], 0, 0.5", "$[5], $[5], 2, 0.0"}};
const OpDef kHuber{
    .schema =
        "aten::huber_loss(Tensor self, Tensor target, int reduction=1, float delta=1.) -> Tensor",
    .types =
        [](const Call& c) {
          if (!(c.floating("delta") > 0)) c.fail(c.describe("delta") + " must be positive");
          need_float(c, "self");
          return pair_types(c);
        },
    .decompose = [](Builder& b, const Call& c) -> Tensors {
      Tensor d = abs(distance(b, c));
      double delta = c.floating("delta");
      return {reduced(c, where(compare("le", d, delta), d * d * 0.5, (d - 0.5 * delta) * delta))};
    },
    .vjp = [](Builder& b, const Call& c,
              Grads g) { return slope_vjp(b, c, g, "aten.huber_loss_backward", "delta"); },
    .samples = {"$[3, 4], $[3, 4]", "$[3, 4], $[3, 4], 0, 0.5"}};

// Their gradient ops: the slope of an element's distance, times what grad_output gives it.
Types slope_types(const Call& c) {
  need_same_dtype(c, {"grad_output", "self", "target"});
  need_float(c, "self");
  reduction_of(c);
  Sizes sizes = broadcast(c, c.type("self").sizes, c.type("target").sizes);
  return {ir::Type::tensor(c.type("self").dtype, broadcast(c, sizes, c.type("grad_output").sizes))};
}
Tensors sloped(Builder& b, const Call& c, Tensor slope) {
  Tensor grad = slope * wide(b, c, "grad_output");
  if (reduction_of(c) == kMean) grad = call(b, "aten.div.Scalar", {grad, c.type("self").numel()});
  return {to(grad, c.result()->type.dtype)};
}
const Samples kSlopes = {"$[], $[3, 4], $[3, 4], 1", "$[3, 4], $[3, 4], $[3, 4], 0",
                         "$[], $[3, 4], $[3, 4], 2", "$[0], $[0], $[0], 0",
                         "$[64], $[64]:special, $[64], 0"};
const OpDef kMseBackward{
    .schema =
        "aten::mse_loss_backward(Tensor grad_output, Tensor self, Tensor target, int "
        "reduction) -> Tensor",
    .types = slope_types,
    .decompose = [](Builder& b, const Call& c) { return sloped(b, c, distance(b, c) * 2); },
    .samples = kSlopes};
// d / beta within beta of 0, else its sign; NaN is neither and stays
const OpDef kSmoothL1Backward{
    .schema =
        "aten::smooth_l1_loss_backward(Tensor grad_output, Tensor self, Tensor target, int "
        "reduction, float beta) -> Tensor",
    .types = slope_types,
    .decompose = [](Builder& b, const Call& c) -> Tensors {
      Tensor d = distance(b, c);
      double beta = c.floating("beta");
      if (beta == 0) return sloped(b, c, sign(d));
      return sloped(b, c, where(compare("ge", abs(d), beta), sign(d), d / beta));
    },
    .samples = {"$[], $[3, 4], $[3, 4], 1, 1.0", "$[3, 4], $[3, 4], $[3, 4], 0, 0.5",
                "$[], $[5], $[5], 2, 0.0"}};
const OpDef kHuberBackward{
    .schema =
        "aten::huber_loss_backward(Tensor grad_output, Tensor self, Tensor target, int "
        "reduction, float delta) -> Tensor",
    .types = slope_types,
    .decompose = [](Builder& b, const Call& c) -> Tensors {
      Tensor d = distance(b, c);
      double delta = c.floating("delta");
      return sloped(b, c, where(compare("ge", abs(d), delta), sign(d) * delta, d));
    },
    .samples = {"$[], $[3, 4], $[3, 4], 1, 1.0", "$[3, 4], $[3, 4], $[3, 4], 0, 0.5"}};

// --- binary cross entropy
// -------------------------------------------------------------------------

Tensor weighted(Builder& b, const Call& c, Tensor loss) {
  return c.has("weight") ? loss * wide(b, c, "weight") : loss;
}
// (1 - y) x - w log_sigmoid(x), w = 1 + (pos_weight - 1) y
const OpDef kBceWithLogits{
    .schema =
        "aten::binary_cross_entropy_with_logits(Tensor self, Tensor target, Tensor? weight=None, "
        "Tensor? "
        "pos_weight=None, int reduction=1) -> Tensor",
    .types =
        [](const Call& c) {
          need_float(c, "self");
          need_float(c, "target");
          need_number(c, "pos_weight");
          Types types = pair_types(c);
          const Sizes& sizes = c.type("self").sizes;
          if (!same_sizes(broadcast(c, sizes, c.type("target").sizes), c.type("target").sizes))
            c.fail(c.describe("target") + " does not hold " + c.describe("self"));
          return types;
        },
    .decompose = [](Builder& b, const Call& c) -> Tensors {
      Tensor x = wide(b, c, "self");
      Tensor y = wide(b, c, "target");
      Tensor log_probability = call_many(b, "aten.log_sigmoid_forward", {x})[0];
      if (c.has("pos_weight"))
        log_probability = log_probability * (1.0 + (wide(b, c, "pos_weight") - 1) * y);
      return {reduced(c, weighted(b, c, (1.0 - y) * x - log_probability))};
    },
    .samples = {"$[3, 4], $[3, 4]:unit", "$[3, 4], $[3, 4]:unit, $[4]:positive, $[4]:positive, 0",
                "$[3, 4], $[3, 4]:unit, none, $[4]:positive, 2",
                "$[3, 4], $[3, 4]:unit, $[3, 1], none, 0",
                "$[64]:special, $[64]:unit, none, none, 0",
                "$[2, 3, 4], $[2, 3, 4]:unit, none, $[3, 1]:positive"}};

/// x where it is a probability; anything else fails.
const OpDef kProbability{
    .schema = "tandem::probability(Tensor self) -> Tensor",
    .types = unary_same,
    .lower =
        [](Lowering& lowering, const Call& c) {
          return map_definition(c, [&lowering, c](size_t, const Index& index) {
            Element x = operand(lowering, c, "self", index, compute_type(c.type("self").dtype));
            Element fits = both(x >= 0, x <= 1);
            int32_t error = lowering.error(
                "[aten::binary_cross_entropy] all elements of self should be between 0 and 1");
            return lowering.check(fits.value(), x.value(), error);
          });
        },
    .vjp = [](Builder&, const Call&, Grads g) -> Gradients { return {{"self", g[0]}}; },
    .samples = {"$[3, 4]:unit", "$[0]"},
    .can_fail = true};

Types probability_types(const Call& c) {
  need_float(c, "self");
  need_same_dtype(c, {"self", "target", "grad_output"});
  return pair_types(c);
}
// -(y max(log x, -100) + (1 - y) max(log(1 - x), -100))
const OpDef kBce{
    .schema =
        "aten::binary_cross_entropy(Tensor self, Tensor target, Tensor? weight=None, int "
        "reduction=1) -> Tensor",
    .types = probability_types,
    .decompose = [](Builder& b, const Call& c) -> Tensors {
      Tensor x = widened(call(b, "tandem.probability", {tensor(b, c, "self")}));
      Tensor y = wide(b, c, "target");
      Tensor log_no = call(b, "aten.clamp_min", {log1p(-x), -100});
      Tensor log_yes = call(b, "aten.clamp_min", {log(x), -100});
      return {reduced(c, weighted(b, c, (y - 1) * log_no - y * log_yes))};
    },
    .vjp = [](Builder& b, const Call& c, Grads g) -> Gradients {
      std::vector<Operand> args = {g[0], c.arg("self"), c.arg("target"), c.arg("weight"),
                                   c.arg("reduction")};
      Tensor x = wide(b, c, "self");
      Tensor scaled = reduction_of(c) == kMean
                          ? call(b, "aten.div.Scalar", {widened(g[0]), c.type("self").numel()})
                          : widened(g[0]);
      Tensor of_target = weighted(b, c, scaled * (log1p(-x) - log(x)));
      return {{"self", call(b, "aten.binary_cross_entropy_backward", args)},
              {"target", sum_to(of_target, c.type("target"))}};
    },
    .samples = {"$[3, 4]:unit, $[3, 4]:unit", "$[3, 4]:unit, $[3, 4]:unit, $[4]:positive, 0",
                "$[5]:unit, $[5]:unit, none, 2"}};
// (x - y) / max(x (1 - x), 1e-12)
const OpDef kBceBackward{
    .schema =
        "aten::binary_cross_entropy_backward(Tensor grad_output, Tensor self, Tensor target, "
        "Tensor? "
        "weight=None, int reduction=1) -> Tensor",
    .types = [](const Call& c) -> Types {
      probability_types(c);
      if (!same_sizes(c.type("self").sizes, c.type("target").sizes))
        c.fail(c.describe("self") + " and " + c.describe("target") + " differ in sizes");
      broadcast(c, c.type("self").sizes, c.type("grad_output").sizes);
      return {ir::Type::tensor(c.type("self").dtype, c.type("self").sizes)};
    },
    .decompose = [](Builder& b, const Call& c) -> Tensors {
      Tensor x = wide(b, c, "self");
      Tensor variance = call(b, "aten.clamp_min", {x * (1.0 - x), 1e-12});
      Tensor grad =
          weighted(b, c, wide(b, c, "grad_output") * ((x - wide(b, c, "target")) / variance));
      if (reduction_of(c) == kMean) grad = call(b, "aten.div.Scalar", {grad, x.type().numel()});
      return {to(grad, c.type("self").dtype)};
    },
    .samples = {"f32[], f32[3, 4]:unit, f32[3, 4]:unit",
                "f32[3], f32[3]:unit, f32[3]:unit, none, 0"}};

// --- class indices
// --------------------------------------------------------------------------------

int64_t class_dim(const ir::Type& type) { return type.rank() == 1 ? 0 : 1; }

/// self's element at class target, 0 where the target is ignored. Any other target outside the
/// classes fails.
Definition pick_lower(Lowering& lowering, const Call& c) {
  int64_t dim = class_dim(c.type("self"));
  return map_definition(c, [&lowering, c, dim](size_t, const Index& index) {
    loop::ScalarPool& pool = lowering.scalars();
    Expr classes = c.type("self").sizes[dim];
    Element target{pool, pool.cast(lowering.load(c.value("target"), index), DType::i64)};
    Element ignored = equal(target, {pool, lowering.scalar(c.arg("ignore_index"), DType::i64)});
    Element inside = both(target >= 0, target < Element{pool, pool.index(classes)});
    int32_t error =
        lowering.error("[aten::nll_loss] Target is out of bounds: a class must be in [0, " +
                       sym::to_string(classes) + ") or " + ir::to_string(c.arg("ignore_index")));
    loop::Val checked = lowering.check(either(inside, ignored).value(), target.value(), error);
    Element read = both(inside, ignored.apply(Opcode::logical_not));
    Index at = index;
    at.insert(at.begin() + dim, pool.as_index(checked, classes));
    return with_check(pool, lowering.load(c.value("self"), at, read.value()), checked);
  });
}
const OpDef kPickClass{
    .schema = "tandem::pick_class(Tensor self, Tensor target, SymInt ignore_index=-100) -> Tensor",
    .types = [](const Call& c) -> Types {
      const int64_t rank = c.type("self").rank();
      if (rank == 0) c.fail(c.describe("self") + " has no dimension of classes");
      need_rank(c, "target", rank - 1, rank - 1);
      return {ir::Type::tensor(c.type("self").dtype, c.type("target").sizes)};
    },
    .lower = pick_lower,
    .vjp = [](Builder& b, const Call& c, Grads g) -> Gradients {
      Tensor total = full(b, {}, 1, g[0].dtype());
      Operand none{ir::Arg(ir::None{})};
      Tensor minus = call(b, "aten.nll_loss_backward",
                          {g[0], tensor(b, c, "self"), tensor(b, c, "target"), none, int64_t{kNone},
                           c.arg("ignore_index"), total});
      return {{"self", -minus}};
    },
    .samples = {"f32[3, 4], i64[3]:index(4)", "f32[2, 4, 3], i64[2, 3]:index(4), 1",
                "f32[4], i64[]:index(4)"},
    .can_fail = true};

void check_class_weight(const Call& c) {
  const ir::Type& self = c.type("self");
  need_same_dtype(c, {"self", "weight"});
  if (!same_sizes(c.type("weight").sizes, {self.sizes[class_dim(self)]}))
    c.fail(fmt::format("{} must have one element for each class of {}", c.describe("weight"),
                       c.describe("self")));
}
Types nll_types(const Call& c) {
  const ir::Type& self = c.type("self");
  need_float(c, "self");
  if (self.rank() < 1) c.fail("self needs a dimension of classes");
  DType target = c.type("target").dtype;
  if (target != DType::i64 && target != DType::u8)
    c.fail(c.describe("target") + " must have dtype i64 or u8");
  if (c.has("weight")) check_class_weight(c);
  Sizes expected = self.sizes;
  expected.erase(expected.begin() + class_dim(self));
  if (!same_sizes(c.type("target").sizes, expected))
    c.fail(c.describe("self") + " needs a target of sizes " + ir::to_string(expected) + ", not " +
           c.describe("target"));
  ir::Type output = ir::Type::tensor(self.dtype, reduction_of(c) == kNone ? expected : Sizes{});
  return {output, ir::Type::tensor(self.dtype, {})};
}
Types nll_output_types(const Call& c) { return {nll_types(c)[0]}; }
Types nll_backward_types(const Call& c) {
  ir::Type output = nll_types(c)[0];
  need_same_dtype(c, {"self", "grad_output", "total_weight"});
  if (!same_sizes(c.type("grad_output").sizes, output.sizes))
    c.fail(c.describe("grad_output") + " must have sizes " + ir::to_string(output.sizes));
  if (c.type("total_weight").numel() != Expr(1))
    c.fail(c.describe("total_weight") + " must have one element");
  return {ir::Type::tensor(c.type("self").dtype, c.type("self").sizes)};
}
template <int64_t least, int64_t most>
Types nll_ranked(const Call& c) {
  need_rank(c, "self", least, most);
  return nll_output_types(c);
}

/// weight[c] seen as a tensor of self's sizes.
Tensor class_weights(Builder& b, const Call& c) {
  const ir::Type& self = c.type("self");
  Sizes row(self.sizes.size(), Expr(1));
  row[class_dim(self)] = self.sizes[class_dim(self)];
  return expand(reshape(wide(b, c, "weight"), row), self.sizes);
}
/// Weight of every row's target, 0 where it is ignored.
Tensor row_weights(Builder& b, const Call& c, DType dtype) {
  Tensor target = tensor(b, c, "target");
  if (c.has("weight"))
    return call(b, "tandem.pick_class", {class_weights(b, c), target, c.arg("ignore_index")});
  return to(call(b, "aten.ne.Scalar", {target, c.arg("ignore_index")}), dtype);
}
/// -sum(weight picked) / sum(weight)
Tensors nll_parts(Builder& b, const Call& c) {
  Tensor x = wide(b, c, "self");
  DType dtype = c.result()->type.dtype;
  Tensor weights = row_weights(b, c, x.dtype());
  Tensor picked = call(b, "tandem.pick_class", {x, tensor(b, c, "target"), c.arg("ignore_index")});
  Tensor losses = c.has("weight") ? -(picked * weights) : -picked;
  if (reduction_of(c) == kNone) return {to(losses, dtype), full(b, {}, 0, dtype)};
  Tensor total = sum_all(weights);
  Tensor loss = sum_all(losses);
  if (reduction_of(c) == kMean) loss = loss / total;
  return {to(loss, dtype), to(total, dtype)};
}
Gradients nll_vjp(Builder& b, const Call& c, Grads g) {
  if (!g[0]) return {};
  return {{"self", call(b, "aten.nll_loss_backward",
                        {g[0], c.arg("self"), c.arg("target"), c.arg("weight"), c.arg("reduction"),
                         c.arg("ignore_index"), Tensor{b, c.result(1)}})}};
}
// -weight[c] g (/ total) at the target's class, 0 elsewhere
Tensors nll_backward_parts(Builder& b, const Call& c) {
  const ir::Type& self = c.type("self");
  int64_t dim = class_dim(self);
  Tensor grad = wide(b, c, "grad_output");
  if (reduction_of(c) == kMean) grad = grad / wide(b, c, "total_weight");
  if (reduction_of(c) == kNone) grad = unsqueeze(grad, dim);
  Tensor target = to(unsqueeze(tensor(b, c, "target"), dim), DType::i64);
  Sizes row(self.sizes.size(), Expr(1));
  row[dim] = self.sizes[dim];
  Tensor hit = eq(target, reshape(arange(b, self.sizes[dim], DType::i64), row));
  Tensor kept = call(b, "aten.ne.Scalar", {target, c.arg("ignore_index")});
  Tensor value = -grad;
  if (c.has("weight")) value = value * class_weights(b, c);
  Tensor result = where(call(b, "aten.logical_and", {hit, kept}), value, 0.0);
  return {to(expand(result, self.sizes), self.dtype)};
}

#define TANDEM_NLL(Name, text, least_rank, most_rank)                                            \
  const OpDef Name{.schema =                                                                     \
                       "aten::" text                                                             \
                       "_forward(Tensor self, Tensor target, Tensor? weight, int reduction, "    \
                       "SymInt ignore_index) -> (Tensor output, Tensor total_weight)",           \
                   .types = nll_types,                                                           \
                   .decompose = nll_parts,                                                       \
                   .vjp = nll_vjp,                                                               \
                   .samples = Name##Samples};                                                    \
  const OpDef Name##Backward{                                                                    \
      .schema = "aten::" text                                                                    \
                "_backward(Tensor grad_output, Tensor self, Tensor target, Tensor? weight, int " \
                "reduction, SymInt ignore_index, Tensor total_weight) -> Tensor",                \
      .types = nll_backward_types,                                                               \
      .decompose = nll_backward_parts,                                                           \
      .samples = Name##BackwardSamples};                                                         \
  const OpDef Name##Composite {                                                                  \
    .schema = "aten::" text                                                                      \
              "(Tensor self, Tensor target, Tensor? weight=None, int reduction=1, SymInt "       \
              "ignore_index=-100) -> Tensor",                                                    \
    .types = nll_ranked<least_rank, most_rank>, .decompose = nll_composite,                      \
    .samples = Name##CompositeSamples                                                            \
  }

Tensors nll_composite(Builder& b, const Call& c) {
  return {call_many(b, "aten.nll_loss_forward",
                    {c.arg("self"), c.arg("target"), c.arg("weight"), c.arg("reduction"),
                     c.arg("ignore_index")})[0]};
}
const Samples kNllSamples = {
    "$[5, 4], i64[5]:index(4), none, 1, -100", "$[5, 4], i64[5]:index(4), none, 0, 2",
    "$[5, 4], i64[5]:index(4), $[4]:positive, 1, 1",
    "$[5, 4], i64[5]:index(4), $[4]:positive, 2, -100", "$[4], i64[]:index(4), none, 1, -100"};
const Samples kNllBackwardSamples = {
    "f32[], f32[5, 4], i64[5]:index(4), none, 1, -100, f32[]:positive",
    "f32[5], f32[5, 4], i64[5]:index(4), f32[4]:positive, 0, 2, f32[]"};
const Samples kNllCompositeSamples = {"$[5, 4], i64[5]:index(4)",
                                      "$[5, 4], i64[5]:index(4), $[4]:positive, 2, 3"};
const Samples kNll2dSamples = {"f32[2, 4, 3, 2], i64[2, 3, 2]:index(4), none, 1, -100",
                               "f32[2, 4, 3, 2], i64[2, 3, 2]:index(4), f32[4]:positive, 0, 1"};
const Samples kNll2dBackwardSamples = {
    "f32[], f32[2, 4, 3, 2], i64[2, 3, 2]:index(4), none, 1, -100, f32[]:positive"};
const Samples kNll2dCompositeSamples = {"f32[2, 4, 3, 2], i64[2, 3, 2]:index(4)"};
TANDEM_NLL(kNll, "nll_loss", 1, 2);
TANDEM_NLL(kNll2d, "nll_loss2d", 4, 4);
#undef TANDEM_NLL

const OpDef kNllNd{.schema =
                       "aten::nll_loss_nd(Tensor self, Tensor target, Tensor? weight=None, int "
                       "reduction=1, SymInt "
                       "ignore_index=-100) -> Tensor",
                   .types = nll_output_types,
                   .decompose = nll_composite,
                   .samples = {"$[5, 4], i64[5]:index(4)",
                               "f32[2, 4, 3], i64[2, 3]:index(4), f32[4]:positive, 1, 2"}};

// --- cross entropy
// --------------------------------------------------------------------------------

bool has_probabilities(const Call& c) { return is_float(c.type("target").dtype); }

/// Targets are probabilities: -sum over classes of weight target log p; the mean is over rows.
Tensor soft_cross_entropy(Builder& b, const Call& c, Tensor logs, double smoothing) {
  int64_t dim = class_dim(c.type("self"));
  Expr classes = logs.size(dim);
  Tensor target = wide(b, c, "target");
  if (smoothing > 0)
    target = target * (1 - smoothing) +
             call(b, "aten.div.Scalar", {full(b, {}, smoothing, target.dtype()), classes});
  Tensor product = logs * target;
  if (c.has("weight")) product = product * class_weights(b, c);
  Tensor losses = -sum(product, {dim});
  if (reduction_of(c) == kNone) return losses;
  Tensor total = sum_all(losses);
  if (reduction_of(c) == kSum) return total;
  return call(b, "aten.div.Scalar", {total, losses.type().numel()});
}
/// The part of label smoothing: every class of a row that is not ignored counts.
Tensor smoothed_loss(Builder& b, const Call& c, Tensor logs) {
  int64_t dim = class_dim(c.type("self"));
  Tensor all = sum(c.has("weight") ? logs * class_weights(b, c) : logs, {dim});
  Tensor kept = call(b, "aten.ne.Scalar", {tensor(b, c, "target"), c.arg("ignore_index")});
  Tensor losses = where(kept, -all, 0.0);
  if (reduction_of(c) == kNone) return losses;
  Tensor total = sum_all(losses);
  return reduction_of(c) == kSum ? total : total / sum_all(row_weights(b, c, logs.dtype()));
}
Tensors cross_entropy_parts(Builder& b, const Call& c) {
  double smoothing = c.floating("label_smoothing");
  DType dtype = c.result()->type.dtype;
  int64_t dim = class_dim(c.type("self"));
  Tensor logs = call(b, "aten._log_softmax", {wide(b, c, "self"), dim, false});
  if (has_probabilities(c)) return {to(soft_cross_entropy(b, c, logs, smoothing), dtype)};
  Tensor weight = c.has("weight") ? wide(b, c, "weight") : Tensor();
  Tensor loss =
      call_many(b, "aten.nll_loss_forward",
                {logs, c.arg("target"), weight, c.arg("reduction"), c.arg("ignore_index")})[0];
  if (smoothing > 0) {
    Tensor part =
        call(b, "aten.div.Scalar", {smoothed_loss(b, c, logs) * smoothing, logs.size(dim)});
    loss = loss * (1 - smoothing) + part;
  }
  return {to(loss, dtype)};
}
const OpDef kCrossEntropy{
    .schema =
        "aten::cross_entropy_loss(Tensor self, Tensor target, Tensor? weight=None, int "
        "reduction=1, SymInt "
        "ignore_index=-100, float label_smoothing=0.) -> Tensor",
    .types = [](const Call& c) -> Types {
      need_float(c, "self");
      double smoothing = c.floating("label_smoothing");
      if (!(smoothing >= 0 && smoothing <= 1)) c.fail("label_smoothing must be between 0 and 1");
      if (!has_probabilities(c)) return nll_output_types(c);
      Sizes sizes = c.type("self").sizes;
      if (!same_sizes(sizes, c.type("target").sizes))
        c.fail(c.describe("self") + " and " + c.describe("target") + " differ in sizes");
      if (sizes.empty()) c.fail("self needs a dimension of classes");
      if (sym::known_le(0, c.integer("ignore_index")))
        c.fail(c.describe("ignore_index") + " is for targets that are classes");
      if (c.has("weight")) check_class_weight(c);
      sizes.erase(sizes.begin() + class_dim(c.type("self")));
      return {ir::Type::tensor(c.type("self").dtype, reduction_of(c) == kNone ? sizes : Sizes{})};
    },
    .decompose = cross_entropy_parts,
    .samples = {
        "$[5, 4], i64[5]:index(4)", "$[5, 4], i64[5]:index(4), $[4]:positive, 1, 2",
        "$[5, 4], i64[5]:index(4), none, 0, 1, 0.1",
        "$[5, 4], i64[5]:index(4), $[4]:positive, 1, 2, 0.1",
        "$[5, 4], i64[5]:index(4), none, 2, -100, 0.2", "$[5, 4], $[5, 4]:unit",
        "$[5, 4], $[5, 4]:unit, $[4]:positive, 1, -100, 0.1", "$[2, 4, 3], i64[2, 3]:index(4)",
        "$[4], i64[]:index(4)", "f32[7, 300], i64[7]:index(300)",
        "$[2, 4, 3], $[2, 4, 3]:unit, $[4]:positive, 0, -100, 0.1", "$[4], $[4]:unit, none, 2",
        "$[2, 4, 3, 2], i64[2, 3, 2]:index(4), $[4]:positive, "
        "0, 1, 0.2",
        "$[5, 4], i64[5]:index(1), none, 1, 0", "$[5, 4], i64[5]:index(1), none, 2, 0, 0.1",
        "$[5, 4], i64[4]:index(4)", "$[0, 4], i64[0], none, 2"}};

const OpDef* const kOps[] = {&kMse,
                             &kL1,
                             &kSmoothL1,
                             &kHuber,
                             &kBceWithLogits,
                             &kProbability,
                             &kBce,
                             &kBceBackward,
                             &kPickClass,
                             &kNll,
                             &kNllBackward,
                             &kNllComposite,
                             &kNll2d,
                             &kNll2dBackward,
                             &kNll2dComposite,
                             &kNllNd,
                             &kCrossEntropy,
                             &kMseBackward,
                             &kSmoothL1Backward,
                             &kHuberBackward};

}  // namespace

Family loss_family() { return kOps; }

}  // namespace tandem::ops
