// dst = src for any two sets of strides. Dimensions are sorted by the destination's strides and
// merged where both sides allow it, so that most copies become one or two loops. The innermost loop
// is the destination's densest dimension; when the source is dense in another one, the pair is
// walked in square tiles, so that both sides use whole cache lines (a plain loop over a
// transposition misses on every element).
#include <algorithm>
#include <array>
#include <cstring>

#include "base/check.h"
#include "base/diagnostic.h"
#include "runtime/array.h"
#include "runtime/parallel_for.h"

namespace tandem::runtime {
namespace {

constexpr size_t kMaxRank = 64;
constexpr int64_t kParallelBytes = 256 << 10;
constexpr int64_t kTile = 32;

struct Dim {
  int64_t size;
  int64_t dst;
  int64_t src;
};

// The loops of one copy, outermost first; at least two, padded with loops of size 1 in front.
struct Loops {
  std::array<Dim, kMaxRank + 2> dims;
  size_t count = 0;

  void push(const Dim& dim) { dims[count++] = dim; }
  Dim& inner() { return dims[count - 1]; }
  const Dim& inner() const { return dims[count - 1]; }
  const Dim& middle() const { return dims[count - 2]; }
  int64_t outer_size() const {
    int64_t size = 1;
    for (size_t i = 0; i + 2 < count; ++i) size *= dims[i].size;
    return size;
  }
};

bool wider(const Dim& a, const Dim& b) { return a.dst != b.dst ? a.dst > b.dst : a.src > b.src; }

Loops merged_loops(std::span<const int64_t> sizes, std::span<const int64_t> dst,
                   std::span<const int64_t> src) {
  std::array<Dim, kMaxRank> dims;
  size_t count = 0;
  for (size_t i = 0; i < sizes.size(); ++i)
    if (sizes[i] != 1) dims[count++] = {sizes[i], dst[i], src[i]};
  std::stable_sort(dims.begin(), dims.begin() + static_cast<ptrdiff_t>(count), wider);
  Loops loops;
  loops.push({1, 0, 0});
  loops.push({1, 0, 0});
  for (size_t i = 0; i < count; ++i) {
    Dim& last = loops.inner();
    const bool joins =
        i > 0 && last.dst == dims[i].dst * dims[i].size && last.src == dims[i].src * dims[i].size;
    if (joins) {
      last = {last.size * dims[i].size, dims[i].dst, dims[i].src};
    } else {
      loops.push(dims[i]);
    }
  }
  return loops;
}

// Where the source is densest in an outer loop, that loop becomes the middle one: the tile's other
// side.
void pair_dense_dims(Loops& loops) {
  if (loops.count < 4 || loops.inner().src == 1) return;
  size_t densest = loops.count - 2;
  for (size_t i = 2; i + 1 < loops.count; ++i)
    if (loops.dims[i].src < loops.dims[densest].src) densest = i;
  std::rotate(loops.dims.begin() + static_cast<ptrdiff_t>(densest),
              loops.dims.begin() + static_cast<ptrdiff_t>(densest) + 1,
              loops.dims.begin() + static_cast<ptrdiff_t>(loops.count) - 1);
}

/// Elements of kSize bytes, at any address; strides are in bytes from here on.
template <size_t kSize>
void copy_row(std::byte* dst, const std::byte* src, const Dim& dim, int64_t lo, int64_t hi) {
  constexpr int64_t kDense = kSize;
  if (dim.dst == kDense && dim.src == kDense) {
    std::memmove(dst + lo * kDense, src + lo * kDense, static_cast<size_t>(hi - lo) * kSize);
    return;
  }
  for (int64_t i = lo; i < hi; ++i) std::memcpy(dst + i * dim.dst, src + i * dim.src, kSize);
}

template <size_t kSize>
void copy_plane(std::byte* dst, const std::byte* src, const Dim& rows, const Dim& columns,
                int64_t lo, int64_t hi) {
  if (columns.src == kSize || rows.src >= columns.src) {
    for (int64_t r = lo; r < hi; ++r)
      copy_row<kSize>(dst + r * rows.dst, src + r * rows.src, columns, 0, columns.size);
    return;
  }
  for (int64_t r0 = lo; r0 < hi; r0 += kTile) {
    const int64_t r1 = std::min(hi, r0 + kTile);
    for (int64_t c0 = 0; c0 < columns.size; c0 += kTile) {
      const int64_t c1 = std::min(columns.size, c0 + kTile);
      for (int64_t r = r0; r < r1; ++r)
        copy_row<kSize>(dst + r * rows.dst, src + r * rows.src, columns, c0, c1);
    }
  }
}

// One range of the flattened (outer, middle) loops.
template <size_t kSize>
void copy_range(std::byte* dst, const std::byte* src, const Loops& loops, int64_t lo, int64_t hi) {
  const Dim& rows = loops.middle();
  for (int64_t at = lo; at < hi;) {
    int64_t plane = at / rows.size;
    const int64_t row = at - plane * rows.size;
    const int64_t row_end = std::min(rows.size, row + (hi - at));
    std::byte* dst_plane = dst;
    const std::byte* src_plane = src;
    for (size_t i = loops.count - 2; i-- > 0;) {
      const Dim& dim = loops.dims[i];
      const int64_t index = plane % dim.size;
      plane /= dim.size;
      dst_plane += index * dim.dst;
      src_plane += index * dim.src;
    }
    copy_plane<kSize>(dst_plane, src_plane, rows, loops.inner(), row, row_end);
    at += row_end - row;
  }
}

template <size_t kSize>
void copy_sized(void* dst, const void* src, Loops loops) {
  for (Dim& dim : std::span(loops.dims).first(loops.count)) {
    dim.dst *= int64_t{kSize};
    dim.src *= int64_t{kSize};
  }
  // A single long row is cut into pieces, so that the team has something to share.
  Dim& inner = loops.inner();
  constexpr int64_t kPiece = (64 << 10) / int64_t{kSize};
  int64_t rest = 0;
  const int64_t whole = inner.size;
  if (loops.outer_size() * loops.middle().size == 1 && whole >= 2 * kPiece) {
    rest = whole % kPiece;
    loops.dims[loops.count - 2] = {whole / kPiece, kPiece * inner.dst, kPiece * inner.src};
    inner.size = kPiece;
  }
  std::byte* const to = static_cast<std::byte*>(dst);
  const std::byte* const from = static_cast<const std::byte*>(src);
  const int64_t tasks = loops.outer_size() * loops.middle().size;
  if (tasks * inner.size * int64_t{kSize} < kParallelBytes) {
    copy_range<kSize>(to, from, loops, 0, tasks);
  } else {
    parallel_for(tasks,
                 [&](int64_t lo, int64_t hi) { copy_range<kSize>(to, from, loops, lo, hi); });
  }
  if (rest > 0) copy_row<kSize>(to, from, inner, whole - rest, whole);
}

}  // namespace

void copy_strided(void* dst, std::span<const int64_t> dst_strides, const void* src,
                  std::span<const int64_t> src_strides, std::span<const int64_t> sizes,
                  int64_t element) {
  if (sizes.size() > kMaxRank)
    throw UserError("arrays of more than 64 dimensions are not supported");
  for (const int64_t size : sizes)
    if (size == 0) return;
  Loops loops = merged_loops(sizes, dst_strides, src_strides);
  pair_dense_dims(loops);
  switch (element) {
    case 1: return copy_sized<1>(dst, src, loops);
    case 2: return copy_sized<2>(dst, src, loops);
    case 4: return copy_sized<4>(dst, src, loops);
    case 8: return copy_sized<8>(dst, src, loops);
    default: TD_CHECK(false) << "element of " << element << " bytes";
  }
}

}  // namespace tandem::runtime
