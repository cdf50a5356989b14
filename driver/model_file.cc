// Files are mapped, and weights are windows on the mapping: what is not read takes no memory. (Only
// what a zip archive aligns badly is copied, a whole array at once: frontend/tensor_file.h.)
// Batches are copies, one at a time, because a model may write its inputs.
#include "driver/model_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>

#include "base/diagnostic.h"
#include "frontend/npz.h"
#include "frontend/safetensors.h"

namespace tandem::driver {
namespace {

using frontend::TensorData;
using frontend::TensorFile;
using runtime::Array;

/// Elements from `first` on, in the file's memory, which it keeps: nobody may write there.
Array window(const std::shared_ptr<const TensorFile>& file, const TensorData& tensor,
             const std::vector<int64_t>& sizes, int64_t first) {
  std::byte* data = const_cast<std::byte*>(tensor.bytes.data()) + first * size_of(tensor.dtype);
  return Array::borrow(data, tensor.dtype, sizes, runtime::contiguous_strides(sizes),
                       [file](void*) {});
}

Array copied(const Array& array) {
  Array copy = Array::zeros(array.dtype(), {array.sizes().begin(), array.sizes().end()});
  copy.copy_from(array);
  return copy;
}

bool is_weight(const ir::Value& input) {
  return input.role == ir::Role::parameter || input.role == ir::Role::buffer;
}

std::optional<std::vector<int64_t>> known_sizes(const ir::Type& type) {
  std::vector<int64_t> sizes;
  for (const sym::Expr& size : type.sizes) {
    if (!size.constant()) return std::nullopt;
    sizes.push_back(*size.constant());
  }
  return sizes;
}

std::string describe(const DataInput& input) {
  std::vector<std::string> sizes;
  for (const std::optional<int64_t>& size : input.sizes)
    sizes.push_back(size ? std::to_string(*size) : "any");
  return fmt::format("{}[{}]", name_of(input.dtype), fmt::join(sizes, ", "));
}

/// But for the number of rows.
bool fits(const DataInput& input, const TensorData& tensor) {
  if (tensor.dtype != input.dtype || tensor.sizes.size() != input.sizes.size()) return false;
  for (size_t i = 1; i < input.sizes.size(); ++i)
    if (input.sizes[i] && *input.sizes[i] != tensor.sizes[i]) return false;
  return true;
}

}  // namespace

std::shared_ptr<const TensorFile> read_tensor_file(const std::string& path) {
  if (path.ends_with(".safetensors"))
    return std::make_shared<const TensorFile>(frontend::read_safetensors(path));
  if (path.ends_with(".npz") || path.ends_with(".npy"))
    return std::make_shared<const TensorFile>(frontend::read_npz(path));
  throw UserError(fmt::format("{}: tensors are read from .safetensors, .npz and .npy", path));
}

std::string read_text(const std::string& path) {
  std::ostringstream text;
  if (path.empty() || path == "-") {
    text << std::cin.rdbuf();
    return text.str();
  }
  std::ifstream file(path, std::ios::binary);
  if (!file || std::filesystem::is_directory(path)) throw UserError("cannot read " + path);
  text << file.rdbuf();
  return text.str();
}

State weights_of(const ir::Graph& graph, const std::string& path) {
  const std::shared_ptr<const TensorFile> file = read_tensor_file(path);
  State state;
  Diagnostics problems;
  for (const ir::Value* input : graph.inputs()) {
    if (!is_weight(*input)) continue;
    const std::string& name = input->target.empty() ? input->name : input->target;
    const TensorData* found = file->find(name);
    if (found == nullptr) {
      problems.add(fmt::format("{}: '{}' is missing, of input %{}", path, name, input->name));
    } else if (found->dtype != input->type.dtype || known_sizes(input->type) != found->sizes) {
      problems.add(fmt::format("{}: '{}' is {}, input %{} is {}", path, name,
                               frontend::describe(found->dtype, found->sizes), input->name,
                               ir::to_string(input->type)));
    } else {
      state.set(input->name, window(file, *found, found->sizes, 0));
    }
  }
  problems.finish();
  return state;
}

std::vector<DataInput> data_inputs_of(const ir::Graph& graph) {
  std::vector<DataInput> inputs;
  for (const ir::Value* value : graph.inputs()) {
    if (is_weight(*value)) continue;
    if (!value->type.is_tensor())
      throw UserError(fmt::format("input %{} is {}: a file gives tensors", value->name,
                                  ir::to_string(value->type)));
    DataInput& input = inputs.emplace_back();
    input.name = value->name;
    input.dtype = value->type.dtype;
    for (const sym::Expr& size : value->type.sizes) input.sizes.push_back(size.constant());
    if (!input.sizes.empty()) input.least = std::max<int64_t>(value->type.sizes[0].range().lo, 1);
  }
  return inputs;
}

Batches::Batches(std::vector<std::string> paths, std::vector<DataInput> inputs, int64_t rows)
    : paths_(std::move(paths)), inputs_(std::move(inputs)), rows_(rows) {
  for (const std::string& path : paths_) {
    const std::shared_ptr<const TensorFile> file = read_tensor_file(path);
    std::optional<int64_t> batches;
    for (const DataInput& input : inputs_) {
      const int64_t count = batches_in(*file, input);
      if (batches && *batches != count)
        throw UserError(fmt::format("{}: '{}' has {} batches, '{}' has {}", path,
                                    inputs_.front().name, *batches, input.name, count));
      batches = count;
    }
    batches_.push_back(batches.value_or(0));
    count_ += batches_.back();
    if (inputs_.empty() || inputs_[0].sizes.empty()) continue;
    const int64_t taken = batches_.back() * rows_of(inputs_[0]);
    left_out_ += std::max<int64_t>(file->at(inputs_[0].name).sizes[0] - taken, 0);
  }
  if (!paths_.empty() && count_ == 0)
    throw UserError(fmt::format("{}: no batch of the model's inputs", fmt::join(paths_, ", ")));
}

int64_t Batches::rows_of(const DataInput& input) const {
  return input.sizes[0].value_or(std::max(rows_, input.least));
}

int64_t Batches::batches_in(const TensorFile& file, const DataInput& input) const {
  const TensorData& tensor = file.at(input.name);
  if (!fits(input, tensor))
    throw UserError(fmt::format("{}: '{}' is {}, the model takes {}", file.path(), input.name,
                                frontend::describe(tensor.dtype, tensor.sizes), describe(input)));
  if (input.sizes.empty()) return 1;
  const int64_t rows = std::max<int64_t>(rows_of(input), 1);
  const int64_t rest = tensor.sizes[0] % rows;
  const bool takes_rest = !input.sizes[0] && rest >= input.least;
  return tensor.sizes[0] / rows + (takes_rest ? 1 : 0);
}

Array Batches::batch_of(const DataInput& input) const {
  const TensorData& tensor = file_->at(input.name);
  std::vector<int64_t> sizes = tensor.sizes;
  if (sizes.empty()) return copied(window(file_, tensor, sizes, 0));
  int64_t row = 1;
  for (size_t i = 1; i < sizes.size(); ++i) row *= sizes[i];
  const int64_t first = batch_ * rows_of(input);
  sizes[0] = std::min(rows_of(input), sizes[0] - first);
  return copied(window(file_, tensor, sizes, first * row));
}

std::optional<std::vector<Array>> Batches::next() {
  while (file_ == nullptr || batch_ == batches_[next_file_ - 1]) {
    file_ = nullptr;
    if (next_file_ == paths_.size()) return std::nullopt;
    file_ = read_tensor_file(paths_[next_file_++]);
    batch_ = 0;
  }
  std::vector<Array> arrays;
  for (const DataInput& input : inputs_) arrays.push_back(batch_of(input));
  ++batch_;
  return arrays;
}

}  // namespace tandem::driver
