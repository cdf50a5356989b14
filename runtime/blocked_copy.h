// Copies between a strided and a blocked layout of one tensor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace tandem::runtime {

/// Elements of dimension d lie `strides[d]` apart, block by block; inside of a block the inner
/// blocks, outermost first, lie densely.
struct BlockedLayout {
  struct Inner {
    int64_t size = 1;
    size_t dim = 0;
  };
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;  // in elements, of whole blocks
  std::vector<Inner> inner;
};

/// Of elements of 4 bytes. Any number of slices may run at once: they write different elements.
class BlockedCopy {
 public:
  enum class Way : uint8_t { to_blocked, to_strided };

  /// Null where it has no fast way: a padded layout, or one whose innermost block is no multiple of
  /// kChunk elements.
  static std::optional<BlockedCopy> make(const BlockedLayout& blocked,
                                         const std::vector<int64_t>& strides);
  /// Slice `number` of `slices`. First elements of both; they must not overlap.
  void run(Way way, void* strided, void* blocked, int64_t number, int64_t slices) const;

  static constexpr int64_t kChunk = 16;

 private:
  // Places of the other dimensions that lie one behind the other in the strided tensor.
  struct Run {
    int64_t strided = 0;  // where it begins, in elements
    int64_t first = 0;    // number of its first place in `blocked_`
    int64_t places = 0;   // kChunk at most
  };

  BlockedCopy() = default;
  void add_place(int64_t strided, int64_t blocked);
  void prefetch(Way way, const uint32_t* strided) const;
  void copy_tile(Way way, uint32_t* strided, uint32_t* blocked, const Run& run) const;

  int64_t chunk_step_ = 0;        // from an element of a chunk to the next one, strided
  bool chunks_inside_ = false;    // the inner loop is over chunks, not over runs
  std::vector<int64_t> chunks_;   // where they begin in the blocked tensor
  std::vector<Run> runs_;         // in the order of the strided tensor
  std::vector<int64_t> blocked_;  // of each place
};

}  // namespace tandem::runtime
