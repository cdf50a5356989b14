// Updates in the order of operations of torch.optim, so that runs can be compared step by step.
// Bias corrections are computed in f64: 1 - beta^t loses half its digits in f32 for small t.
#include "nn/optimizer.h"

#include <cmath>

namespace tandem::nn {

using ops::call;
using ops::to;

Sgd::Sgd(double rate, double momentum, double weight_decay)
    : momentum_(momentum), weight_decay_(weight_decay) {
  learning_rate = rate;
}

std::vector<std::string> Sgd::state_names() const {
  return momentum_ == 0 ? std::vector<std::string>{} : std::vector<std::string>{"momentum"};
}

// torch starts v at the first gradient; from v = 0 momentum v + g gives the same.
Tensors Sgd::apply(const Update& update, Tensor rate, Tensor) const {
  Tensor g = update.gradient;
  if (weight_decay_ != 0) g = g + update.parameter * weight_decay_;
  if (momentum_ == 0) return {update.parameter - g * rate};
  Tensor velocity = update.state[0] * momentum_ + g;
  return {update.parameter - velocity * rate, velocity};
}

Adam::Adam(double rate, Rates rates) : rates_(rates) { learning_rate = rate; }

// m = b1 m + (1-b1) g; v = b2 v + (1-b2) g^2; p -= rate/(1-b1^t) * m / (sqrt(v)/sqrt(1-b2^t) + eps)
Tensors Adam::apply(const Update& update, Tensor rate, Tensor step) const {
  Tensor p = update.parameter;
  Tensor g = update.gradient;
  if (rates_.weight_decay != 0 && rates_.decoupled) p = p * (1.0 - rate * rates_.weight_decay);
  if (rates_.weight_decay != 0 && !rates_.decoupled) g = g + p * rates_.weight_decay;
  Tensor m = update.state[0] + (g - update.state[0]) * (1 - rates_.beta1);
  Tensor v = update.state[1] * rates_.beta2 + (g * g) * (1 - rates_.beta2);
  auto correction = [&](double beta) { return 1.0 - ops::exp(step * std::log(beta)); };
  Tensor size = rate / to(correction(rates_.beta1), DType::f32);
  Tensor root = to(ops::sqrt(correction(rates_.beta2)), DType::f32);
  Tensor denominator = ops::sqrt(v) / root + rates_.epsilon;
  return {p - (m / denominator) * size, m, v};
}

void clip_by_norm(std::vector<Update>& updates, double limit) {
  Tensor total;
  for (const Update& update : updates) {
    Tensor square = ops::sum_all(update.gradient * update.gradient);
    total = total ? total + square : square;
  }
  if (!total) return;
  Tensor factor = call(total.builder(), "aten.clamp",
                       {limit / (ops::sqrt(total) + 1e-6), ir::Arg(ir::None{}), 1.0});
  for (Update& update : updates) update.gradient = update.gradient * factor;
}

}  // namespace tandem::nn
