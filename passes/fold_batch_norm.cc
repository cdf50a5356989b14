// In inference a batch norm behind a convolution is a scale and a shift of its channels, and both
// can be taken into the convolution's weights:
//   y = (conv(x, w) + b - mean) * s + beta,  s = gamma / sqrt(var + eps)
//     = conv(x, w * s) + (b - mean) * s + beta
// That is a gain only where all but x are known before the first call: then the new weights are
// computed once (passes/setup.cc). Sums round elsewhere than eager's, so it is done for f32 and f64
// only, where that is a matter of the last bits; 16-bit weights would be rounded once more.
#include <fmt/format.h>

#include "ir/rewrite.h"
#include "ir/text.h"
#include "ops/opdef.h"
#include "ops/tensor.h"
#include "passes/known.h"
#include "passes/passes.h"

namespace tandem::passes {
namespace {

using ir::Node;
using ir::Value;
using ops::Tensor;

ir::Pattern norm_of_convolution() {
  ir::Pattern convolution = ir::any_call({"aten::convolution"})
                                .named("convolution")
                                .or_else("no convolution makes its input")
                                .read_once("the convolution's result has other readers");
  return ir::call("aten::_native_batch_norm_legit_no_training", {std::move(convolution)})
      .whatever_else();
}

/// Empty when the norm may go into the convolution before it.
std::string why_not(const ir::Match& match, const KnownValues& known) {
  const Node& norm = match.root();
  for (size_t i = 1; i < norm.results.size(); ++i)
    if (!norm.results[i]->uses.empty()) return "its statistics are read";
  const DType dtype = norm.results[0]->type.dtype;
  if (dtype != DType::f32 && dtype != DType::f64) return "folded weights would be rounded";
  const ir::Call call = norm.call();
  const ir::Call convolution = match.node("convolution").call();
  std::vector<std::pair<std::string, const Value*>> factors;
  for (std::string_view name : {"weight", "bias"})
    if (convolution.has(name))
      factors.emplace_back(fmt::format("the convolution's {}", name), convolution.value(name));
  for (std::string_view name : {"weight", "bias", "running_mean", "running_var"})
    if (call.has(name)) factors.emplace_back(name, call.value(name));
  for (const std::pair<std::string, const Value*>& factor : factors) {
    if (!known.has(factor.second)) return factor.first + " is no constant";
    if (factor.second->type.dtype != dtype) return factor.first + " has another type";
  }
  return "";
}

/// Per channel of the result, to scale [o, c, kernel…].
Tensor by_output(Tensor scale, const Tensor& weight) {
  ir::Sizes sizes(weight.sizes().size(), sym::Expr(1));
  sizes[0] = weight.sizes()[0];
  return ops::reshape(scale, sizes);
}

Value* folded(ir::Builder& builder, const ir::Match& match) {
  const ir::Call call = match.root().call();
  const Node& convolution = match.node("convolution");
  auto tensor = [&](const ir::Call& of, std::string_view name) {
    return of.has(name) ? Tensor{builder, of.value(name)} : Tensor();
  };
  Tensor scale = ops::rsqrt(tensor(call, "running_var") + call.floating("eps"));
  if (Tensor gamma = tensor(call, "weight")) scale = gamma * scale;
  Tensor mean = tensor(call, "running_mean");
  Tensor bias = tensor(convolution.call(), "bias");
  Tensor shift = (bias ? bias - mean : -mean) * scale;
  if (Tensor beta = tensor(call, "bias")) shift = shift + beta;
  Tensor weight = tensor(convolution.call(), "weight");
  std::vector<ir::Arg> args = convolution.args;
  args[1] = (weight * by_output(scale, weight)).value();
  args[2] = shift.value();
  return builder.call(*convolution.op, std::move(args))->results[0];
}

}  // namespace

void fold_batch_norm(ir::Graph& graph, GraphCtx& ctx) {
  if (!has_constants(graph)) return;
  const KnownValues known(graph);
  const ir::Rewriter rewriter({{norm_of_convolution(), folded,
                                [&](const ir::Match& match) { return why_not(match, known); }}});
  rewriter.run(graph, {.declined = [&](const Node& norm, const std::string& reason) {
                 ctx.notes.push_back(
                     fmt::format("fold_batch_norm: {} stays: {}", ir::to_string(norm), reason));
               }});
}

}  // namespace tandem::passes
