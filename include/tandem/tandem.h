// Tandem's C++ API. Trace a model, compile it, run or train it:
//
//   struct Net : tandem::nn::Module {
//     tandem::nn::Linear fc{*this, "fc", 784, 10};
//   } net;
//   tandem::State state = tandem::State::initial(net, /*seed=*/1);
//   tandem::BoundProgram step = tandem::train_step(
//       [&](tandem::nn::Trace& trace, const tandem::nn::Tensors& in) -> tandem::nn::Tensors {
//         return {tandem::nn::cross_entropy(net.fc.forward(trace, in[0]), in[1])};
//       },
//       state, {{"images", tandem::DType::f32, {64, 784}}, {"labels", tandem::DType::i64, {64}}},
//       tandem::nn::adamw(1e-3));
//   step.run(arrays);  // returns the loss; parameters in `state` are updated in place
//
// Inference, with weights that stay as they are until `refresh`:
//
//   tandem::BoundProgram predict = tandem::compile_forward(
//       [&](tandem::nn::Trace& trace, const tandem::nn::Tensors& in) -> tandem::nn::Tensors {
//         return {net.fc.forward(trace, in[0])};
//       },
//       state, {{"images", tandem::DType::f32, {64, 784}}}, {.freeze = true});
//   predict.run(arrays);
#pragma once

#include "driver/api.h"
#include "nn/checkpoint.h"
#include "nn/control.h"
#include "nn/data_sizes.h"
#include "nn/layers.h"

namespace tandem {

using nn::checkpoint;
using nn::cond;
using nn::index;
using nn::item;
using nn::masked_select;
using nn::nonzero;
using nn::RecomputePolicy;
using nn::scan;
using nn::Scanned;
using nn::Unique;
using nn::unique;
using nn::while_loop;
using nn::with_memory_budget;
using runtime::Array;

}  // namespace tandem
