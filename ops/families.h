// The families of ops/, each a file of one of its folders, and the names that all of them use. A
// new family is a line here and one in families.cc.
#pragma once

#include <initializer_list>
#include <span>
#include <vector>

#include "ops/opdef.h"

namespace tandem::ops {

// The words that op files are written in.
using ir::Builder;
using ir::Call;
using ir::Sizes;
using loop::Opcode;
using sym::Expr;
using Grads = std::span<const Tensor>;

/// Of an op that is constant piece by piece, or keeps nothing of its operands: the result has a
/// history as in eager, and the gradient is 0.
Gradients zero_gradient(ir::Builder& b, const ir::Call& c, Grads g);

/// The ops of a table and others, as a family lists them.
std::vector<const OpDef*> listed(std::span<const OpDef> table,
                                 std::initializer_list<const OpDef*> others = {});

Family pointwise_family();
Family compare_family();
Family view_family();
Family slice_family();
Family copy_family();
Family host_family();
Family control_family();
Family custom_gradient_family();
Family reduce_family();
Family matmul_family();
Family factory_family();
Family random_family();
Family activation_family();
Family clamp_family();
Family prod_family();
Family extrema_family();
Family truth_family();
Family cumsum_family();
Family moments_family();
Family vector_norm_family();
Family softmax_family();
Family loss_family();
Family divergence_family();
Family margin_loss_family();
Family weight_norm_family();
Family norm_family();
Family batch_norm_family();
Family index_family();
Family index_tensor_family();
Family pool_family();
Family adaptive_pool_family();
Family fold_family();
Family grid_sample_family();
Family convolution_family();
Family convolution_forms_family();
Family resample_family();
Family upsample_family();
Family edge_pad_family();
Family attention_family();
Family embedding_bag_family();
Family recurrent_family();
Family encoder_layer_family();
Family shape_family();
Family composite_view_family();
Family numpy_like_family();
Family bessel_family();
Family empty_family();
Family patterns_family();
Family diagonal_family();
Family join_family();
Family conversion_family();
Family scan_family();
Family index_write_family();
Family data_sized_family();
Family search_family();
Family sort_family();
Family quantile_family();
Family reduce_composite_family();
Family distance_family();
Family vectors_family();
Family contraction_family();
Family chain_family();
Family fourier_family();
Family cross_family();
Family solve_family();
Family einsum_family();
Family histogram_family();
Family grouped_product_family();
Family packed_family();
Family packed_depthwise_family();
Family winograd_family();
Family group_sums_family();
Family random_ops_family();
Family dropout_family();
Family transcendental_family();
Family parts_family();
Family complex_numbers_family();
Family division_family();
Family bitwise_family();
Family pairs_family();
Family blend_family();
Family asserts_family();
Family numbers_family();
Family bits_family();
Family foreach_family();
Family shrink_family();
Family gate_family();
Family gradient_family();
Family per_tensor_family();
Family per_channel_family();
Family int_mm_family();
Family moving_average_family();
Family blocks_family();
Family float8_family();
Family weight_only_family();
Family choose_qparams_family();
Family fake_quantize_family();

}  // namespace tandem::ops
