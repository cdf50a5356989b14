// Normalisations: mean, then squared distances, then the scaled result, in f32 with one rounding at
// the end. Over trailing dimensions forward and input gradient are one row kernel each. With xhat =
// (x - mean) rstd and gw = g weight, every one of them has the input gradient rstd (gw - mean(gw) -
// xhat mean(gw xhat)).
#include <cmath>
#include <limits>

#include "ops/elements.h"
#include "ops/families.h"

namespace tandem::ops {
namespace {

using Dims = std::vector<int64_t>;

Tensor widened(Tensor x) { return to(x, compute_type(x.dtype())); }
Tensor wide(Builder& b, const Call& c, std::string_view name) {
  return c.has(name) ? widened({b, c.value(name)}) : Tensor();
}
DType input_dtype(const Call& c) {
  DType dtype = c.type("input").dtype;
  need_float(c, "input");
  return dtype;
}
ir::Ints mask_of(const Call& c) {
  return {Expr(1), Expr(c.has("weight") ? 1 : 0),
          Expr(c.op().schema.find("bias") >= 0 && c.has("bias") ? 1 : 0)};
}

/// Statistics over `dims`, which are kept.
struct Statistics {
  Tensor mean;
  Tensor variance;  // biased
  Tensor centred;
};
Statistics statistics(Tensor x, const Dims& dims) {
  Statistics s;
  s.mean = mean(x, dims, true);
  s.centred = x - s.mean;
  s.variance = mean(s.centred * s.centred, dims, true);
  return s;
}
/// x weight + bias, either of which may be absent; both broadcast against x.
Tensor affine(Tensor x, Tensor weight, Tensor bias) {
  if (weight) x = x * weight;
  return bias ? x + bias : x;
}
/// rstd (gw - mean(gw) - xhat mean(gw xhat))
Tensor input_gradient(Tensor gw, Tensor xhat, Tensor rstd, const Dims& dims) {
  return (gw - mean(gw, dims, true) - xhat * mean(gw * xhat, dims, true)) * rstd;
}
/// What the gradients of the kept mean and rstd add: gmean / n - grstd rstd^2 xhat / n. Either may
/// be absent.
Tensor through_statistics(Tensor xhat, Tensor rstd, Tensor of_mean, Tensor of_rstd,
                          const Dims& dims) {
  Expr count = 1;
  for (int64_t dim : dims) count = count * xhat.size(dim);
  Tensor total;
  if (of_rstd) total = -(of_rstd * rstd * rstd * xhat);
  if (of_mean) total = total ? total + of_mean : expand(of_mean, xhat.sizes());
  return call(xhat.builder(), "aten.div.Scalar", {total, count});
}
/// Three results of a backward op, each rounded to its type, absent ones left out.
Tensors rounded(const Call& c, Tensors grads) {
  for (size_t i = 0; i < grads.size(); ++i)
    if (grads[i])
      grads[i] = to(reshape(grads[i], c.result(i)->type.sizes), c.result(i)->type.dtype);
  return grads;
}

// --- layer norm
// -----------------------------------------------------------------------------------

/// Trailing dimensions that `normalized_shape` names.
Dims normalised(const Call& c) {
  const Sizes& sizes = c.type("input").sizes;
  const ir::Ints& shape = c.ints("normalized_shape");
  bool fits = !shape.empty() && shape.size() <= sizes.size();
  Dims dims;
  for (size_t i = 0; fits && i < shape.size(); ++i) {
    size_t dim = sizes.size() - shape.size() + i;
    fits = sizes[dim] == shape[i] || sym::known_eq(sizes[dim], shape[i]);
    dims.push_back(static_cast<int64_t>(dim));
  }
  if (!fits)
    c.fail("normalized_shape " + ir::to_string(shape) + " is not the end of " +
           c.describe("input"));
  for (std::string_view name : {"weight", "bias"})
    if (c.op().schema.find(name) >= 0 && c.has(name) && c.type(name).sizes != shape)
      c.fail(c.describe(name) + " must have sizes " + ir::to_string(shape));
  return dims;
}
Dims leading(const Call& c) {
  Dims dims;
  int64_t count = c.type("input").rank() - static_cast<int64_t>(c.ints("normalized_shape").size());
  for (int64_t i = 0; i < count; ++i) dims.push_back(i);
  return dims;
}
/// Summed over the leading dimensions; there may be none.
Tensor summed(Tensor x, const Dims& dims) { return dims.empty() ? x : sum(x, dims); }

/// Statistics are kept in f32 where 16-bit inputs meet f32 parameters, else in the input's type, as
/// in eager.
Types layer_norm_types(const Call& c) {
  DType dtype = input_dtype(c);
  bool is_rms = c.op().schema.find("bias") < 0;  // which promotes, in eager too
  if (!is_rms) need_layer_dtype(c, {"weight", "bias"});
  Sizes row = c.type("input").sizes;
  for (int64_t dim : normalised(c)) row[dim] = 1;
  DType kept = dtype;
  for (std::string_view name : {"weight", "bias"})
    if (c.op().schema.find(name) >= 0 && c.has(name)) kept = promote(kept, c.type(name).dtype);
  return {ir::Type::tensor(dtype, c.type("input").sizes), ir::Type::tensor(kept, row),
          ir::Type::tensor(kept, row)};
}
Tensors layer_norm_parts(Builder& b, const Call& c) {
  Statistics s = statistics(wide(b, c, "input"), normalised(c));
  Tensor rstd = rsqrt(s.variance + c.floating("eps"));
  Tensor y = affine(s.centred * rstd, wide(b, c, "weight"), wide(b, c, "bias"));
  return rounded(c, {y, s.mean, rstd});
}
Tensor layer_statistics_gradient(Builder& b, const Call& c, Grads g) {
  Tensor rstd = widened({b, c.result(2)});
  Tensor xhat = (wide(b, c, "input") - widened({b, c.result(1)})) * rstd;
  const auto wider = [](Tensor x) { return x ? widened(x) : x; };
  Tensor grad = through_statistics(xhat, rstd, wider(g[1]), wider(g[2]), normalised(c));
  return to(grad, c.type("input").dtype);
}
/// A program that reads mean or rstd gets no gradient through them, as in eager; the gradient of a
/// gradient does, because the first one reads them.
Tensors without_history(Builder& b, const Call& c) {
  Tensors results = call_many(
      b, "aten.native_layer_norm",
      {c.arg("input"), c.arg("normalized_shape"), c.arg("weight"), c.arg("bias"), c.arg("eps")});
  for (size_t i = 1; i < 3; ++i) results[i] = call(b, "aten.detach", {results[i]});
  return results;
}
const Samples kLayerNormSamples = {
    "$[3, 4], [4], $[4], $[4], 1e-5",    "$[2, 3, 4], [3, 4], none, none, 1e-5",
    "$[5, 67], [67], $[67], none, 1e-3", "$[4, 3]{1, 4}, [3], $[3], $[3], 1e-5",
    "$[6], [6], $[6], $[6], 1e-5",       "$[0, 4], [4], $[4], $[4], 1e-5"};
const OpDef kNativeLayerNorm{
    .schema =
        "aten::native_layer_norm(Tensor input, SymInt[] normalized_shape, Tensor? weight, Tensor? "
        "bias, float "
        "eps) -> (Tensor, Tensor, Tensor)",
    .types = layer_norm_types,
    .decompose = layer_norm_parts,
    .vjp = [](Builder& b, const Call& c, Grads g) -> Gradients {
      Tensor of_statistics;
      if (g[1] || g[2]) of_statistics = layer_statistics_gradient(b, c, g);
      if (!g[0]) return {{"input", of_statistics}};
      Tensors grads =
          call_many(b, "aten.native_layer_norm_backward",
                    {g[0], c.arg("input"), c.arg("normalized_shape"), Tensor{b, c.result(1)},
                     Tensor{b, c.result(2)}, c.arg("weight"), c.arg("bias"), mask_of(c)});
      Gradients result{{"input", of_statistics ? grads[0] + of_statistics : grads[0]}};
      if (c.has("weight")) result.push_back({"weight", grads[1]});
      if (c.has("bias")) result.push_back({"bias", grads[2]});
      return result;
    },
    .functional = without_history,
    .samples = kLayerNormSamples};
const OpDef kNativeLayerNormBackward{
    .schema =
        "aten::native_layer_norm_backward(Tensor grad_out, Tensor input, SymInt[] "
        "normalized_shape, Tensor "
        "mean, Tensor rstd, Tensor? weight, Tensor? bias, bool[3] output_mask) -> (Tensor, Tensor, "
        "Tensor)",
    .types = [](const Call& c) -> Types {
      ir::Type input = ir::Type::tensor(input_dtype(c), c.type("input").sizes);
      DType dtype = c.has("weight") ? c.type("weight").dtype : input.dtype;
      ir::Type row = ir::Type::tensor(dtype, c.ints("normalized_shape"));
      return {input, row, row};
    },
    .decompose = [](Builder& b, const Call& c) -> Tensors {
      Tensor g = wide(b, c, "grad_out");
      Tensor rstd = wide(b, c, "rstd");
      Tensor xhat = (wide(b, c, "input") - wide(b, c, "mean")) * rstd;
      Tensors grads(3);
      if (wants_output(c, 0))
        grads[0] =
            input_gradient(affine(g, wide(b, c, "weight"), Tensor()), xhat, rstd, normalised(c));
      if (wants_output(c, 1)) grads[1] = summed(g * xhat, leading(c));
      if (wants_output(c, 2)) grads[2] = summed(g, leading(c));
      for (size_t i = 0; i < 3; ++i)
        if (!grads[i]) grads[i] = full(b, c.result(i)->type.sizes, 0, c.result(i)->type.dtype);
      return rounded(c, grads);
    },
    .samples = {"f32[3, 4], f32[3, 4], [4], f32[3, 1], f32[3, 1]:positive, f32[4], f32[4], [true, "
                "true, true]"}};
const OpDef kLayerNorm{.schema =
                           "aten::layer_norm(Tensor input, SymInt[] normalized_shape, Tensor? "
                           "weight=None, Tensor? bias=None, "
                           "float eps=1.0000000000000001e-05, bool cudnn_enable=True) -> Tensor",
                       .types = [](const Call& c) -> Types { return {layer_norm_types(c)[0]}; },
                       .decompose = [](Builder& b, const Call& c) -> Tensors {
                         return {call_many(b, "aten.native_layer_norm",
                                           {c.arg("input"), c.arg("normalized_shape"),
                                            c.arg("weight"), c.arg("bias"), c.arg("eps")})[0]};
                       },
                       .samples = {"$[3, 4], [4], $[4], $[4]", "$[2, 3, 4], [3, 4]",
                                   "$[5, 67], [67], $[67], $[67], 1e-3"}};

// --- rms norm
// -------------------------------------------------------------------------------------

double rms_epsilon(const Call& c) {
  if (c.has("eps")) return c.floating("eps");
  return c.type("input").dtype == DType::f64 ? std::numeric_limits<double>::epsilon()
                                             : std::numeric_limits<float>::epsilon();
}
Types rms_types(const Call& c) {
  Types types = layer_norm_types(c);
  types[1].dtype = compute_type(types[0].dtype);
  return {types[0], types[1]};
}
const OpDef kFusedRmsNorm{
    .schema =
        "aten::_fused_rms_norm(Tensor input, int[] normalized_shape, Tensor? weight, float? eps) "
        "-> (Tensor, "
        "Tensor)",
    .types = rms_types,
    .decompose = [](Builder& b, const Call& c) -> Tensors {
      Tensor x = wide(b, c, "input");
      Tensor rstd = rsqrt(mean(x * x, normalised(c), true) + rms_epsilon(c));
      return rounded(c, {affine(x * rstd, wide(b, c, "weight"), Tensor()), rstd});
    },
    // rstd (gw - xhat mean(gw xhat)); weight: sum of g xhat
    .vjp = [](Builder& b, const Call& c, Grads g) -> Gradients {
      Tensor rstd{b, c.result(1)};
      Tensor xhat = wide(b, c, "input") * rstd;
      Tensor of_rstd;
      if (g[1]) of_rstd = through_statistics(xhat, rstd, Tensor(), g[1], normalised(c));
      if (!g[0]) return {{"input", of_rstd ? to(of_rstd, c.type("input").dtype) : of_rstd}};
      Tensor grad = widened(g[0]);
      Tensor gw = affine(grad, wide(b, c, "weight"), Tensor());
      Tensor dx = (gw - xhat * mean(gw * xhat, normalised(c), true)) * rstd;
      if (of_rstd) dx = dx + of_rstd;
      Gradients result{{"input", to(dx, c.type("input").dtype)}};
      if (c.has("weight"))
        result.push_back({"weight", to(summed(grad * xhat, leading(c)), c.type("weight").dtype)});
      return result;
    },
    .samples = {"f32[3, 4], [4], f32[4], 1e-5", "f32[2, 3, 4], [3, 4], none, 1e-6"}};
const OpDef kRmsNorm{
    .schema =
        "aten::rms_norm(Tensor input, SymInt[] normalized_shape, Tensor? weight=None, float? "
        "eps=None) -> "
        "Tensor",
    .types = [](const Call& c) -> Types { return {rms_types(c)[0]}; },
    .decompose = [](Builder& b, const Call& c) -> Tensors {
      return {
          call_many(b, "aten._fused_rms_norm",
                    {c.arg("input"), c.arg("normalized_shape"), c.arg("weight"), c.arg("eps")})[0]};
    },
    .samples = {"$[3, 4], [4], $[4], 1e-5", "$[3, 4], [4]", "$[2, 3, 67], [67], $[67], 1e-6"}};

// --- group norm
// -----------------------------------------------------------------------------------

/// input seen as [N, groups, channels of a group, rest]: statistics run over the last two.
Sizes grouped(const Call& c, Expr batch, Expr channels, Expr rest) {
  need_layer_dtype(c, {"weight", "bias"});
  int64_t groups = c.constant(c.op().schema.find("group") >= 0 ? "group" : "num_groups");
  if (groups <= 0 || !sym::known_divisible(channels, groups))
    c.fail("channels " + sym::to_string(channels) + " do not divide into " +
           std::to_string(groups) + " groups");
  return {batch, Expr(groups), sym::floor_div(channels, groups), rest};
}
Sizes grouped(const Call& c) {
  Expr elements = c.integer("N") * c.integer("C") * c.integer("HxW");
  for (std::string_view name : {"input", "grad_out"}) {
    if (c.op().schema.find(name) < 0) continue;
    if (!sym::known_eq(c.type(name).numel(), elements))
      c.fail(c.describe(name) + " does not have N * C * HxW = " + sym::to_string(elements) +
             " elements");
  }
  return grouped(c, c.integer("N"), c.integer("C"), c.integer("HxW"));
}
const Dims kWithinGroup = {2, 3};
/// A tensor of C elements against the grouped view.
Tensor by_channel(Tensor x, const Sizes& view) {
  return x ? reshape(x, {1, view[1], view[2], 1}) : x;
}

Tensor group_statistics_gradient(Builder& b, const Call& c, Grads g) {
  Sizes view = grouped(c);
  Sizes rows = {view[0], view[1], 1, 1};
  auto row = [&](Tensor x) { return x ? reshape(widened(x), rows) : x; };
  Tensor rstd = row({b, c.result(2)});
  Tensor xhat = (reshape(wide(b, c, "input"), view) - row({b, c.result(1)})) * rstd;
  Tensor grad = through_statistics(xhat, rstd, row(g[1]), row(g[2]), kWithinGroup);
  return to(reshape(grad, c.type("input").sizes), c.type("input").dtype);
}
const OpDef kNativeGroupNorm{
    .schema =
        "aten::native_group_norm(Tensor input, Tensor? weight, Tensor? bias, SymInt N, SymInt C, "
        "SymInt HxW, "
        "int group, float eps) -> (Tensor, Tensor, Tensor)",
    .types = [](const Call& c) -> Types {
      DType dtype = input_dtype(c);
      grouped(c);
      ir::Type row =
          ir::Type::tensor(c.has("weight") ? promote(dtype, c.type("weight").dtype) : dtype,
                           {c.integer("N"), c.integer("group")});
      return {ir::Type::tensor(dtype, c.type("input").sizes), row, row};
    },
    .decompose = [](Builder& b, const Call& c) -> Tensors {
      Sizes view = grouped(c);
      Statistics s = statistics(reshape(wide(b, c, "input"), view), kWithinGroup);
      Tensor rstd = rsqrt(s.variance + c.floating("eps"));
      Tensor y = affine(s.centred * rstd, by_channel(wide(b, c, "weight"), view),
                        by_channel(wide(b, c, "bias"), view));
      return rounded(c, {y, s.mean, rstd});
    },
    .vjp = [](Builder& b, const Call& c, Grads g) -> Gradients {
      Tensor of_statistics;
      if (g[1] || g[2]) of_statistics = group_statistics_gradient(b, c, g);
      if (!g[0]) return {{"input", of_statistics}};
      Tensors grads = call_many(
          b, "aten.native_group_norm_backward",
          {g[0], c.arg("input"), Tensor{b, c.result(1)}, Tensor{b, c.result(2)}, c.arg("weight"),
           c.arg("N"), c.arg("C"), c.arg("HxW"), c.arg("group"), mask_of(c)});
      Gradients result{{"input", of_statistics ? grads[0] + of_statistics : grads[0]}};
      if (c.has("weight")) result.push_back({"weight", grads[1]});
      if (c.has("bias")) result.push_back({"bias", grads[2]});
      return result;
    },
    .samples = {"$[2, 6, 5], $[6], $[6], 2, 6, 5, 3, 1e-5",
                "$[2, 4, 3, 2], none, none, 2, 4, 6, 2, 1e-5"}};
const OpDef kNativeGroupNormBackward{
    .schema =
        "aten::native_group_norm_backward(Tensor grad_out, Tensor input, Tensor mean, Tensor rstd, "
        "Tensor? "
        "weight, SymInt N, SymInt C, SymInt HxW, int group, bool[3] output_mask) -> (Tensor, "
        "Tensor, Tensor)",
    .types = [](const Call& c) -> Types {
      ir::Type input = ir::Type::tensor(input_dtype(c), c.type("input").sizes);
      grouped(c);
      ir::Type row = ir::Type::tensor(c.has("weight") ? c.type("weight").dtype : input.dtype,
                                      {c.integer("C")});
      return {input, row, row};
    },
    .decompose = [](Builder& b, const Call& c) -> Tensors {
      Sizes view = grouped(c);
      Sizes rows = {view[0], view[1], 1, 1};
      Tensor g = reshape(wide(b, c, "grad_out"), view);
      Tensor rstd = reshape(wide(b, c, "rstd"), rows);
      Tensor xhat = (reshape(wide(b, c, "input"), view) - reshape(wide(b, c, "mean"), rows)) * rstd;
      Tensor gw = affine(g, by_channel(wide(b, c, "weight"), view), Tensor());
      return rounded(
          c, {input_gradient(gw, xhat, rstd, kWithinGroup), sum(g * xhat, {0, 3}), sum(g, {0, 3})});
    },
    .samples = {"f32[2, 6, 5], f32[2, 6, 5], f32[2, 3], f32[2, 3]:positive, f32[6], 2, 6, 5, 3, "
                "[true, true, true]"}};
const OpDef kGroupNorm{
    .schema =
        "aten::group_norm(Tensor input, int num_groups, Tensor? weight=None, Tensor? bias=None, "
        "float "
        "eps=1.0000000000000001e-05, bool cudnn_enabled=True) -> Tensor",
    .types = [](const Call& c) -> Types {
      const Sizes& sizes = c.type("input").sizes;
      if (sizes.size() < 2) c.fail(c.describe("input") + " needs a batch and a channel dimension");
      grouped(c, sizes[0], sizes[1], 1);
      return {ir::Type::tensor(input_dtype(c), sizes)};
    },
    .decompose = [](Builder& b, const Call& c) -> Tensors {
      const Sizes& sizes = c.type("input").sizes;
      Expr rest = sym::product(std::span(sizes).subspan(2));
      return {call_many(b, "aten.native_group_norm",
                        {c.arg("input"), c.arg("weight"), c.arg("bias"), sizes[0], sizes[1], rest,
                         c.arg("num_groups"), c.arg("eps")})[0]};
    },
    .samples = {"$[2, 6, 5], 3, $[6], $[6]", "$[2, 4, 3, 2], 2", "$[2, 4], 2, $[4]"}};

const OpDef* const kOps[] = {
    &kNativeLayerNorm, &kNativeLayerNormBackward, &kLayerNorm, &kFusedRmsNorm, &kRmsNorm,
    &kNativeGroupNorm, &kNativeGroupNormBackward, &kGroupNorm};

}  // namespace

Family norm_family() { return kOps; }

}  // namespace tandem::ops
