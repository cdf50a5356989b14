// What is known of a machine. Schedule and mapping decide from it; codegen reads what they wrote.
#pragma once

#include <cstdint>
#include <string>

#include "base/tuning.h"

namespace tandem {

enum class Isa : uint8_t { avx2, avx512 };

/// What a GPU's blocks of threads may take.
struct Gpu {
  int warp = 0;  // threads that go in step; 0: the target is no GPU
  int block_threads = 0;
  int64_t shared_bytes = 0;  // of a block
  int registers = 0;         // of a thread, of 32 bits
  int multiprocessors = 0;
  bool operator==(const Gpu&) const = default;
};

template <class A>
void fields(A& archive, Gpu& gpu) {
  auto& [warp, block_threads, shared_bytes, registers, multiprocessors] = gpu;
  archive(warp, block_threads, shared_bytes, registers, multiprocessors);
}

struct Target {
  std::string cpu;       // LLVM's name of the processor, "znver4", "sm_90"
  std::string features;  // LLVM's feature string, "+avx512f,+fma,…"
  Isa isa = Isa::avx2;
  int vector_bytes = 32;  // width of one register
  int cores = 1;
  // Of data; of one cache, however many cores share it. These are sizes of a usual machine.
  int64_t l1_bytes = 32 << 10;
  int64_t l2_bytes = 1 << 20;
  int64_t l3_bytes = 32 << 20;
  Gpu gpu;
  Tuning tuning;

  bool is_gpu() const { return gpu.warp != 0; }
  /// Whether one instruction sums products of bytes: (AVX512_)VNNI, dp4a.
  bool multiplies_bytes() const {
    return is_gpu() || features.find("+avx512vnni") != std::string::npos ||
           features.find("+avxvnni,") != std::string::npos;
  }
  /// Whether a matrix unit sums tiles of them: AMX.
  bool multiplies_tiles() const {
    return !is_gpu() && features.find("+amx-int8") != std::string::npos;
  }
  /// Whether it sums tiles of bf16 in f32.
  bool multiplies_bf16_tiles() const {
    return !is_gpu() && features.find("+amx-bf16") != std::string::npos;
  }
  /// Whether one instruction of vector registers sums products of two bf16 in f32.
  bool multiplies_bf16() const {
    return !is_gpu() && isa == Isa::avx512 && features.find("+avx512bf16") != std::string::npos;
  }
  /// Lanes of a loop whose widest common element is f32.
  int lanes() const { return vector_bytes / 4; }
  bool operator==(const Target&) const = default;
};

/// For base/archive.h: keys of caches and compiled programs hold all of it.
template <class A>
void fields(A& archive, Target& target) {
  auto& [cpu, features, isa, vector_bytes, cores, l1_bytes, l2_bytes, l3_bytes, gpu, tuning] =
      target;
  archive(cpu, features, isa, vector_bytes, cores, l1_bytes, l2_bytes, l3_bytes, gpu, tuning);
}

}  // namespace tandem
