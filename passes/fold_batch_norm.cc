// In inference a batch norm behind a convolution is a scale and a shift of its channels, and both
// can be taken into the convolution's weights:
//   y = (conv(x, w) + b - mean) * s + beta,  s = gamma / sqrt(var + eps)
//     = conv(x, w * s) + (b - mean) * s + beta
// That is a gain only where all but x are known before the first call: then the new weights are
// computed once (passes/setup.cc). Sums round elsewhere than eager's, so it is done for f32 and f64
// only, where that is a matter of the last bits; 16-bit weights would be rounded once more.
#include <fmt/format.h>

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

constexpr std::string_view kNorm = "aten::_native_batch_norm_legit_no_training";

/// Empty when the norm may go into the convolution before it.
std::string why_not(const Node& norm, const KnownValues& known) {
  ir::Call call = norm.call();
  const Value* input = call.value("input");
  if (input->node == nullptr || input->node->op->schema.name != "aten::convolution")
    return "no convolution makes its input";
  if (input->uses.size() > 1) return "the convolution's result has other readers";
  for (size_t i = 1; i < norm.results.size(); ++i)
    if (!norm.results[i]->uses.empty()) return "its statistics are read";
  DType dtype = input->type.dtype;
  if (dtype != DType::f32 && dtype != DType::f64) return "folded weights would be rounded";
  ir::Call convolution = input->node->call();
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

void fold(ir::Graph& graph, Node& norm) {
  ir::Call call = norm.call();
  Node& convolution = *call.value("input")->node;
  ir::Builder builder(graph, &norm);
  builder.stamp() = ir::Builder::stamp_of(norm);
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
  Node* folded = builder.call(*convolution.op, std::move(args));
  graph.replace_all_uses(norm.results[0], folded->results[0]);
  graph.erase(&norm);
  graph.erase(&convolution);
}

}  // namespace

void fold_batch_norm(ir::Graph& graph, GraphCtx& ctx) {
  if (!has_constants(graph)) return;
  KnownValues known(graph);
  for (Node* node = graph.first(); node != nullptr;) {
    Node* next = node->next;
    if (node->op->schema.name == kNorm) {
      std::string reason = why_not(*node, known);
      if (!reason.empty())
        ctx.notes.push_back(
            fmt::format("fold_batch_norm: {} stays: {}", ir::to_string(*node), reason));
      else
        fold(graph, *node);
    }
    node = next;
  }
}

}  // namespace tandem::passes
