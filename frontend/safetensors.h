// The safetensors format: a JSON header of names, types, shapes and places, then the elements.
#pragma once

#include <map>
#include <span>
#include <string>

#include "frontend/tensor_file.h"

namespace tandem::frontend {

/// Maps the file; tensors are read in place. Strict: places must fill the data exactly, without gap
/// or overlap, and agree with type and shape. UserError that names tensor and rule.
TensorFile read_safetensors(const std::string& path);

/// Writes all or nothing: to a temporary file beside `path`, which takes its place once complete.
/// Larger element types first, then by name, so that elements are aligned where they stand.
/// UserError for two tensors of one name, a name that is taken by the format ("__metadata__"),
/// bytes that do not fit type and sizes, or a failing disk.
void write_safetensors(const std::string& path, std::span<const TensorData> tensors,
                       const std::map<std::string, std::string, std::less<>>& metadata = {});

}  // namespace tandem::frontend
