// Fresh pages are the most expensive memory there is (a page fault costs more than writing the
// page), and a training step asks for the same sizes again and again. So released blocks are kept
// in free lists, one per size class of at most 12.5 % waste, newest first: the block whose lines
// are still in the cache. The first block of a class comes from posix_memalign; large ones ask for
// huge pages, as far as whole ones fit: a weight of 768 x 768 would fill only 18 % of its second
// one.
#include "runtime/allocator.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <string>

#include "base/check.h"
#include "base/diagnostic.h"
#include "runtime/fork.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, size) ((void)(address), (void)(size))
#define ASAN_UNPOISON_MEMORY_REGION(address, size) ((void)(address), (void)(size))
#endif

namespace tandem::runtime {
namespace {

constexpr int64_t kMinBlock = 64;
constexpr int64_t kHugePage = 2 << 20;
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
  const bool huge = bytes >= kHugePage;
  const size_t size = static_cast<size_t>(bytes);
  void* block = nullptr;
  // aligned_alloc wants a multiple of the alignment.
  if (posix_memalign(&block, static_cast<size_t>(huge ? kHugePage : kMinBlock), size) != 0)
    return nullptr;
  const size_t whole_pages = static_cast<size_t>(bytes / kHugePage * kHugePage);
  if (huge) madvise(block, whole_pages, MADV_HUGEPAGE);
  return block;
}

}  // namespace

int64_t Allocator::class_bytes(int64_t bytes) { return size_class(bytes).bytes; }

void* Allocator::allocate(int64_t bytes) {
  TD_CHECK(bytes >= 0) << "block of " << bytes << " bytes";
  if (bytes > kMaxBlock)
    throw UserError("out of memory: " + std::to_string(bytes) + " bytes asked");
  const SizeClass wanted = size_class(bytes);
  void* block = nullptr;
  {
    const std::lock_guard<std::mutex> lock(mutex_of(ForkLock::memory));
    counters_.live_bytes += wanted.bytes;
    counters_.peak_live_bytes = std::max(counters_.peak_live_bytes, counters_.live_bytes);
    std::vector<void*>& list = cached_[static_cast<size_t>(wanted.number)];
    if (!list.empty()) {
      block = list.back();
      list.pop_back();
      counters_.cached_bytes -= wanted.bytes;
    }
  }
  if (block != nullptr) {
    ASAN_UNPOISON_MEMORY_REGION(block, static_cast<size_t>(wanted.bytes));
    return block;
  }
  block = fresh_block(wanted.bytes);
  if (block == nullptr) {
    trim();
    block = fresh_block(wanted.bytes);
  }
  if (block != nullptr) return block;
  const std::lock_guard<std::mutex> lock(mutex_of(ForkLock::memory));
  counters_.live_bytes -= wanted.bytes;
  throw UserError("out of memory: " + std::to_string(bytes) + " bytes asked, " +
                  std::to_string(counters_.live_bytes) + " bytes in use");
}

void Allocator::release(void* block, int64_t bytes) {
  const SizeClass wanted = size_class(bytes);
  ASAN_POISON_MEMORY_REGION(block, static_cast<size_t>(wanted.bytes));
  const std::lock_guard<std::mutex> lock(mutex_of(ForkLock::memory));
  cached_[static_cast<size_t>(wanted.number)].push_back(block);
  counters_.live_bytes -= wanted.bytes;
  counters_.cached_bytes += wanted.bytes;
}

void Allocator::trim() {
  std::array<std::vector<void*>, kClasses> lists;
  {
    const std::lock_guard<std::mutex> lock(mutex_of(ForkLock::memory));
    lists.swap(cached_);
    counters_.cached_bytes = 0;
  }
  for (const std::vector<void*>& list : lists) {
    for (void* block : list) {
      ASAN_UNPOISON_MEMORY_REGION(block, kMinBlock);
      std::free(block);
    }
  }
}

AllocatorCounters Allocator::counters() const {
  const std::lock_guard<std::mutex> lock(mutex_of(ForkLock::memory));
  return counters_;
}

void Allocator::reset_peak() {
  const std::lock_guard<std::mutex> lock(mutex_of(ForkLock::memory));
  counters_.peak_live_bytes = counters_.live_bytes;
}

Allocator& allocator() {
  static Allocator* const instance = new Allocator;
  return *instance;
}

}  // namespace tandem::runtime
