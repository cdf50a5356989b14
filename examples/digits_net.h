// A small convolutional network with batch norm, and the images of handwritten digits it learns.
#pragma once

#include <tandem/tandem.h>

#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <vector>

namespace tandem::examples {

/// scikit-learn's digits as scripts/export_digits.py writes them.
struct Digits {
  static constexpr int64_t kSide = 8;
  static constexpr int64_t kPixels = kSide * kSide;
  std::vector<float> images;    // [count, 1, 8, 8], in [0, 1]
  std::vector<int64_t> labels;  // [count], 0 to 9
  std::vector<int64_t> train;   // indices of images
  std::vector<int64_t> test;
};

/// UserError when the file cannot be read or holds something else.
Digits load_digits(const std::string& path);

/// Two 3x3 convolutions at full size, one at half size, each with batch norm and relu; pooled
/// twice; one linear layer.
class DigitsNet : public nn::Module {
 public:
  explicit DigitsNet(int64_t channels = 32);
  /// images f32 [n, 1, 8, 8] to f32 [n, 10].
  nn::Tensor logits(nn::Trace& trace, nn::Tensor images) const;
  /// Mean cross entropy.
  nn::Tensor loss(nn::Trace& trace, nn::Tensor images, nn::Tensor labels) const;

 private:
  int64_t features_;
  nn::Conv2d conv1_;
  nn::BatchNorm2d norm1_;
  nn::Conv2d conv2_;
  nn::BatchNorm2d norm2_;
  nn::Conv2d conv3_;
  nn::BatchNorm2d norm3_;
  nn::Linear fc_;
};

/// Images f32 [n, 1, 8, 8] of the given indices, each moved by (dx, dy) pixels drawn from
/// [-shift, shift]; what moves in is black.
Array image_batch(const Digits& digits, std::span<const int64_t> indices, int64_t shift,
                  std::mt19937_64& random);
/// Labels i64 [n] of the given indices.
Array label_batch(const Digits& digits, std::span<const int64_t> indices);

/// Percent of the test images, by a program of so many images a call. The last batch is filled up
/// with its first image.
double accuracy(BoundProgram& logits, const Digits& digits, int64_t images);

}  // namespace tandem::examples
