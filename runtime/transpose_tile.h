// Tiles of f32 turned in registers, with the widest that this processor has.
#pragma once

#include <cstdint>

namespace tandem::runtime {

/// A tile lies on one side as rows, `stride` elements apart, on the other as its columns: each
/// `lanes` elements long, at `lines[at[c]]`, element r of it from row r. At most `lanes` rows and
/// columns.
struct TileKernels {
  int lanes;
  /// Of fewer rows the rest of a line becomes 0.
  void (*to_lines)(const float* rows, int64_t stride, int row_count, int columns, float* lines,
                   const int32_t* at);
  void (*to_rows)(float* rows, int64_t stride, int row_count, int columns, const float* lines,
                  const int32_t* at);
};

/// Null where the processor has no AVX2. TANDEM_ISA holds it, as it does the library.
const TileKernels* tile_kernels(int max_lanes);

}  // namespace tandem::runtime
