// Memory for large blocks, cut out of regions that the system gives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <utility>

namespace tandem::runtime {

/// Not thread-safe. Blocks lie on whole pages (4 KiB) of regions on huge pages. A released block
/// joins the free ranges beside it, so that many small ones make room for a large one.
class Regions {
 public:
  Regions() = default;
  Regions(const Regions&) = delete;
  Regions& operator=(const Regions&) = delete;

  /// What a request of `bytes` takes: whole pages.
  static int64_t rounded(int64_t bytes);
  /// `bytes` is rounded. Null when the system has no memory left.
  void* allocate(int64_t bytes);
  /// `bytes` as at `allocate`.
  void release(void* block, int64_t bytes);
  /// Gives the pages of free ranges back to the system.
  void trim();
  /// Of free ranges that still have their pages; one that joined such a range counts as well.
  int64_t free_bytes() const;

 private:
  struct Range {
    int64_t bytes = 0;
    bool has_pages = true;
  };
  struct Region {
    int64_t bytes = 0;
    int64_t used = 0;  // bytes beyond have never been part of a block
  };
  using Ranges = std::map<std::byte*, Range>;

  Ranges::iterator add_free(std::byte* start, const Range& range);
  void remove_free(Ranges::iterator range);
  std::byte* take(std::byte* start, int64_t bytes);
  std::byte* extend(int64_t bytes);
  std::byte* extend(std::byte* start, Region& region, int64_t bytes);
  bool add_region(int64_t bytes);

  std::map<std::byte*, Region> regions_;  // by address
  Ranges free_;                           // by address; no two of a region touch
  std::set<std::pair<int64_t, std::byte*>> by_size_;
};

}  // namespace tandem::runtime
