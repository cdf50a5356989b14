// A transposition of tiles. The dimension that is innermost in the blocked tensor is walked in
// chunks of kChunk elements; the places of all others in the order of the strided tensor. A tile is
// a chunk at neighbouring places, so each cache line of either side is touched once: rows of
// weights are often a power of two apart, and read one element a time their lines would push each
// other out of the cache. oneDNN's own reorder of weights takes two to four times as long.
#include "runtime/blocked_copy.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace tandem::runtime {
namespace {

// Elements that a row of the strided tensor is asked for before they are copied: its rows are on
// other pages, where no prefetcher of the processor follows them. Measured: twice as fast.
constexpr int64_t kAhead = 64;
// Chunks whose elements are nearer than this are walked first: they lie side by side.
constexpr int64_t kNearStep = 64;

using Four = uint32_t __attribute__((vector_size(16)));

// Four rows of four elements, written as four columns.
inline void transpose(const std::array<uint32_t*, 4>& from, const std::array<uint32_t*, 4>& to) {
  std::array<Four, 4> rows;
  for (size_t k = 0; k < 4; ++k) std::memcpy(&rows[k], from[k], sizeof(Four));
  const Four a = __builtin_shufflevector(rows[0], rows[1], 0, 4, 1, 5);
  const Four b = __builtin_shufflevector(rows[2], rows[3], 0, 4, 1, 5);
  const Four c = __builtin_shufflevector(rows[0], rows[1], 2, 6, 3, 7);
  const Four d = __builtin_shufflevector(rows[2], rows[3], 2, 6, 3, 7);
  rows = {__builtin_shufflevector(a, b, 0, 1, 4, 5), __builtin_shufflevector(a, b, 2, 3, 6, 7),
          __builtin_shufflevector(c, d, 0, 1, 4, 5), __builtin_shufflevector(c, d, 2, 3, 6, 7)};
  for (size_t k = 0; k < 4; ++k) std::memcpy(to[k], &rows[k], sizeof(Four));
}

// Offset of index `x` of dimension `dim`: offsets of the dimensions add up.
int64_t offset_of(const BlockedLayout& layout, size_t dim, int64_t x) {
  int64_t offset = 0, dense = 1, left = x;
  for (size_t i = layout.inner.size(); i-- > 0;) {
    const BlockedLayout::Inner& inner = layout.inner[i];
    if (inner.dim == dim) {
      offset += left % inner.size * dense;
      left /= inner.size;
    }
    dense *= inner.size;
  }
  return offset + left * layout.strides[dim];
}

bool is_padded(const BlockedLayout& layout) {
  std::vector<int64_t> blocks(layout.sizes.size(), 1);
  for (const BlockedLayout::Inner& inner : layout.inner) blocks[inner.dim] *= inner.size;
  for (size_t dim = 0; dim < blocks.size(); ++dim)
    if (layout.sizes[dim] % blocks[dim] != 0) return true;
  return false;
}

// All dimensions but one, the one with the largest stride first.
std::vector<size_t> others(const std::vector<int64_t>& strides, size_t chunked) {
  std::vector<size_t> dims;
  for (size_t dim = 0; dim < strides.size(); ++dim)
    if (dim != chunked) dims.push_back(dim);
  std::ranges::stable_sort(dims, [&](size_t a, size_t b) { return strides[a] > strides[b]; });
  return dims;
}

}  // namespace

std::optional<BlockedCopy> BlockedCopy::make(const BlockedLayout& blocked,
                                             const std::vector<int64_t>& strides) {
  if (blocked.inner.empty() || blocked.inner.back().size % kChunk != 0 || is_padded(blocked))
    return std::nullopt;
  const size_t chunked = blocked.inner.back().dim;
  BlockedCopy copy;
  copy.chunk_step_ = strides[chunked];
  copy.chunks_inside_ = strides[chunked] <= kNearStep;
  for (int64_t x = 0; x < blocked.sizes[chunked]; x += kChunk)
    copy.chunks_.push_back(offset_of(blocked, chunked, x));
  const std::vector<size_t> dims = others(strides, chunked);
  int64_t places = 1;
  for (const size_t dim : dims) places *= blocked.sizes[dim];
  for (int64_t number = 0; number < places; ++number) {
    int64_t left = number, from = 0, to = 0;
    for (size_t i = dims.size(); i-- > 0;) {
      const int64_t x = left % blocked.sizes[dims[i]];
      left /= blocked.sizes[dims[i]];
      from += x * strides[dims[i]];
      to += offset_of(blocked, dims[i], x);
    }
    copy.add_place(from, to);
  }
  return copy;
}

void BlockedCopy::add_place(int64_t strided, int64_t blocked) {
  const bool goes_on = !runs_.empty() && runs_.back().places < kChunk &&
                       runs_.back().strided + runs_.back().places == strided;
  if (!goes_on) runs_.push_back({strided, static_cast<int64_t>(blocked_.size()), 0});
  ++runs_.back().places;
  blocked_.push_back(blocked);
}

void BlockedCopy::copy_tile(Way way, uint32_t* strided, uint32_t* blocked, const Run& run) const {
  const int64_t* const places = blocked_.data() + run.first;
  int64_t i = 0;
  for (; i + 4 <= run.places; i += 4)
    for (int64_t k = 0; k < kChunk; k += 4) {
      std::array<uint32_t*, 4> rows, columns;
      for (int64_t n = 0; n < 4; ++n) {
        rows[static_cast<size_t>(n)] = strided + (k + n) * chunk_step_ + i;
        columns[static_cast<size_t>(n)] = blocked + places[i + n] + k;
      }
      way == Way::to_blocked ? transpose(rows, columns) : transpose(columns, rows);
    }
  for (; i < run.places; ++i)
    for (int64_t k = 0; k < kChunk; ++k) {
      uint32_t& one = strided[k * chunk_step_ + i];
      uint32_t& other = blocked[places[i] + k];
      way == Way::to_blocked ? other = one : one = other;
    }
}

void BlockedCopy::prefetch(Way way, const uint32_t* strided) const {
  if (chunks_inside_) return;
  for (int64_t k = 0; k < kChunk; ++k) {
    const uint32_t* const ahead = strided + k * chunk_step_ + kAhead;
    way == Way::to_blocked ? __builtin_prefetch(ahead) : __builtin_prefetch(ahead, 1);
  }
}

void BlockedCopy::run(Way way, void* strided, void* blocked, int64_t number, int64_t slices) const {
  const int64_t runs = static_cast<int64_t>(runs_.size());
  const int64_t chunks = static_cast<int64_t>(chunks_.size());
  const int64_t tiles = chunks * runs;
  for (int64_t tile = tiles * number / slices; tile < tiles * (number + 1) / slices; ++tile) {
    const int64_t chunk = chunks_inside_ ? tile % chunks : tile / runs;
    const Run& run = runs_[static_cast<size_t>(chunks_inside_ ? tile / chunks : tile % runs)];
    uint32_t* const rows =
        static_cast<uint32_t*>(strided) + run.strided + chunk * kChunk * chunk_step_;
    prefetch(way, rows);
    copy_tile(way, rows, static_cast<uint32_t*>(blocked) + chunks_[static_cast<size_t>(chunk)],
              run);
  }
}

}  // namespace tandem::runtime
