// Problem: weights that may change between calls are brought to the library's layout at every
// call. The library's reorder of a 3x3 kernel walks memory in steps, and on one thread: in
// inference of a convolution network of two images, a seventh of the time. Approach: tiles turned
// in registers, a stretch of each row at a time, the next stretch asked for ahead, since no
// processor follows 16 rows by itself. Weights stay in parts that threads share.
#include "runtime/weight_copy.h"

#include <algorithm>
#include <cstring>
#include <limits>

namespace tandem::runtime {
namespace {

constexpr int64_t kChunk = 256;                                      // columns
constexpr int64_t kLine = 64 / static_cast<int64_t>(sizeof(float));  // of a cache

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Where index `index` of a dimension lies in a blocked layout, apart from the others.
int64_t offset_of(const dnnl_memory_desc_t& blocked, size_t dim, int64_t index) {
  const dnnl_blocking_desc_t& blocking = blocked.format_desc.blocking;
  int64_t inner = 1;
  for (int i = blocking.inner_nblks; i-- > 0;) {
    const int64_t block = blocking.inner_blks[i];
    if (static_cast<size_t>(blocking.inner_idxs[i]) == dim)
      return index / block * blocking.strides[dim] + index % block * inner;
    inner *= block;
  }
  return index * blocking.strides[dim];
}

// Whether offset_of holds: at most one block of each dimension, and nothing beside them.
bool is_plain_blocked(const dnnl_memory_desc_t& desc) {
  if (desc.format_kind != dnnl_blocked || desc.extra.flags != 0 || desc.offset0 != 0) return false;
  const dnnl_blocking_desc_t& blocking = desc.format_desc.blocking;
  for (int i = 0; i < blocking.inner_nblks; ++i)
    for (int j = 0; j < i; ++j)
      if (blocking.inner_idxs[i] == blocking.inner_idxs[j]) return false;
  return blocking.inner_nblks > 0;
}

}  // namespace

// Columns that a copy takes at a time: of one run, or several runs.
struct TiledCopy::Chunk {
  int64_t own = 0;  // elements, of the first row and column
  int64_t run = 0, runs = 1;
  int64_t first = 0, columns = 0;  // of each run
};

// Asks for the strided side of a chunk, line by line: rows that are far apart, or the memory of all
// rows run by run.
struct TiledCopy::Ahead {
  const float* at = nullptr;
  int64_t stride = 0, length = 0, left = 0, line = 0;
  bool writes = false;

  void next(int64_t count) {
    for (; count > 0 && left > 0; --count) {
      if (writes) {
        __builtin_prefetch(at + line, 1);
      } else {
        __builtin_prefetch(at + line, 0);
      }
      line += kLine;
      if (line < length) continue;
      line = 0;
      at += stride;
      --left;
    }
  }
};

std::optional<TiledCopy> TiledCopy::of(DType dtype, std::span<const int64_t> sizes,
                                       std::span<const int64_t> strides,
                                       const dnnl_memory_desc_t& blocked) {
  if (dtype != DType::f32 || !is_plain_blocked(blocked)) return std::nullopt;
  TiledCopy copy;
  if (!copy.read_layout(sizes, strides, blocked) || !copy.read_columns(sizes, strides))
    return std::nullopt;
  copy.place_columns(sizes, blocked);
  return copy;
}

bool TiledCopy::read_layout(std::span<const int64_t> sizes, std::span<const int64_t> strides,
                            const dnnl_memory_desc_t& blocked) {
  const dnnl_blocking_desc_t& blocking = blocked.format_desc.blocking;
  int64_t elements = 1;
  for (size_t i = 0; i < sizes.size(); ++i) elements *= blocked.padded_dims[i];
  if (elements > std::numeric_limits<int32_t>::max()) return false;
  const int last = blocking.inner_nblks - 1;
  lane_dim_ = static_cast<size_t>(blocking.inner_idxs[last]);
  lane_count_ = sizes[lane_dim_];
  lane_stride_ = strides[lane_dim_];
  const int64_t block = blocking.inner_blks[last];
  kernels_ = tile_kernels(block % 16 == 0 ? 16 : block % 8 == 0 ? 8 : 0);
  if (kernels_ == nullptr) return false;
  for (int64_t lane = 0; lane < blocked.padded_dims[lane_dim_]; lane += kernels_->lanes)
    part_at_.push_back(lane / block * blocking.strides[lane_dim_] + lane % block);
  return true;
}

// All dimensions but the lanes' as runs of neighbours, at one distance.
bool TiledCopy::read_columns(std::span<const int64_t> sizes, std::span<const int64_t> strides) {
  for (size_t i = 0; i < sizes.size(); ++i)
    if (i != lane_dim_ && sizes[i] != 1) column_dims_.push_back(i);
  std::ranges::sort(column_dims_, [&](size_t a, size_t b) { return strides[a] > strides[b]; });
  size_t outer = column_dims_.size();
  while (outer > 0 && strides[column_dims_[outer - 1]] == run_)
    run_ *= sizes[column_dims_[--outer]];
  if (outer == 0) return run_ > 1 || lane_stride_ == 1;
  run_stride_ = strides[column_dims_[outer - 1]];
  while (outer > 0) {
    const size_t dim = column_dims_[--outer];
    if (strides[dim] != run_stride_ * runs_) return false;
    runs_ *= sizes[dim];
  }
  return run_ > 1 || lane_stride_ == 1;
}

void TiledCopy::place_columns(std::span<const int64_t> sizes, const dnnl_memory_desc_t& blocked) {
  column_at_ = {0};
  for (const size_t dim : column_dims_) {
    std::vector<int32_t> longer;
    for (const int32_t at : column_at_)
      for (int64_t i = 0; i < sizes[dim]; ++i)
        longer.push_back(at + static_cast<int32_t>(offset_of(blocked, dim, i)));
    column_at_ = std::move(longer);
  }
  std::vector<std::pair<int32_t, bool>> all = {{0, false}};  // and whether it is padding
  for (size_t dim = 0; dim < sizes.size(); ++dim) {
    if (dim == lane_dim_) continue;
    std::vector<std::pair<int32_t, bool>> longer;
    for (const auto& [at, pads] : all)
      for (int64_t i = 0; i < blocked.padded_dims[dim]; ++i)
        longer.emplace_back(at + static_cast<int32_t>(offset_of(blocked, dim, i)),
                            pads || i >= sizes[dim]);
    all = std::move(longer);
  }
  for (const auto& [at, pads] : all)
    if (pads) padding_at_.push_back(at);
}

int TiledCopy::rows_of(int64_t part) const {
  const int64_t lanes = kernels_->lanes;
  return static_cast<int>(std::clamp<int64_t>(lane_count_ - part * lanes, 0, lanes));
}

TiledCopy::Chunk TiledCopy::chunk_at(int64_t part, int64_t number) const {
  Chunk chunk;
  chunk.own = part * kernels_->lanes * lane_stride_;
  if (run_ >= kChunk || runs_ == 1) {
    const int64_t per_run = ceil_div(run_, kChunk);
    chunk.run = number / per_run;
    chunk.first = number % per_run * kChunk;
    chunk.columns = std::min(kChunk, run_ - chunk.first);
  } else {
    const int64_t runs = kChunk / run_;
    chunk.run = number * runs;
    chunk.runs = std::min(runs, runs_ - chunk.run);
    chunk.columns = run_;
  }
  chunk.own += chunk.run * run_stride_ + chunk.first;
  return chunk;
}

template <class Tile>
void TiledCopy::for_each_tile(int64_t lo, int64_t hi, const float* own, bool writes,
                              const Tile& tile) const {
  const int64_t lanes = kernels_->lanes;
  const bool has_long_runs = run_ >= kChunk || runs_ == 1;
  const int64_t chunks =
      has_long_runs ? ceil_div(run_, kChunk) * runs_ : ceil_div(runs_, kChunk / run_);
  const int64_t end = hi * chunks;
  for (int64_t at = lo * chunks; at < end; ++at) {
    const int64_t part = at / chunks;
    const Chunk chunk = chunk_at(part, at % chunks);
    Ahead ahead;
    if (at + 1 < end) {
      const Chunk next = chunk_at((at + 1) / chunks, (at + 1) % chunks);
      ahead.at = own + next.own;
      ahead.writes = writes;
      ahead.stride = has_long_runs ? lane_stride_ : run_stride_;
      ahead.length = has_long_runs ? next.columns : lanes * lane_stride_;
      ahead.left = has_long_runs ? rows_of((at + 1) / chunks) : next.runs;
    }
    for (int64_t r = 0; r < chunk.runs; ++r)
      for (int64_t c = 0; c < chunk.columns; c += lanes) {
        ahead.next(lanes * lanes / kLine);
        const int64_t column = (chunk.run + r) * run_ + chunk.first + c;
        tile(part, chunk.own + r * run_stride_ + c, column,
             static_cast<int>(std::min(lanes, chunk.columns - c)));
      }
  }
}

// Of a line; its length is nearly always that of a register.
void copy_line(float* to, const float* from, size_t bytes) {
  constexpr size_t kWide = 64, kNarrow = 32;
  if (bytes == kWide) {
    std::memcpy(to, from, kWide);
  } else if (bytes == kNarrow) {
    std::memcpy(to, from, kNarrow);
  } else {
    std::memcpy(to, from, bytes);
  }
}

// Lanes that follow one another on both sides: no tiles to turn. Columns in blocks, since
// neighbours of the blocked side are columns; of the strided one the next block is asked for.
template <class Copy>
void TiledCopy::for_each_line(int64_t lo, int64_t hi, const float* own, const Copy& copy) const {
  constexpr int64_t kColumns = 16;
  const int64_t lanes = kernels_->lanes;
  for (int64_t first = 0; first < runs_; first += kColumns)
    for (int64_t part = lo; part < hi; ++part) {
      const size_t bytes = static_cast<size_t>(rows_of(part)) * sizeof(float);
      for (int64_t column = first; column < std::min(runs_, first + kColumns); ++column) {
        const int64_t at = column * run_stride_ + part * lanes;
        if (column + kColumns < runs_) __builtin_prefetch(own + at + kColumns * run_stride_);
        copy(at, blocked_at(part) + column_at_[static_cast<size_t>(column)], bytes);
      }
    }
}

void TiledCopy::to_blocked(const float* own, float* blocked, int64_t lo, int64_t hi) const {
  const size_t line = static_cast<size_t>(kernels_->lanes) * sizeof(float);
  if (has_lines()) {
    for_each_line(lo, hi, own, [&](int64_t from, int64_t to, size_t bytes) {
      copy_line(blocked + to, own + from, bytes);
      if (bytes < line) std::memset(blocked + to + bytes / sizeof(float), 0, line - bytes);
    });
  } else {
    for_each_tile(lo, hi, own, false, [&](int64_t part, int64_t at, int64_t column, int columns) {
      kernels_->to_lines(own + at, lane_stride_, rows_of(part), columns, blocked + blocked_at(part),
                         column_at_.data() + column);
    });
  }
  for (int64_t part = lo; part < hi; ++part)
    for (const int32_t at : padding_at_) std::memset(blocked + blocked_at(part) + at, 0, line);
}

void TiledCopy::from_blocked(float* own, const float* blocked, int64_t lo, int64_t hi) const {
  if (has_lines()) {
    for_each_line(lo, hi, own, [&](int64_t to, int64_t from, size_t bytes) {
      copy_line(own + to, blocked + from, bytes);
    });
  } else {
    for_each_tile(lo, hi, own, true, [&](int64_t part, int64_t at, int64_t column, int columns) {
      kernels_->to_rows(own + at, lane_stride_, rows_of(part), columns, blocked + blocked_at(part),
                        column_at_.data() + column);
    });
  }
}

WeightCopy::WeightCopy(DType dtype, std::span<const int64_t> sizes,
                       std::span<const int64_t> strides, const dnnl_memory_desc_t& library, Way way)
    : way_(way), tiled_(TiledCopy::of(dtype, sizes, strides, library)) {
  if (tiled_) return;
  const dnnl_memory_desc_t own = strided_desc(dtype, sizes, strides);
  reorder_ = way == Way::to_library ? std::make_unique<TeamPrimitive>(own, library)
                                    : std::make_unique<TeamPrimitive>(library, own);
}

int64_t WeightCopy::scratchpad_bytes() const {
  return reorder_ != nullptr ? reorder_->primitive().scratchpad_bytes() : 0;
}

void WeightCopy::prepare(int count) {
  if (reorder_ != nullptr) reorder_->prepare(count);
}

void WeightCopy::run(int64_t lo, int64_t hi, std::byte* own, std::byte* library, int thread,
                     std::byte* scratchpad) {
  const bool is_to = way_ == Way::to_library;
  if (tiled_) {
    float* const strided = reinterpret_cast<float*>(own);
    float* const blocked = reinterpret_cast<float*>(library);
    is_to ? tiled_->to_blocked(strided, blocked, lo, hi)
          : tiled_->from_blocked(strided, blocked, lo, hi);
    return;
  }
  const std::array<void*, 2> data = {is_to ? own : library, is_to ? library : own};
  reorder_->run(thread, data, scratchpad);
}

}  // namespace tandem::runtime
