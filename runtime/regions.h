// Memory for large blocks, cut out of regions that the system gives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "runtime/rounds.h"

namespace tandem::runtime {

/// Not thread-safe. Blocks lie on whole pages (4 KiB) of regions on huge pages. A released block
/// joins the free memory beside it, so that many small ones make room for a large one. What it
/// keeps of released memory is, together with the blocks, hardly more than the blocks were at their
/// most. What a step asks for like a step before lies so that no page goes back or comes anew.
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
  /// A program runs from here on; see Rounds.
  void begin_call(bool lets_go) { rounds_.begin_call(lets_go); }
  /// Gives the pages of free memory back to the system.
  void trim();
  /// Of free memory that still has its pages.
  int64_t free_bytes() const { return warm_bytes_; }

 private:
  /// A part of free memory that has pages throughout, is warm, or has none.
  struct Part {
    int64_t bytes = 0;
    bool is_warm = false;
  };
  struct Region {
    int64_t bytes = 0;
    int64_t used = 0;  // bytes beyond have never been part of a block
  };
  using Parts = std::map<std::byte*, Part>;
  struct Piece {
    std::byte* start = nullptr;
    int64_t bytes = 0;
  };
  /// Where a block may lie, and how much of it has no pages.
  struct Place {
    std::byte* start = nullptr;
    int64_t cold = 0;
  };

  std::byte* find(int64_t bytes);
  std::byte* planned(int64_t bytes);
  void find_base(Rounds::Plan& plan);
  std::byte* search(int64_t bytes) const;
  bool is_free(std::byte* start, int64_t bytes) const;
  void consider(Parts::const_iterator first, Parts::const_iterator last, int64_t bytes,
                std::optional<Place>& best) const;
  Parts::const_iterator end_of_range(Parts::const_iterator first) const;
  void take(std::byte* start, int64_t bytes);
  std::byte* warmed_from(std::byte* start) const;
  std::byte* warmed_to(std::byte* end) const;
  Parts::const_iterator part_with(std::byte* at) const;
  void add(std::byte* start, Part part);
  Parts::iterator remove(Parts::iterator part);
  bool add_region(int64_t bytes);
  bool add_region_for(int64_t bytes);
  void add_warmed(std::byte* start, int64_t bytes);
  int64_t bound();
  void keep_to_bound();
  Piece piece_to_cool(int64_t bytes) const;
  void cool(std::byte* start, int64_t bytes);

  std::map<std::byte*, Region> regions_;  // by address
  Parts parts_;                           // by address; no two alike of a region touch
  std::set<std::pair<int64_t, std::byte*>> warm_by_size_;
  Rounds rounds_;
  int64_t reserved_ = 0;
  int64_t warm_bytes_ = 0;
  int64_t live_ = 0;
  int64_t most_live_ = 0;  // since the last trim
};

}  // namespace tandem::runtime
