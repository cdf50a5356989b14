// Layers are the ATen calls that PyTorch's make, so that a model written here and there gives equal
// graphs.
#include "nn/layers.h"

#include <cmath>

namespace tandem::nn {
namespace {

/// PyTorch's default for weights of n inputs: uniform in +-1/sqrt(n).
Init fan_in(int64_t n) { return Init::uniform(1 / std::sqrt(static_cast<double>(n))); }

std::unique_ptr<Parameter> optional_bias(Module& owner, bool present, int64_t size, Init init) {
  return present ? std::make_unique<Parameter>(owner, "bias", std::vector<int64_t>{size}, init)
                 : nullptr;
}

Tensor optional(Trace& trace, const std::unique_ptr<Parameter>& parameter) {
  return parameter == nullptr ? Tensor() : trace(*parameter);
}

}  // namespace

Linear::Linear(Module& parent, std::string name, int64_t in, int64_t out, bool bias)
    : Module(parent, std::move(name)),
      weight_(*this, "weight", {out, in}, fan_in(in)),
      bias_(optional_bias(*this, bias, out, fan_in(in))) {}

Linear::Linear(Module& parent, std::string name, int64_t in, int64_t out, bool bias,
               double deviation)
    : Module(parent, std::move(name)),
      weight_(*this, "weight", {out, in}, Init::normal(deviation)),
      bias_(optional_bias(*this, bias, out, Init::zeros())) {}

Tensor Linear::forward(Trace& trace, Tensor x) const {
  return ops::call(trace.builder(), "aten.linear", {x, trace(weight_), optional(trace, bias_)});
}

Embedding::Embedding(Module& parent, std::string name, int64_t count, int64_t width,
                     double deviation)
    : Module(parent, std::move(name)),
      weight_(*this, "weight", {count, width}, Init::normal(deviation)) {}

Tensor Embedding::forward(Trace& trace, Tensor indices) const {
  return ops::call(trace.builder(), "aten.embedding", {trace(weight_), indices});
}

LayerNorm::LayerNorm(Module& parent, std::string name, int64_t width, double epsilon)
    : Module(parent, std::move(name)),
      width_(width),
      epsilon_(epsilon),
      weight_(*this, "weight", {width}, Init::ones()),
      bias_(*this, "bias", {width}, Init::zeros()) {}

Tensor LayerNorm::forward(Trace& trace, Tensor x) const {
  return ops::call(trace.builder(), "aten.layer_norm",
                   {x, std::vector<int64_t>{width_}, trace(weight_), trace(bias_), epsilon_});
}

Conv2d::Conv2d(Module& parent, std::string name, Shape shape)
    : Module(parent, std::move(name)),
      shape_(shape),
      weight_(*this, "weight", {shape.out, shape.in / shape.groups, shape.kernel, shape.kernel},
              fan_in(shape.in / shape.groups * shape.kernel * shape.kernel)),
      bias_(optional_bias(*this, shape.bias, shape.out,
                          fan_in(shape.in / shape.groups * shape.kernel * shape.kernel))) {}

Tensor Conv2d::forward(Trace& trace, Tensor x) const {
  auto both = [](int64_t n) { return std::vector<int64_t>{n, n}; };
  return ops::call(trace.builder(), "aten.conv2d",
                   {x, trace(weight_), optional(trace, bias_), both(shape_.stride),
                    both(shape_.padding), both(shape_.dilation), shape_.groups});
}

BatchNorm2d::BatchNorm2d(Module& parent, std::string name, int64_t channels, double momentum,
                         double epsilon)
    : Module(parent, std::move(name)),
      momentum_(momentum),
      epsilon_(epsilon),
      weight_(*this, "weight", {channels}, Init::ones()),
      bias_(*this, "bias", {channels}, Init::zeros()),
      running_mean_(*this, "running_mean", {channels}, Init::zeros(), DType::f32, false),
      running_var_(*this, "running_var", {channels}, Init::ones(), DType::f32, false) {}

Tensor BatchNorm2d::forward(Trace& trace, Tensor x) const {
  return ops::call(trace.builder(), "aten.batch_norm",
                   {x, trace(weight_), trace(bias_), trace(running_mean_), trace(running_var_),
                    trace.training(), momentum_, epsilon_, false});
}

CausalSelfAttention::CausalSelfAttention(Module& parent, std::string name, int64_t width,
                                         int64_t heads, double dropout, double deviation_in,
                                         double deviation_out)
    : Module(parent, std::move(name)),
      heads_(heads),
      dropout_(dropout),
      project_in_(*this, "project_in", width, 3 * width, true, deviation_in),
      project_out_(*this, "project_out", width, width, true, deviation_out) {}

Tensor CausalSelfAttention::forward(Trace& trace, Tensor x) const {
  sym::Expr batch = x.size(0);
  sym::Expr length = x.size(1);
  sym::Expr width = x.size(2);
  sym::Expr head = sym::floor_div(width, heads_);
  Tensor qkv = project_in_.forward(trace, x);
  // [batch, length, 3, heads, head] and each part as [batch, heads, length, head]: views only.
  qkv = ops::reshape(qkv, {batch, length, 3, heads_, head});
  auto part = [&](int64_t which) { return ops::transpose(ops::select(qkv, 2, which), 1, 2); };
  Tensor mixed =
      ops::call(trace.builder(), "aten.scaled_dot_product_attention",
                {part(0), part(1), part(2), Tensor(), trace.training() ? dropout_ : 0.0, true});
  mixed = ops::reshape(ops::transpose(mixed, 1, 2), {batch, length, width});
  return project_out_.forward(trace, mixed);
}

Tensor dropout(Trace& trace, Tensor x, double p) {
  return p == 0 || !trace.training() ? x : ops::call(trace.builder(), "aten.dropout", {x, p, true});
}

Tensor relu(Tensor x) { return ops::call(x.builder(), "aten.relu", {x}); }

Tensor gelu(Tensor x, bool tanh_form) {
  return ops::call(x.builder(), "aten.gelu", {x, tanh_form ? "tanh" : "none"});
}

Tensor max_pool2d(Tensor x, int64_t kernel) {
  return ops::call(x.builder(), "aten.max_pool2d", {x, std::vector<int64_t>{kernel, kernel}});
}

Tensor cross_entropy(Tensor logits, Tensor targets) {
  return ops::call(logits.builder(), "aten.cross_entropy_loss", {logits, targets});
}

Tensor mse_loss(Tensor input, Tensor target) {
  return ops::call(input.builder(), "aten.mse_loss", {input, target});
}

}  // namespace tandem::nn
