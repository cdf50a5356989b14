// In a training step hundreds of saved activations are freed while gradients of other sizes are
// made: free lists by size would hold both. Here freed neighbours become one range. A request takes
// the smallest range that holds it, the lowest of equals; what has never been touched costs page
// faults and is taken last. Regions are much larger than what is touched of them: only touched
// pages cost memory.
#include "runtime/regions.h"

#include <sys/mman.h>

#include <algorithm>

#include "base/check.h"
#include "runtime/poison.h"

namespace tandem::runtime {
namespace {

constexpr int64_t kPage = 4096;
constexpr int64_t kHugePage = 2 << 20;
constexpr int64_t kRegion = 256 << 20;

int64_t round_up(int64_t bytes, int64_t unit) { return (bytes + unit - 1) / unit * unit; }

// On a boundary of huge pages; null without memory.
std::byte* map_region(int64_t bytes) {
  const size_t wanted = static_cast<size_t>(bytes + kHugePage);
  void* const mapped = mmap(nullptr, wanted, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  const uintptr_t address = reinterpret_cast<uintptr_t>(mapped);
  const size_t head = static_cast<size_t>(-address % static_cast<uintptr_t>(kHugePage));
  std::byte* const start = static_cast<std::byte*>(mapped) + head;
  if (head > 0) munmap(mapped, head);
  munmap(start + bytes, static_cast<size_t>(kHugePage) - head);
  madvise(start, static_cast<size_t>(bytes), MADV_HUGEPAGE);
  return start;
}

}  // namespace

int64_t Regions::rounded(int64_t bytes) { return round_up(bytes, kPage); }

Regions::Ranges::iterator Regions::add_free(std::byte* start, const Range& range) {
  by_size_.emplace(range.bytes, start);
  return free_.emplace(start, range).first;
}

void Regions::remove_free(Ranges::iterator range) {
  by_size_.erase({range->second.bytes, range->first});
  free_.erase(range);
}

std::byte* Regions::take(std::byte* start, int64_t bytes) {
  const Ranges::iterator found = free_.find(start);
  const Range rest{found->second.bytes - bytes, found->second.has_pages};
  remove_free(found);
  if (rest.bytes > 0) add_free(start + bytes, rest);
  return start;
}

void* Regions::allocate(int64_t bytes) {
  TD_CHECK(bytes > 0 && bytes % kPage == 0) << "block of " << bytes << " bytes";
  const std::set<std::pair<int64_t, std::byte*>>::iterator fitting =
      by_size_.lower_bound({bytes, nullptr});
  if (fitting != by_size_.end()) return take(fitting->second, bytes);
  if (std::byte* const block = extend(bytes)) return block;
  const int64_t least = round_up(bytes, kHugePage);
  if (!add_region(std::max(least, kRegion)) && !add_region(least)) return nullptr;
  return extend(bytes);
}

std::byte* Regions::extend(int64_t bytes) {
  for (std::pair<std::byte* const, Region>& region : regions_)
    if (std::byte* const block = extend(region.first, region.second, bytes)) return block;
  return nullptr;
}

// The free range at the end of what was used, where there is one, and untouched memory behind it.
std::byte* Regions::extend(std::byte* start, Region& region, int64_t bytes) {
  int64_t begin = region.used;
  Ranges::iterator last = free_.lower_bound(start + region.used);
  const bool has_last = last != free_.begin() && (--last)->first >= start &&
                        last->first + last->second.bytes == start + region.used;
  if (has_last) begin -= last->second.bytes;
  if (begin + bytes > region.bytes) return nullptr;
  if (has_last) remove_free(last);
  region.used = begin + bytes;
  return start + begin;
}

bool Regions::add_region(int64_t bytes) {
  std::byte* const start = map_region(bytes);
  if (start != nullptr) regions_[start] = {bytes, 0};
  return start != nullptr;
}

void Regions::release(void* block, int64_t bytes) {
  std::byte* start = static_cast<std::byte*>(block);
  Range range{bytes, true};
  const Ranges::iterator after = free_.find(start + bytes);
  if (after != free_.end() && regions_.count(start + bytes) == 0) {
    range.bytes += after->second.bytes;
    remove_free(after);
  }
  Ranges::iterator before = free_.lower_bound(start);
  if (before != free_.begin() && regions_.count(start) == 0) {
    --before;
    if (before->first + before->second.bytes == start) {
      start = before->first;
      range.bytes += before->second.bytes;
      remove_free(before);
    }
  }
  add_free(start, range);
}

// A region without a block goes as a whole.
void Regions::trim() {
  for (std::map<std::byte*, Region>::iterator it = regions_.begin(); it != regions_.end();) {
    const std::map<std::byte*, Region>::iterator region = it++;
    const Ranges::iterator only = free_.find(region->first);
    if (only == free_.end() || only->second.bytes != region->second.used) continue;
    unpoison(region->first, region->second.used);
    munmap(region->first, static_cast<size_t>(region->second.bytes));
    remove_free(only);
    regions_.erase(region);
  }
  for (Ranges::value_type& range : free_) {
    if (range.second.has_pages)
      madvise(range.first, static_cast<size_t>(range.second.bytes), MADV_DONTNEED);
    range.second.has_pages = false;
  }
}

int64_t Regions::free_bytes() const {
  int64_t bytes = 0;
  for (const Ranges::value_type& range : free_)
    if (range.second.has_pages) bytes += range.second.bytes;
  return bytes;
}

}  // namespace tandem::runtime
