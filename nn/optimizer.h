// Optimizers as traced functions: they write the update of every parameter into the training graph.
#pragma once

#include <string>
#include <vector>

#include "nn/module.h"

namespace tandem::nn {

/// A parameter in the training graph with its gradient and the optimizer's state for it.
struct Update {
  Tensor parameter;
  Tensor gradient;
  Tensors state;  // one per name in Optimizer::state_names, same sizes as the parameter
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  /// State kept for each parameter, zero at the start: "exp_avg".
  virtual std::vector<std::string> state_names() const = 0;
  /// New parameter, then new state. `rate` is the learning rate (f32, 0-d), `step` the number of
  /// this step from 1 (f64, 0-d).
  virtual Tensors apply(const Update& update, Tensor rate, Tensor step) const = 0;

  double learning_rate = 1e-3;
  /// Gradients are scaled so that their common 2-norm is at most this; 0 for no limit.
  double clip_norm = 0;
};

/// p -= rate * v, v = momentum v + (g + decay p).
class Sgd final : public Optimizer {
 public:
  explicit Sgd(double rate, double momentum = 0, double weight_decay = 0);
  std::vector<std::string> state_names() const override;
  Tensors apply(const Update& update, Tensor rate, Tensor step) const override;

 private:
  double momentum_;
  double weight_decay_;
};

/// Kingma and Ba, "Adam", 2015; decoupled decay as in Loshchilov and Hutter, 2019.
class Adam final : public Optimizer {
 public:
  struct Rates {
    double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, weight_decay = 0;
    bool decoupled = false;  // AdamW
  };
  Adam(double rate, Rates rates);
  std::vector<std::string> state_names() const override { return {"exp_avg", "exp_avg_sq"}; }
  Tensors apply(const Update& update, Tensor rate, Tensor step) const override;

 private:
  Rates rates_;
};

inline Adam adamw(double rate, double weight_decay = 0.01, double beta1 = 0.9,
                  double beta2 = 0.999) {
  return Adam(rate, {beta1, beta2, 1e-8, weight_decay, true});
}

/// Scales gradients so that the 2-norm of all together is at most `limit`, as clip_grad_norm_ does.
void clip_by_norm(std::vector<Update>& updates, double limit);

}  // namespace tandem::nn
