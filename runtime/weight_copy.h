// Convolution weights brought to, or from, a layout of the library's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/dtype.h"
#include "runtime/onednn.h"
#include "runtime/transpose_tile.h"

namespace tandem::runtime {

/// Between strides and a blocked layout whose innermost block is of one dimension, the *lanes*: a
/// line is a block of them, or a part as wide as a register. f32. Whatever the layout pads is
/// written as 0.
class TiledCopy {
 public:
  /// Nothing for layouts and strides that it does not know.
  static std::optional<TiledCopy> of(DType dtype, std::span<const int64_t> sizes,
                                     std::span<const int64_t> strides,
                                     const dnnl_memory_desc_t& blocked);

  /// Groups of lanes that fill a register; each may be copied apart.
  int64_t parts() const { return static_cast<int64_t>(part_at_.size()); }
  void to_blocked(const float* own, float* blocked, int64_t lo, int64_t hi) const;
  void from_blocked(float* own, const float* blocked, int64_t lo, int64_t hi) const;

 private:
  struct Chunk;
  struct Ahead;
  bool read_layout(std::span<const int64_t> sizes, std::span<const int64_t> strides,
                   const dnnl_memory_desc_t& blocked);
  bool read_columns(std::span<const int64_t> sizes, std::span<const int64_t> strides);
  void place_columns(std::span<const int64_t> sizes, const dnnl_memory_desc_t& blocked);
  Chunk chunk_at(int64_t part, int64_t number) const;
  int rows_of(int64_t part) const;
  /// Lanes are neighbours on both sides. One lane alone may have any stride.
  bool has_lines() const { return lane_stride_ == 1 && run_ == 1; }
  int64_t blocked_at(int64_t part) const { return part_at_[static_cast<size_t>(part)]; }
  template <class Tile>
  void for_each_tile(int64_t lo, int64_t hi, const float* own, bool writes, const Tile& tile) const;

  template <class Copy>
  void for_each_line(int64_t lo, int64_t hi, const float* own, const Copy& copy) const;

  const TileKernels* kernels_ = nullptr;
  // Lanes.
  size_t lane_dim_ = 0;
  int64_t lane_count_ = 0, lane_stride_ = 0;
  std::vector<int64_t> part_at_;  // in the blocked layout
  // Columns, all other dimensions, in the order of the strided side: runs of neighbours.
  std::vector<size_t> column_dims_;
  int64_t run_ = 1, runs_ = 1, run_stride_ = 0;
  std::vector<int32_t> column_at_;  // in the blocked layout, of each column
  std::vector<int32_t> padding_at_;
};

/// The copy that there is: of tiles, else the library's own. In parts, which different threads may
/// do.
class WeightCopy {
 public:
  enum class Way { to_library, from_library };
  WeightCopy(DType dtype, std::span<const int64_t> sizes, std::span<const int64_t> strides,
             const dnnl_memory_desc_t& library, Way way);

  int64_t parts() const { return tiled_ ? tiled_->parts() : 1; }
  int64_t scratchpad_bytes() const;
  /// Makes room for `count` threads; to be called outside of the region.
  void prepare(int count);
  void run(int64_t lo, int64_t hi, std::byte* own, std::byte* library, int thread,
           std::byte* scratchpad);

 private:
  Way way_;
  std::optional<TiledCopy> tiled_;
  std::unique_ptr<TeamPrimitive> reorder_;
};

}  // namespace tandem::runtime
