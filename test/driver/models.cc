// Small models that the tests of the driver train, and their data.
#include "test/driver/models.h"

#include <algorithm>

namespace tandem::driver {

nn::Tensor TinyNet::logits(nn::Trace& trace, nn::Tensor tokens) const {
  return down_.forward(trace, ops::tanh(up_.forward(trace, table_.forward(trace, tokens))));
}

Array tokens(const std::vector<int64_t>& values) {
  const std::vector<int64_t> sizes{static_cast<int64_t>(values.size())};
  Array array = Array::empty(DType::i64, sizes);
  std::copy(values.begin(), values.end(), array.data<int64_t>());
  return array;
}

Array floats(const std::vector<float>& values, const std::vector<int64_t>& sizes) {
  Array array = Array::empty(DType::f32, sizes);
  std::copy(values.begin(), values.end(), array.data<float>());
  return array;
}

BoundProgram tiny_forward(const TinyNet& net, State& state, int64_t rows) {
  return compile_forward(
      [&](nn::Trace& trace, const nn::Tensors& in) {
        return nn::Tensors{net.logits(trace, in[0])};
      },
      state, {{"tokens", DType::i64, {rows}}});
}

BoundProgram tiny_step(const TinyNet& net, State& state, int64_t rows,
                       const nn::Optimizer& optimizer) {
  return train_step(
      [&](nn::Trace& trace, const nn::Tensors& in) {
        return nn::Tensors{nn::cross_entropy(net.logits(trace, in[0]), in[1])};
      },
      state, {{"tokens", DType::i64, {rows}}, {"targets", DType::i64, {rows}}}, optimizer);
}

std::string bytes_of(const Array& array) {
  const Array contiguous = array.contiguous();
  return {static_cast<const char*>(contiguous.raw()), static_cast<size_t>(contiguous.nbytes())};
}

std::map<std::string, std::string> bytes_of(const State& state) {
  std::map<std::string, std::string> bytes;
  for (const std::pair<const std::string, Array>& entry : state.arrays())
    bytes[entry.first] = bytes_of(entry.second);
  return bytes;
}

float scalar(const std::vector<runtime::Result>& results) {
  return *std::get<Array>(results.at(0)).data<float>();
}

std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace tandem::driver
