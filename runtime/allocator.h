// Caching allocator of all tensor memory: arenas, outputs, saved activations, scratch.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/regions.h"

namespace tandem::runtime {

/// Bytes are those that requests really take.
struct AllocatorCounters {
  int64_t live_bytes = 0;       // handed out
  int64_t cached_bytes = 0;     // released and kept
  int64_t peak_live_bytes = 0;  // highest live_bytes since the start or `reset_peak`
};

/// Thread-safe. Released memory is kept for later requests, because fresh pages cost six times a
/// warm write: small blocks in a free list of their size class, large ones in Regions, on huge
/// pages. Blocks are 64-byte aligned.
class Allocator {
 public:
  Allocator() = default;
  Allocator(const Allocator&) = delete;
  Allocator& operator=(const Allocator&) = delete;
  /// Gives back what is cached; blocks still live are leaked, never freed under their owner.
  ~Allocator() { trim(); }

  /// Memory of at least `bytes` bytes with unspecified content. Zero bytes give a valid block too.
  /// Throws UserError when the system has no memory left, after giving back what was cached.
  void* allocate(int64_t bytes);
  /// `bytes` is what was asked of `allocate`.
  void release(void* block, int64_t bytes);
  /// A program runs from here on, which lets go of its arguments or not; see Rounds.
  void begin_call(bool lets_go);
  /// Returns cached blocks to the system.
  void trim();
  AllocatorCounters counters() const;
  void reset_peak();
  /// The most that was handed out since this was asked last, for one who watches step by step.
  int64_t take_watermark();

  /// Bytes that a request really takes: powers of two in eight steps, then whole pages.
  static int64_t class_bytes(int64_t bytes);

 private:
  static constexpr int kClasses = 8 * 16;
  void* take(int64_t bytes);
  void* take_small(int64_t bytes);
  void give_back_cached();

  std::array<std::vector<void*>, kClasses> cached_;
  Regions regions_;
  AllocatorCounters counters_;  // cached_bytes: of the free lists
  int64_t watermark_ = 0;
};

/// The allocator of the process; never destroyed, so that arrays with static storage may outlive
/// main.
Allocator& allocator();

/// A block of the process's allocator for the length of a scope.
class ScopedBlock {
 public:
  explicit ScopedBlock(int64_t bytes) : bytes_(bytes), data_(allocator().allocate(bytes)) {}
  ~ScopedBlock() { allocator().release(data_, bytes_); }
  ScopedBlock(const ScopedBlock&) = delete;
  ScopedBlock& operator=(const ScopedBlock&) = delete;
  std::byte* data() const { return static_cast<std::byte*>(data_); }

 private:
  int64_t bytes_;
  void* data_;
};

}  // namespace tandem::runtime
