// Tensors are handed out where the file has them. Only elements that a load could not read where
// they stand are copied: numpy aligns a .npy file to 64 bytes, but a zip archive of them puts it
// anywhere.
#include "frontend/tensor_file.h"

#include <fmt/format.h>

#include "base/diagnostic.h"

namespace tandem::frontend {

std::string describe(DType dtype, const std::vector<int64_t>& sizes) {
  return fmt::format("{}[{}]", name_of(dtype), fmt::join(sizes, ", "));
}

std::optional<uint64_t> byte_count(DType dtype, const std::vector<int64_t>& sizes) {
  int64_t count = size_of(dtype);
  bool bad = false;
  bool empty = false;
  for (int64_t size : sizes) {
    bad |= size < 0;
    empty |= size == 0;
  }
  if (bad) return std::nullopt;
  if (empty) return 0;
  for (int64_t size : sizes)
    if (__builtin_mul_overflow(count, size, &count)) return std::nullopt;
  return static_cast<uint64_t>(count);
}

const TensorData* TensorFile::find(std::string_view name) const {
  std::map<std::string, TensorData, std::less<>>::const_iterator it = tensors_.find(name);
  return it == tensors_.end() ? nullptr : &it->second;
}

const TensorData& TensorFile::at(std::string_view name) const {
  if (const TensorData* tensor = find(name)) return *tensor;
  std::string known;
  for (const std::pair<const std::string, TensorData>& entry : tensors_)
    known += (known.empty() ? "" : ", ") + entry.first;
  throw UserError(
      fmt::format("[file] {} has no tensor \"{}\"; there are: {}", path(), name, known));
}

bool TensorFile::add(TensorData tensor) {
  if (tensors_.count(tensor.name) != 0) return false;
  size_t alignment = static_cast<size_t>(size_of(tensor.dtype));
  if (reinterpret_cast<uintptr_t>(tensor.bytes.data()) % alignment != 0) {
    std::byte* copy = copies_.emplace_back(new std::byte[tensor.bytes.size()]).get();
    std::memcpy(copy, tensor.bytes.data(), tensor.bytes.size());
    tensor.bytes = {copy, tensor.bytes.size()};
  }
  std::string name = tensor.name;
  return tensors_.emplace(std::move(name), std::move(tensor)).second;
}

}  // namespace tandem::frontend
