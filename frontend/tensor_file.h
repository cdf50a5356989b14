// Named tensors of a file, as bytes: what weights and data sets come in as. No runtime object.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "frontend/mapped_file.h"

namespace tandem::frontend {

/// Row-major elements. `bytes` is borrowed, from a TensorFile or from the caller that writes one.
struct TensorData {
  std::string name;
  DType dtype = DType::f32;
  std::vector<int64_t> sizes;
  std::span<const std::byte> bytes;
};

/// `f32[3, 4]`.
std::string describe(DType dtype, const std::vector<int64_t>& sizes);
/// Bytes of a tensor; nothing when a size is negative or the product overflows.
std::optional<uint64_t> byte_count(DType dtype, const std::vector<int64_t>& sizes);

/// Owns the memory of its tensors: the mapping, and copies of what the file aligns worse than its
/// elements need.
class TensorFile {
 public:
  explicit TensorFile(std::shared_ptr<const MappedFile> file) : file_(std::move(file)) {}

  const std::string& path() const { return file_->path(); }
  const std::map<std::string, TensorData, std::less<>>& tensors() const { return tensors_; }
  const TensorData* find(std::string_view name) const;
  /// UserError that names the tensors there are.
  const TensorData& at(std::string_view name) const;
  /// Free texts beside the tensors (safetensors only).
  std::map<std::string, std::string, std::less<>> metadata;

  /// For readers of formats. Bytes may have any alignment. False when there is a tensor of that
  /// name.
  bool add(TensorData tensor);

 private:
  std::shared_ptr<const MappedFile> file_;
  std::map<std::string, TensorData, std::less<>> tensors_;
  std::vector<std::unique_ptr<std::byte[]>> copies_;
};

}  // namespace tandem::frontend
