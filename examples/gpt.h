// A small GPT: token and position embeddings, pre-norm blocks of causal attention and a GELU
// network, tied to no data. The benchmarks build the same model in PyTorch.
#pragma once

#include <memory>
#include <vector>

#include <tandem/tandem.h>

namespace tandem::examples {

struct GptConfig {
  int64_t vocabulary = 128;
  int64_t context = 128;
  int64_t width = 128;
  int64_t heads = 4;
  int64_t layers = 4;
  double dropout = 0.1;
};

class GptBlock : public nn::Module {
 public:
  GptBlock(nn::Module& parent, std::string name, const GptConfig& config);
  nn::Tensor forward(nn::Trace& trace, nn::Tensor x) const;

 private:
  double dropout_;
  nn::LayerNorm norm1_;
  nn::CausalSelfAttention attention_;
  nn::LayerNorm norm2_;
  nn::Linear up_;
  nn::Linear down_;
};

class Gpt : public nn::Module {
 public:
  explicit Gpt(const GptConfig& config);
  /// tokens i64 [batch, context] to f32 [batch * context, vocabulary].
  nn::Tensor logits(nn::Trace& trace, nn::Tensor tokens) const;
  /// Mean cross entropy in nats a token.
  nn::Tensor loss(nn::Trace& trace, nn::Tensor tokens, nn::Tensor targets) const;

 private:
  GptConfig config_;
  nn::Embedding token_;
  nn::Embedding position_;
  std::vector<std::unique_ptr<GptBlock>> blocks_;
  nn::LayerNorm norm_;
  nn::Linear head_;
};

/// i64 [rows, columns].
Array token_array(const std::vector<int64_t>& values, int64_t rows, int64_t columns);

}  // namespace tandem::examples
