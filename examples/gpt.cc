// Weights start so that activations keep their size: deviation 1/sqrt(inputs), and what is added to
// the residual stream less by the square root of the number of additions. At this width GPT-2's
// 0.02 is so small that attention takes hundreds of steps to leave the average.
#include "examples/gpt.h"

#include <algorithm>
#include <cmath>

namespace tandem::examples {

namespace {

double deviation(int64_t inputs) { return 1 / std::sqrt(static_cast<double>(inputs)); }
double residual_deviation(int64_t inputs, const GptConfig& config) {
  return deviation(inputs) / std::sqrt(2.0 * static_cast<double>(config.layers));
}

}  // namespace

GptBlock::GptBlock(nn::Module& parent, std::string name, const GptConfig& config)
    : Module(parent, std::move(name)),
      dropout_(config.dropout),
      norm1_(*this, "norm1", config.width),
      attention_(*this, "attention", config.width, config.heads, config.dropout,
                 deviation(config.width), residual_deviation(config.width, config)),
      norm2_(*this, "norm2", config.width),
      up_(*this, "up", config.width, 4 * config.width, true, deviation(config.width)),
      down_(*this, "down", 4 * config.width, config.width, true,
            residual_deviation(4 * config.width, config)) {}

nn::Tensor GptBlock::forward(nn::Trace& trace, nn::Tensor x) const {
  x = x + nn::dropout(trace, attention_.forward(trace, norm1_.forward(trace, x)), dropout_);
  nn::Tensor hidden = nn::gelu(up_.forward(trace, norm2_.forward(trace, x)), true);
  return x + nn::dropout(trace, down_.forward(trace, hidden), dropout_);
}

Gpt::Gpt(const GptConfig& config)
    : config_(config),
      token_(*this, "token", config.vocabulary, config.width, 0.5),
      position_(*this, "position", config.context, config.width, 0.1),
      norm_(*this, "norm", config.width),
      head_(*this, "head", config.width, config.vocabulary, false, deviation(config.width)) {
  for (int64_t i = 0; i < config.layers; ++i)
    blocks_.push_back(std::make_unique<GptBlock>(*this, "blocks." + std::to_string(i), config));
}

nn::Tensor Gpt::logits(nn::Trace& trace, nn::Tensor tokens) const {
  nn::Tensor positions = ops::arange(trace.builder(), tokens.size(1), DType::i64);
  nn::Tensor x = token_.forward(trace, tokens) + position_.forward(trace, positions);
  x = nn::dropout(trace, x, config_.dropout);
  for (const std::unique_ptr<GptBlock>& block : blocks_) x = block->forward(trace, x);
  x = norm_.forward(trace, x);
  return head_.forward(trace, ops::reshape(x, {tokens.size(0) * tokens.size(1), config_.width}));
}

nn::Tensor Gpt::loss(nn::Trace& trace, nn::Tensor tokens, nn::Tensor targets) const {
  return nn::cross_entropy(logits(trace, tokens),
                           ops::reshape(targets, {targets.size(0) * targets.size(1)}));
}

Array token_array(const std::vector<int64_t>& values, int64_t rows, int64_t columns) {
  std::vector<int64_t> sizes{rows, columns};
  Array array = Array::empty(DType::i64, sizes);
  std::copy(values.begin(), values.end(), array.data<int64_t>());
  return array;
}

}  // namespace tandem::examples
