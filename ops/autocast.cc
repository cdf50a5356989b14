// What automatic mixed precision casts on the CPU. PyTorch keeps this as one table beside the
// operators, and so do we: test/python/test_autocast.py compares it with torch's.
#include "ops/autocast.h"

#include <algorithm>
#include <array>

namespace tandem::ops {
namespace {

using Names = std::span<const std::string_view>;

// Products: much faster in 16 bits, and sums are f32 anyway.
constexpr std::array<std::string_view, 21> kLower = {
    "mm",
    "bmm",
    "addmm",
    "baddbmm",
    "addbmm",
    "matmul",
    "linear",
    "linalg_vecdot",
    "scaled_dot_product_attention",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv1d.padding",
    "conv2d.padding",
    "conv3d.padding",
    "conv_transpose1d",
    "conv_transpose2d.input",
    "conv_transpose3d.input",
    "_convolution.deprecated",
    "_native_multi_head_attention",
    "prelu",
};

// Made of products, which torch casts where it has come to them, so that these have no line in its
// table: all that is computed is in 16 bits.
constexpr std::array<std::string_view, 5> kOverProducts = {
    "lstm.input", "rnn_tanh.input", "rnn_relu.input", "rnn_tanh_cell", "rnn_relu_cell"};

// The same, of sums with a state, which keeps its type.
constexpr std::array<std::string_view, 3> kBesideState = {"gru.input", "gru_cell", "lstm_cell"};

// Losses and what loses digits.
constexpr std::array<std::string_view, 58> kFull = {"prod",
                                                    "quantile",
                                                    "nanquantile",
                                                    "quantile.scalar",
                                                    "nanquantile.scalar",
                                                    "prod.dim_int",
                                                    "mse_loss",
                                                    "l1_loss",
                                                    "smooth_l1_loss",
                                                    "huber_loss",
                                                    "binary_cross_entropy_with_logits",
                                                    "binary_cross_entropy",
                                                    "nll_loss",
                                                    "nll_loss2d",
                                                    "cross_entropy_loss",
                                                    "kl_div",
                                                    "poisson_nll_loss",
                                                    "soft_margin_loss",
                                                    "margin_ranking_loss",
                                                    "hinge_embedding_loss",
                                                    "cosine_embedding_loss",
                                                    "triplet_margin_loss",
                                                    "multi_margin_loss",
                                                    "multilabel_margin_loss",
                                                    "multilabel_margin_loss_forward",
                                                    "max_pool3d",
                                                    "avg_pool3d",
                                                    "adaptive_avg_pool3d",
                                                    "adaptive_max_pool3d",
                                                    "max_unpool2d",
                                                    "max_unpool3d",
                                                    "grid_sampler",
                                                    "grid_sampler_2d",
                                                    "grid_sampler_3d",
                                                    "reflection_pad1d",
                                                    "reflection_pad2d",
                                                    "replication_pad1d",
                                                    "replication_pad2d",
                                                    "replication_pad3d",
                                                    "trace",
                                                    "cdist",
                                                    "fake_quantize_per_tensor_affine",
                                                    "view_as_complex",
                                                    "polar",
                                                    "fft_fft",
                                                    "fft_ifft",
                                                    "fft_fft2",
                                                    "fft_ifft2",
                                                    "fft_fftn",
                                                    "fft_ifftn",
                                                    "fft_rfft",
                                                    "fft_irfft",
                                                    "fft_rfft2",
                                                    "fft_irfft2",
                                                    "fft_rfftn",
                                                    "fft_irfftn",
                                                    "fft_hfft",
                                                    "fft_ihfft"};

// Operands of one call get the widest of their types.
constexpr std::array<std::string_view, 3> kPromote = {"cat", "stack", "index_copy"};

bool has(Names names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

ir::Autocast autocast_of(const ir::Schema& schema) {
  std::string name = schema.dotted_name();
  constexpr std::string_view kPrefix = "aten.";
  if (name.compare(0, kPrefix.size(), kPrefix) != 0) return ir::Autocast::none;
  name.erase(0, kPrefix.size());
  if (has(kLower, name) || has(kOverProducts, name)) return ir::Autocast::lower;
  if (has(kBesideState, name)) return ir::Autocast::lower_factors;
  if (has(kFull, name)) return ir::Autocast::full;
  return has(kPromote, name) ? ir::Autocast::promote : ir::Autocast::none;
}

}  // namespace tandem::ops
