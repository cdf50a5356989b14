// The families of ops/, one file each, and the names that all of them use. A new family is a line
// here and one in families.cc.
#pragma once

#include "ops/opdef.h"

namespace tandem::ops {

// The words that op files are written in.
using ir::Builder;
using ir::Call;
using ir::Sizes;
using loop::Opcode;
using sym::Expr;
using Grads = std::span<const Tensor>;

Family pointwise_family();
Family compare_family();
Family view_family();
Family copy_family();
Family reduce_family();
Family matmul_family();
Family factory_family();
Family random_family();
Family activation_family();
Family clamp_family();
Family reduce_more_family();
Family softmax_family();
Family loss_family();
Family loss_more_family();
Family norm_more_family();
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

}  // namespace tandem::ops
