// numpy's files: .npy (one array) and .npz (a zip archive of those).
#pragma once

#include <string>

#include "frontend/tensor_file.h"

namespace tandem::frontend {

/// Arrays by name, without ".npy"; a .npy file gives one, named as the file. Reads what np.save and
/// np.savez write of f16, f32, f64, i8, u8, i16, i32, i64 and bool. UserError that names array and
/// reason for compressed archives (np.savez_compressed), big-endian or Fortran-ordered arrays,
/// other types, and damaged or cut-off files.
TensorFile read_npz(const std::string& path);

}  // namespace tandem::frontend
