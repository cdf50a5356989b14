// A convolution network keeps its activations channels-last from the first convolution to the
// classifier, forward and backward: the library reorders its input images and nothing else.
#include <gtest/gtest.h>

#include <algorithm>

#include "test/driver/models.h"

namespace tandem::driver {
namespace {

constexpr int64_t kImages = 8;
constexpr int64_t kSide = 16;

/// Convolution, norm, relu and pool, twice, with a shortcut round the second; a classifier.
class ConvNet : public nn::Module {
 public:
  nn::Tensor loss(nn::Trace& trace, const nn::Tensors& in) const {
    nn::Tensor x = nn::relu(norm1_.forward(trace, conv1_.forward(trace, in[0])));
    x = nn::max_pool2d(x, 2);
    x = nn::relu(norm2_.forward(trace, conv2_.forward(trace, x)) + x);
    x = nn::max_pool2d(x, 2);
    x = ops::reshape(x, {kImages, 32 * (kSide / 4) * (kSide / 4)});
    return nn::cross_entropy(fc_.forward(trace, x), in[1]);
  }

 private:
  nn::Conv2d conv1_{*this, "conv1", {.in = 3, .out = 32, .kernel = 3, .padding = 1, .bias = false}};
  nn::BatchNorm2d norm1_{*this, "norm1", 32};
  nn::Conv2d conv2_{
      *this, "conv2", {.in = 32, .out = 32, .kernel = 3, .padding = 1, .bias = false}};
  nn::BatchNorm2d norm2_{*this, "norm2", 32};
  nn::Linear fc_{*this, "fc", 32 * (kSide / 4) * (kSide / 4), 10};
};

BoundProgram step_of(const ConvNet& net, State& state) {
  return train_step(
      [&](nn::Trace& trace, const nn::Tensors& in) { return nn::Tensors{net.loss(trace, in)}; },
      state,
      {{"images", DType::f32, {kImages, 3, kSide, kSide}}, {"labels", DType::i64, {kImages}}},
      nn::Sgd(0.1, 0.9));
}

std::vector<Array> batch() {
  std::vector<float> pixels(kImages * 3 * kSide * kSide);
  for (size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<float>(i * 37 % 101) / 101;
  return {floats(pixels, {kImages, 3, kSide, kSide}), tokens({0, 1, 2, 3, 4, 5, 6, 7})};
}

TEST(Layout, ATrainingStepReordersItsImagesAlone) {
  ConvNet net;
  State state = State::initial(net, 1);
  BoundProgram step = step_of(net, state);
  const std::vector<Array> data = batch();
  const float first = scalar(step.run(data));
  for (int i = 0; i < 20; ++i) step.run(data);
  EXPECT_LT(scalar(step.run(data)), 0.5F * first);
  const int64_t image_bytes = kImages * 3 * kSide * kSide * 4;
  int convolutions = 0;
  for (const runtime::LibraryCallReport& call : step.executable().loaded().library_calls()) {
    if (call.label.find("convolution") == std::string::npos) continue;
    // Those of the first convolution, forward and weight gradient, have the fewer channels.
    const bool reads_images = call.flops == 2 * kImages * 32 * 3 * 9 * kSide * kSide;
    EXPECT_EQ(call.staged_bytes, reads_images ? image_bytes : 0) << call.label;
    ++convolutions;
  }
  EXPECT_EQ(convolutions, 5);
}

}  // namespace
}  // namespace tandem::driver
