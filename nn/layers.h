// The usual layers. Initial values follow PyTorch's defaults unless a layer says otherwise.
#pragma once

#include <memory>
#include <string>

#include "nn/module.h"

namespace tandem::nn {

/// y = x W^T + b; x [..., in], W [out, in], b [out].
class Linear : public Module {
 public:
  Linear(Module& parent, std::string name, int64_t in, int64_t out, bool bias = true);
  /// With weights of the given standard deviation and zero bias.
  Linear(Module& parent, std::string name, int64_t in, int64_t out, bool bias, double deviation);
  Tensor forward(Trace& trace, Tensor x) const;

 private:
  Parameter weight_;
  std::unique_ptr<Parameter> bias_;
};

/// Rows of a table [count, width] picked by integers.
class Embedding : public Module {
 public:
  Embedding(Module& parent, std::string name, int64_t count, int64_t width, double deviation = 1);
  Tensor forward(Trace& trace, Tensor indices) const;
  const Parameter& weight() const { return weight_; }

 private:
  Parameter weight_;
};

/// Normalises the last dimension; weight and bias [width].
class LayerNorm : public Module {
 public:
  LayerNorm(Module& parent, std::string name, int64_t width, double epsilon = 1e-5);
  Tensor forward(Trace& trace, Tensor x) const;

 private:
  int64_t width_;
  double epsilon_;
  Parameter weight_;
  Parameter bias_;
};

/// x [n, in, h, w], weight [out, in / groups, k, k].
class Conv2d : public Module {
 public:
  struct Shape {
    int64_t in, out, kernel;
    int64_t stride = 1, padding = 0, dilation = 1, groups = 1;
    bool bias = true;
  };
  Conv2d(Module& parent, std::string name, Shape shape);
  Tensor forward(Trace& trace, Tensor x) const;

 private:
  Shape shape_;
  Parameter weight_;
  std::unique_ptr<Parameter> bias_;
};

/// Normalises each channel over batch and space; running statistics are buffers, updated in
/// training.
class BatchNorm2d : public Module {
 public:
  BatchNorm2d(Module& parent, std::string name, int64_t channels, double momentum = 0.1,
              double epsilon = 1e-5);
  Tensor forward(Trace& trace, Tensor x) const;

 private:
  double momentum_;
  double epsilon_;
  Parameter weight_;
  Parameter bias_;
  Parameter running_mean_;
  Parameter running_var_;
};

/// Causal self-attention of x [batch, length, width]: one projection to q, k, v, one back.
class CausalSelfAttention : public Module {
 public:
  CausalSelfAttention(Module& parent, std::string name, int64_t width, int64_t heads,
                      double dropout, double deviation_in, double deviation_out);
  Tensor forward(Trace& trace, Tensor x) const;

 private:
  int64_t heads_;
  double dropout_;
  Linear project_in_;
  Linear project_out_;
};

Tensor dropout(Trace& trace, Tensor x, double p);
Tensor relu(Tensor x);
Tensor gelu(Tensor x, bool tanh_form = false);
Tensor max_pool2d(Tensor x, int64_t kernel);

/// Mean over rows: logits [rows, classes], targets i64 [rows].
Tensor cross_entropy(Tensor logits, Tensor targets);
Tensor mse_loss(Tensor input, Tensor target);

}  // namespace tandem::nn
