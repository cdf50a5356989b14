// Parameters to and from safetensors. Loading checks everything before it changes anything: a file
// that is cut off, or of another model, leaves the state as it was.
#include <fmt/format.h>

#include <cstring>

#include "base/diagnostic.h"
#include "driver/state.h"
#include "frontend/safetensors.h"

namespace tandem {

using frontend::TensorData;
using runtime::Array;

void State::save(const std::string& path) const {
  std::vector<Array> contiguous;
  std::vector<TensorData> tensors;
  for (const std::pair<const std::string, Array>& entry : arrays_) {
    contiguous.push_back(entry.second.contiguous());
    const Array& array = contiguous.back();
    std::vector<int64_t> sizes(array.sizes().begin(), array.sizes().end());
    std::span<const std::byte> bytes(static_cast<const std::byte*>(array.raw()),
                                     static_cast<size_t>(array.nbytes()));
    tensors.push_back({entry.first, array.dtype(), std::move(sizes), bytes});
  }
  frontend::write_safetensors(path, tensors);
}

void State::load(const std::string& path) {
  frontend::TensorFile file = frontend::read_safetensors(path);
  Diagnostics problems;
  for (const std::pair<const std::string, Array>& entry : arrays_) {
    const TensorData* found = file.find(entry.first);
    const Array& have = entry.second;
    std::vector<int64_t> sizes(have.sizes().begin(), have.sizes().end());
    if (found == nullptr) {
      problems.add(fmt::format("{}: '{}' is missing", path, entry.first));
    } else if (found->dtype != have.dtype() || found->sizes != sizes) {
      problems.add(fmt::format("{}: '{}' is {}, the model has {}", path, entry.first,
                               frontend::describe(found->dtype, found->sizes), have.describe()));
    }
  }
  for (const std::pair<const std::string, TensorData>& entry : file.tensors())
    if (!has(entry.first))
      problems.add(fmt::format("{}: the model has no '{}'", path, entry.first));
  problems.finish();
  for (std::pair<const std::string, Array>& entry : arrays_) {
    const TensorData& data = file.at(entry.first);
    Array loaded = Array::empty(data.dtype, data.sizes);
    std::memcpy(loaded.raw(), data.bytes.data(), data.bytes.size());
    entry.second.copy_from(loaded);
  }
}

}  // namespace tandem
