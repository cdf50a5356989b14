// The network, and its batches. Small shifts of the images are the only augmentation: 1438 images
// are few, and a digit one pixel further is the same digit.
#include "examples/digits_net.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "frontend/npz.h"

namespace tandem::examples {
namespace {

using frontend::TensorData;

template <class T>
std::vector<T> values(const frontend::TensorFile& file, const std::string& name, DType dtype) {
  const TensorData& data = file.at(name);
  if (data.dtype != dtype)
    throw UserError(fmt::format("{}: '{}' is {}, {} is expected", file.path(), name,
                                frontend::describe(data.dtype, data.sizes), name_of(dtype)));
  std::vector<T> result(data.bytes.size() / sizeof(T));
  if (!result.empty()) std::memcpy(result.data(), data.bytes.data(), data.bytes.size());
  return result;
}

void check_range(const std::string& path, const std::string& name,
                 const std::vector<int64_t>& numbers, int64_t end) {
  for (const int64_t number : numbers)
    if (number < 0 || number >= end)
      throw UserError(fmt::format("{}: '{}' has {}, outside [0, {})", path, name, number, end));
}

/// The image moved right by dx and down by dy.
void copy_moved(const float* from, float* to, int64_t dx, int64_t dy) {
  constexpr int64_t kSide = Digits::kSide;
  for (int64_t y = 0; y < kSide; ++y)
    for (int64_t x = 0; x < kSide; ++x) {
      const int64_t sx = x - dx;
      const int64_t sy = y - dy;
      const bool inside = sx >= 0 && sx < kSide && sy >= 0 && sy < kSide;
      to[y * kSide + x] = inside ? from[sy * kSide + sx] : 0;
    }
}

nn::Conv2d::Shape three_by_three(int64_t in, int64_t out) {
  return {.in = in, .out = out, .kernel = 3, .padding = 1, .bias = false};
}

/// Right answers in one batch of logits [batch, 10], of which the first `count` rows are meant.
int64_t right_answers(const Array& logits, const Digits& digits, std::span<const int64_t> indices,
                      size_t count) {
  int64_t right = 0;
  for (size_t i = 0; i < count; ++i) {
    const float* row = logits.data<float>() + i * 10;
    const int64_t best = std::max_element(row, row + 10) - row;
    right += best == digits.labels[static_cast<size_t>(indices[i])] ? 1 : 0;
  }
  return right;
}

}  // namespace

Digits load_digits(const std::string& path) {
  const frontend::TensorFile file = frontend::read_npz(path);
  Digits digits;
  digits.images = values<float>(file, "images", DType::f32);
  digits.labels = values<int64_t>(file, "labels", DType::i64);
  digits.train = values<int64_t>(file, "train", DType::i64);
  digits.test = values<int64_t>(file, "test", DType::i64);
  const int64_t count = static_cast<int64_t>(digits.labels.size());
  if (static_cast<int64_t>(digits.images.size()) != count * Digits::kPixels)
    throw UserError(
        fmt::format("{}: images of 8 x 8 pixels and as many labels are expected", path));
  check_range(path, "labels", digits.labels, 10);
  check_range(path, "train", digits.train, count);
  check_range(path, "test", digits.test, count);
  return digits;
}

DigitsNet::DigitsNet(int64_t channels)
    : features_(2 * channels * (Digits::kSide / 4) * (Digits::kSide / 4)),
      conv1_(*this, "conv1", three_by_three(1, channels)),
      norm1_(*this, "norm1", channels),
      conv2_(*this, "conv2", three_by_three(channels, channels)),
      norm2_(*this, "norm2", channels),
      conv3_(*this, "conv3", three_by_three(channels, 2 * channels)),
      norm3_(*this, "norm3", 2 * channels),
      fc_(*this, "fc", features_, 10) {}

nn::Tensor DigitsNet::logits(nn::Trace& trace, nn::Tensor images) const {
  nn::Tensor x = nn::relu(norm1_.forward(trace, conv1_.forward(trace, images)));
  x = nn::relu(norm2_.forward(trace, conv2_.forward(trace, x)));
  x = nn::max_pool2d(x, 2);
  x = nn::relu(norm3_.forward(trace, conv3_.forward(trace, x)));
  x = nn::max_pool2d(x, 2);
  return fc_.forward(trace, ops::reshape(x, {images.size(0), features_}));
}

nn::Tensor DigitsNet::loss(nn::Trace& trace, nn::Tensor images, nn::Tensor labels) const {
  return nn::cross_entropy(logits(trace, images), labels);
}

Array image_batch(const Digits& digits, std::span<const int64_t> indices, int64_t shift,
                  std::mt19937_64& random) {
  const std::vector<int64_t> sizes{static_cast<int64_t>(indices.size()), 1, Digits::kSide,
                                   Digits::kSide};
  Array images = Array::empty(DType::f32, sizes);
  float* to = images.data<float>();
  std::uniform_int_distribution<int64_t> draw(-shift, shift);
  for (const int64_t index : indices) {
    const int64_t dx = draw(random);
    copy_moved(digits.images.data() + index * Digits::kPixels, to, dx, draw(random));
    to += Digits::kPixels;
  }
  return images;
}

Array label_batch(const Digits& digits, std::span<const int64_t> indices) {
  const std::vector<int64_t> sizes{static_cast<int64_t>(indices.size())};
  Array labels = Array::empty(DType::i64, sizes);
  std::transform(indices.begin(), indices.end(), labels.data<int64_t>(),
                 [&](int64_t index) { return digits.labels[static_cast<size_t>(index)]; });
  return labels;
}

double accuracy(BoundProgram& logits, const Digits& digits, int64_t images) {
  const size_t batch = static_cast<size_t>(images);
  std::mt19937_64 unused;
  int64_t right = 0;
  for (size_t begin = 0; begin < digits.test.size(); begin += batch) {
    std::vector<int64_t> indices(batch, digits.test[begin]);
    const size_t count = std::min(batch, digits.test.size() - begin);
    std::copy_n(digits.test.begin() + static_cast<int64_t>(begin), count, indices.begin());
    const std::vector<Array> inputs{image_batch(digits, indices, 0, unused)};
    const Array scores = std::get<Array>(logits.run(inputs)[0]).contiguous();
    right += right_answers(scores, digits, indices, count);
  }
  return 100.0 * static_cast<double>(right) / static_cast<double>(digits.test.size());
}

}  // namespace tandem::examples
