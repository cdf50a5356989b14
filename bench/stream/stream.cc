// The memory roof of a kernel: so many arrays read and so many written, with next to no arithmetic.
//
// A copy is no roof for a kernel that reads four arrays and writes three, or that only reads:
// machines move other mixes at other rates. So each kernel is compared with a stream of its own
// mix, measured in turn with it, once with stores that go through the caches and once with stores
// that go past them. Loaded from Python (bench/roof.py); two threads share the arrays, block by
// block.
#include <immintrin.h>

#include <algorithm>
#include <cstdint>

namespace {

constexpr int64_t kFloatsOfLine = 16, kBlocks = 64;

/// Lines of 64 bytes; `arrays` begin on one.
struct Arrays {
  float* const* arrays;
  int64_t count, lines;

  [[nodiscard]] int64_t begin(int64_t block, int64_t blocks) const {
    return lines * block / blocks * kFloatsOfLine;
  }
};

__attribute__((target("avx2"))) __m256 read_block(const Arrays& reads, int64_t from, int64_t to) {
  __m256 first = _mm256_setzero_ps(), second = first;
  for (int64_t array = 0; array < reads.count; ++array) {
    const float* const data = reads.arrays[array];
    for (int64_t i = from; i < to; i += kFloatsOfLine) {
      first = _mm256_max_ps(first, _mm256_load_ps(data + i));
      second = _mm256_max_ps(second, _mm256_load_ps(data + i + 8));
    }
  }
  return _mm256_max_ps(first, second);
}

template <bool past_caches>
__attribute__((target("avx2"))) void write_block(const Arrays& writes, int64_t from, int64_t to,
                                                 __m256 value) {
  for (int64_t array = 0; array < writes.count; ++array) {
    float* const data = writes.arrays[array];
    for (int64_t i = from; i < to; i += 8) {
      if constexpr (past_caches) {
        _mm256_stream_ps(data + i, value);
      } else {
        _mm256_store_ps(data + i, value);
      }
    }
  }
}

template <bool past_caches>
__attribute__((target("avx2"))) float share(const Arrays& reads, const Arrays& writes,
                                            int64_t begin, int64_t end, int64_t blocks) {
  __m256 value = _mm256_setzero_ps();
  for (int64_t block = begin; block < end; ++block) {
    value = _mm256_max_ps(
        value, read_block(reads, reads.begin(block, blocks), reads.begin(block + 1, blocks)));
    write_block<past_caches>(writes, writes.begin(block, blocks), writes.begin(block + 1, blocks),
                             value);
  }
  if constexpr (past_caches) _mm_sfence();
  return _mm256_cvtss_f32(value);
}

}  // namespace

/// Reads `read_lines` lines of each of `read_count` arrays and writes `write_lines` of each of
/// `write_count`; an array may be in both. Returns a number that depends on all that was read.
extern "C" float tandem_bench_stream(float* const* reads, int64_t read_count, int64_t read_lines,
                                     float* const* writes, int64_t write_count, int64_t write_lines,
                                     int past_caches, int threads) {
  const Arrays read{reads, read_count, read_lines}, written{writes, write_count, write_lines};
  const int64_t blocks = std::max<int64_t>(threads, std::max(read_lines, write_lines) / kBlocks);
  float most = 0;
#pragma omp parallel for num_threads(threads) reduction(max : most)
  for (int thread = 0; thread < threads; ++thread) {
    const int64_t begin = blocks * thread / threads, end = blocks * (thread + 1) / threads;
    most = std::max(most, past_caches != 0 ? share<true>(read, written, begin, end, blocks)
                                           : share<false>(read, written, begin, end, blocks));
  }
  return most;
}
