// Fresh pages are the most expensive memory there is (a page fault costs more than writing the
// page), and a training step asks for the same sizes again and again. So released memory is kept.
// Small blocks, of which a call may take ten in a microsecond, are in free lists, one per size
// class of at most 12.5 % waste, newest first: the block whose lines are still in the cache. Large
// ones come out of Regions.
#include "runtime/allocator.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/diagnostic.h"
#include "runtime/fork.h"
#include "runtime/poison.h"

namespace tandem::runtime {
namespace {

constexpr int64_t kMinBlock = 64;
constexpr int64_t kLarge = 128 << 10;  // from here on in Regions
constexpr int64_t kMaxBlock = int64_t{1} << 46;

struct SizeClass {
  int number;
  int64_t bytes;
};

// Class 8p + q holds blocks of (8 + q) << p bytes, rounded up to the smallest block.
SizeClass size_class(int64_t bytes) {
  const int64_t wanted = std::max(bytes, kMinBlock);
  const int top = std::bit_width(static_cast<uint64_t>(wanted - 1));  // wanted <= 1 << top
  const int shift = std::max(top - 4, 3);
  const int64_t steps = ((wanted - 1) >> shift) + 1;  // 8 … 16 eighths of the lower power
  const int64_t size = ((steps << shift) + kMinBlock - 1) / kMinBlock * kMinBlock;
  return {static_cast<int>(8 * (shift - 3) + (steps - 8)), size};
}

void* fresh_block(int64_t bytes) {
  void* block = nullptr;
  // aligned_alloc wants a multiple of the alignment.
  const int failed =
      posix_memalign(&block, static_cast<size_t>(kMinBlock), static_cast<size_t>(bytes));
  return failed == 0 ? block : nullptr;
}

}  // namespace

int64_t Allocator::class_bytes(int64_t bytes) {
  return bytes < kLarge ? size_class(bytes).bytes : Regions::rounded(bytes);
}

void* Allocator::take_small(int64_t bytes) {
  const SizeClass wanted = size_class(bytes);
  std::vector<void*>& list = cached_[static_cast<size_t>(wanted.number)];
  if (list.empty()) return fresh_block(wanted.bytes);
  void* const block = list.back();
  list.pop_back();
  counters_.cached_bytes -= wanted.bytes;
  return block;
}

// Null without memory.
void* Allocator::take(int64_t bytes) {
  return bytes < kLarge ? take_small(bytes) : regions_.allocate(class_bytes(bytes) + kGap);
}

void* Allocator::allocate(int64_t bytes) {
  TD_CHECK(bytes >= 0) << "block of " << bytes << " bytes";
  if (bytes > kMaxBlock)
    throw UserError("out of memory: " + std::to_string(bytes) + " bytes asked");
  const int64_t taken = class_bytes(bytes);
  const std::lock_guard<std::mutex> lock(mutex_of(ForkLock::memory));
  void* block = take(bytes);
  if (block == nullptr) {
    give_back_cached();
    block = take(bytes);
  }
  if (block == nullptr)
    throw UserError("out of memory: " + std::to_string(bytes) + " bytes asked, " +
                    std::to_string(counters_.live_bytes) + " bytes in use");
  unpoison(block, taken);
  counters_.live_bytes += taken;
  counters_.peak_live_bytes = std::max(counters_.peak_live_bytes, counters_.live_bytes);
  watermark_ = std::max(watermark_, counters_.live_bytes);
  return block;
}

void Allocator::release(void* block, int64_t bytes) {
  const int64_t taken = class_bytes(bytes);
  poison(block, taken);
  const std::lock_guard<std::mutex> lock(mutex_of(ForkLock::memory));
  counters_.live_bytes -= taken;
  if (bytes >= kLarge) return regions_.release(block, taken + kGap);
  cached_[static_cast<size_t>(size_class(bytes).number)].push_back(block);
  counters_.cached_bytes += taken;
}

void Allocator::begin_call(bool lets_go) {
  const std::lock_guard<std::mutex> lock(mutex_of(ForkLock::memory));
  regions_.begin_call(lets_go);
}

void Allocator::trim() {
  const std::lock_guard<std::mutex> lock(mutex_of(ForkLock::memory));
  give_back_cached();
}

void Allocator::give_back_cached() {
  for (std::vector<void*>& list : cached_) {
    for (void* block : list) {
      unpoison(block, kMinBlock);
      std::free(block);
    }
    list.clear();
  }
  counters_.cached_bytes = 0;
  regions_.trim();
}

AllocatorCounters Allocator::counters() const {
  const std::lock_guard<std::mutex> lock(mutex_of(ForkLock::memory));
  AllocatorCounters counters = counters_;
  counters.cached_bytes += regions_.free_bytes();
  return counters;
}

void Allocator::reset_peak() {
  const std::lock_guard<std::mutex> lock(mutex_of(ForkLock::memory));
  counters_.peak_live_bytes = counters_.live_bytes;
}

int64_t Allocator::take_watermark() {
  const std::lock_guard<std::mutex> lock(mutex_of(ForkLock::memory));
  return std::exchange(watermark_, counters_.live_bytes);
}

Allocator& allocator() {
  static Allocator* const instance = new Allocator;
  return *instance;
}

}  // namespace tandem::runtime
