// Problem: weights lie as rows of output channels, the library wants lines of 16 or 8 of them side
// by side; element by element that is a store, and a line of the cache, for each. Approach: 16 rows
// by 16 columns (8 by 8 with AVX2) are loaded as rows, turned by four (three) steps of shuffles,
// and stored as whole lines, or the other way round. The file is compiled for any processor, so
// each function names what it needs.
#include "runtime/transpose_tile.h"

#include <immintrin.h>

#include "base/flags.h"

// GCC 12 takes what its intrinsics leave undefined for a mistake of ours (its bug 105593).
#pragma GCC diagnostic ignored "-Wuninitialized"

namespace tandem::runtime {
namespace {

#define TANDEM_AVX512 __attribute__((target("avx512f")))
#define TANDEM_AVX2 __attribute__((target("avx2")))
#define TANDEM_INLINE __attribute__((always_inline)) inline
// A loop over registers: written out, else they are an array in memory.
#define TANDEM_UNROLL _Pragma("GCC unroll 16")

TANDEM_INLINE TANDEM_AVX512 __mmask16 first16(int count) {
  return static_cast<__mmask16>((1u << count) - 1);
}

// Pairs of rows, then pairs of pairs, within quarters of registers.
TANDEM_INLINE TANDEM_AVX512 void turn_quarters(__m512* v) {
  __m512 t[16];
  TANDEM_UNROLL
  for (int k = 0; k < 16; k += 2) {
    t[k] = _mm512_unpacklo_ps(v[k], v[k + 1]);
    t[k + 1] = _mm512_unpackhi_ps(v[k], v[k + 1]);
  }
  TANDEM_UNROLL
  for (int k = 0; k < 16; k += 4) {
    TANDEM_UNROLL
    for (int half = 0; half < 2; ++half) {
      const __m512d a = _mm512_castps_pd(t[k + half]), b = _mm512_castps_pd(t[k + 2 + half]);
      v[k + 2 * half] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, b));
      v[k + 2 * half + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, b));
    }
  }
}

TANDEM_INLINE TANDEM_AVX512 void turn16(__m512* v) {
  turn_quarters(v);
  __m512 t[16];
  TANDEM_UNROLL
  for (int k = 0; k < 4; ++k) {
    t[k] = _mm512_shuffle_f32x4(v[k], v[k + 4], 0x88);
    t[k + 4] = _mm512_shuffle_f32x4(v[k], v[k + 4], 0xdd);
    t[k + 8] = _mm512_shuffle_f32x4(v[k + 8], v[k + 12], 0x88);
    t[k + 12] = _mm512_shuffle_f32x4(v[k + 8], v[k + 12], 0xdd);
  }
  TANDEM_UNROLL
  for (int k = 0; k < 8; ++k) {
    v[k] = _mm512_shuffle_f32x4(t[k], t[k + 8], 0x88);
    v[k + 8] = _mm512_shuffle_f32x4(t[k], t[k + 8], 0xdd);
  }
}

TANDEM_AVX512 void to_lines16(const float* rows, int64_t stride, int row_count, int columns,
                              float* lines, const int32_t* at) {
  __m512 v[16];
  if (row_count == 16 && columns == 16) {
    TANDEM_UNROLL
    for (int r = 0; r < 16; ++r) v[r] = _mm512_loadu_ps(rows + r * stride);
    turn16(v);
    TANDEM_UNROLL
    for (int c = 0; c < 16; ++c) _mm512_storeu_ps(lines + at[c], v[c]);
    return;
  }
  const __mmask16 mask = first16(columns);
  TANDEM_UNROLL
  for (int r = 0; r < 16; ++r)
    v[r] = r < row_count ? _mm512_maskz_loadu_ps(mask, rows + r * stride) : _mm512_setzero_ps();
  turn16(v);
  TANDEM_UNROLL
  for (int c = 0; c < 16; ++c)
    if (c < columns) _mm512_storeu_ps(lines + at[c], v[c]);
}

TANDEM_AVX512 void to_rows16(float* rows, int64_t stride, int row_count, int columns,
                             const float* lines, const int32_t* at) {
  __m512 v[16];
  if (row_count == 16 && columns == 16) {
    TANDEM_UNROLL
    for (int c = 0; c < 16; ++c) v[c] = _mm512_loadu_ps(lines + at[c]);
    turn16(v);
    TANDEM_UNROLL
    for (int r = 0; r < 16; ++r) _mm512_storeu_ps(rows + r * stride, v[r]);
    return;
  }
  const __mmask16 mask = first16(columns);
  TANDEM_UNROLL
  for (int c = 0; c < 16; ++c)
    v[c] = c < columns ? _mm512_loadu_ps(lines + at[c]) : _mm512_setzero_ps();
  turn16(v);
  TANDEM_UNROLL
  for (int r = 0; r < 16; ++r)
    if (r < row_count) _mm512_mask_storeu_ps(rows + r * stride, mask, v[r]);
}

TANDEM_INLINE TANDEM_AVX2 __m256i first8(int count) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(count), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

TANDEM_INLINE TANDEM_AVX2 void turn8(__m256* v) {
  __m256 t[8];
  TANDEM_UNROLL
  for (int k = 0; k < 8; k += 2) {
    t[k] = _mm256_unpacklo_ps(v[k], v[k + 1]);
    t[k + 1] = _mm256_unpackhi_ps(v[k], v[k + 1]);
  }
  __m256 u[8];
  TANDEM_UNROLL
  for (int k = 0; k < 8; k += 4) {
    TANDEM_UNROLL
    for (int half = 0; half < 2; ++half) {
      const __m256 a = t[k + half], b = t[k + 2 + half];
      u[k + 2 * half] = _mm256_shuffle_ps(a, b, 0x44);
      u[k + 2 * half + 1] = _mm256_shuffle_ps(a, b, 0xee);
    }
  }
  TANDEM_UNROLL
  for (int k = 0; k < 4; ++k) {
    v[k] = _mm256_permute2f128_ps(u[k], u[k + 4], 0x20);
    v[k + 4] = _mm256_permute2f128_ps(u[k], u[k + 4], 0x31);
  }
}

TANDEM_AVX2 void to_lines8(const float* rows, int64_t stride, int row_count, int columns,
                           float* lines, const int32_t* at) {
  __m256 v[8];
  if (row_count == 8 && columns == 8) {
    TANDEM_UNROLL
    for (int r = 0; r < 8; ++r) v[r] = _mm256_loadu_ps(rows + r * stride);
    turn8(v);
    TANDEM_UNROLL
    for (int c = 0; c < 8; ++c) _mm256_storeu_ps(lines + at[c], v[c]);
    return;
  }
  const __m256i mask = first8(columns);
  TANDEM_UNROLL
  for (int r = 0; r < 8; ++r)
    v[r] = r < row_count ? _mm256_maskload_ps(rows + r * stride, mask) : _mm256_setzero_ps();
  turn8(v);
  TANDEM_UNROLL
  for (int c = 0; c < 8; ++c)
    if (c < columns) _mm256_storeu_ps(lines + at[c], v[c]);
}

// Masked stores of 8 lanes are slow on processors of AMD: only where they must be.
TANDEM_AVX2 void to_rows8(float* rows, int64_t stride, int row_count, int columns,
                          const float* lines, const int32_t* at) {
  __m256 v[8];
  TANDEM_UNROLL
  for (int c = 0; c < 8; ++c)
    v[c] = c < columns ? _mm256_loadu_ps(lines + at[c]) : _mm256_setzero_ps();
  turn8(v);
  if (columns == 8) {
    TANDEM_UNROLL
    for (int r = 0; r < 8; ++r)
      if (r < row_count) _mm256_storeu_ps(rows + r * stride, v[r]);
    return;
  }
  const __m256i mask = first8(columns);
  TANDEM_UNROLL
  for (int r = 0; r < 8; ++r)
    if (r < row_count) _mm256_maskstore_ps(rows + r * stride, mask, v[r]);
}

constexpr TileKernels kTiles16{16, to_lines16, to_rows16};
constexpr TileKernels kTiles8{8, to_lines8, to_rows8};

}  // namespace

const TileKernels* tile_kernels(int max_lanes) {
  static const bool has_avx512 = __builtin_cpu_supports("avx512f") && flag_isa() != "avx2";
  static const bool has_avx2 = __builtin_cpu_supports("avx2");
  if (max_lanes >= kTiles16.lanes && has_avx512) return &kTiles16;
  return max_lanes >= kTiles8.lanes && has_avx2 ? &kTiles8 : nullptr;
}

}  // namespace tandem::runtime
