// In a training step hundreds of saved activations are freed while gradients of other sizes are
// made: free lists by size would hold both. Here freed neighbours become one range. Fresh pages
// cost several times a warm write, so a request takes the smallest warm part that holds it, the
// lowest of equals; where none does, the place of a free range that lacks fewest pages. Between
// blocks that stay, warm memory lies in pieces that no request fits in, and new pages would be
// touched beside them. Then pieces go back to the system, as many as keep all pages at what blocks
// once took. That costs faults, so it is for a first step: what came in an earlier one lies where
// a plan of that one says (rounds.h), without pieces. Regions are much larger than what is touched
// of them: only touched pages cost memory.
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
// What is kept beyond the most that was in use: a step of the same program should find all it
// needs.
constexpr int64_t kLeastSlack = 2 << 20;
constexpr int64_t kSlackShare = 128;
constexpr int64_t kPlanSlack = 4 << 20;  // beyond a plan: what is no part of it

int64_t round_up(int64_t bytes, int64_t unit) { return (bytes + unit - 1) / unit * unit; }

std::byte* huge_page_below(std::byte* at) {
  return at - reinterpret_cast<uintptr_t>(at) % static_cast<uintptr_t>(kHugePage);
}

std::byte* huge_page_above(std::byte* at) { return huge_page_below(at + kHugePage - 1); }

// On a boundary of huge pages; null without memory.
std::byte* map_region(int64_t bytes) {
  const size_t wanted = static_cast<size_t>(bytes + kHugePage);
  void* const mapped = mmap(nullptr, wanted, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  std::byte* const from = static_cast<std::byte*>(mapped);
  std::byte* const start = huge_page_above(from);
  if (start > from) munmap(from, static_cast<size_t>(start - from));
  munmap(start + bytes, wanted - static_cast<size_t>(start - from + bytes));
  madvise(start, static_cast<size_t>(bytes), MADV_HUGEPAGE);
  return start;
}

}  // namespace

int64_t Regions::rounded(int64_t bytes) { return round_up(bytes, kPage); }

void* Regions::allocate(int64_t bytes) {
  TD_CHECK(bytes > 0 && bytes % kPage == 0) << "block of " << bytes << " bytes";
  std::byte* start = find(bytes);
  if (start == nullptr && !add_region_for(bytes)) return nullptr;
  if (start == nullptr) start = search(bytes);
  take(start, bytes);
  rounds_.took(start, bytes);
  live_ += bytes;
  most_live_ = std::max(most_live_, live_);
  keep_to_bound();
  return start;
}

void Regions::release(void* block, int64_t bytes) {
  rounds_.released(static_cast<std::byte*>(block));
  add(static_cast<std::byte*>(block), {bytes, true});
  live_ -= bytes;
}

// --- Where a block goes ---

std::byte* Regions::find(int64_t bytes) {
  std::byte* const start = planned(bytes);
  return start != nullptr ? start : search(bytes);
}

// Where the plan says, if nobody is there.
std::byte* Regions::planned(int64_t bytes) {
  const std::optional<int64_t> offset = rounds_.expect(bytes);
  if (!offset) return nullptr;
  if (rounds_.is_first()) find_base(*rounds_.plan());
  std::byte* const base = rounds_.plan()->base;
  return base != nullptr && is_free(base + *offset, bytes) ? base + *offset : nullptr;
}

// Stays from round to round while it is free when a round begins.
void Regions::find_base(Rounds::Plan& plan) {
  if (plan.base != nullptr && is_free(plan.base, plan.placement.bytes)) return;
  plan.base = search(plan.placement.bytes);
  if (plan.base == nullptr && add_region_for(plan.placement.bytes))
    plan.base = search(plan.placement.bytes);
}

bool Regions::is_free(std::byte* start, int64_t bytes) const {
  std::byte* const end = start + bytes;
  Parts::const_iterator at = part_with(start);
  for (std::byte* reached = start; at != parts_.end() && at->first <= reached; ++at) {
    if (at->first > start && regions_.contains(at->first)) return false;
    reached = at->first + at->second.bytes;
    if (reached >= end) return true;
  }
  return false;
}

std::byte* Regions::search(int64_t bytes) const {
  const auto warm = warm_by_size_.lower_bound({bytes, nullptr});
  if (warm != warm_by_size_.end()) return warm->second;
  std::optional<Place> best;
  for (Parts::const_iterator first = parts_.begin(); first != parts_.end();) {
    const Parts::const_iterator last = end_of_range(first);
    consider(first, last, bytes, best);
    first = last;
  }
  return best ? best->start : nullptr;
}

// Behind the parts of a region that touch.
Regions::Parts::const_iterator Regions::end_of_range(Parts::const_iterator first) const {
  Parts::const_iterator at = first;
  std::byte* end = nullptr;
  do {
    end = at->first + at->second.bytes;
    ++at;
  } while (at != parts_.end() && at->first == end && regions_.count(end) == 0);
  return at;
}

// In the range of these parts a block begins where one of them begins, or ends where one ends.
void Regions::consider(Parts::const_iterator first, Parts::const_iterator last, int64_t bytes,
                       std::optional<Place>& best) const {
  const Parts::const_iterator back = std::prev(last);
  std::byte* const begin = first->first;
  std::byte* const end = back->first + back->second.bytes;
  if (end - begin < bytes) return;
  const auto look = [&](std::byte* start) {
    Place place{start, 0};
    for (Parts::const_iterator at = first; at != last; ++at) {
      if (at->second.is_warm) continue;
      std::byte* const from = std::max(at->first, start);
      std::byte* const to = std::min(at->first + at->second.bytes, start + bytes);
      place.cold += std::max<int64_t>(to - from, 0);
    }
    if (!best || place.cold < best->cold) best = place;
  };
  for (Parts::const_iterator at = first; at != last; ++at) {
    look(std::min(at->first, end - bytes));
    look(std::max(at->first + at->second.bytes - bytes, begin));
  }
}

Regions::Parts::const_iterator Regions::part_with(std::byte* at) const {
  const Parts::const_iterator after = parts_.upper_bound(at);
  if (after == parts_.begin()) return parts_.end();
  const Parts::const_iterator part = std::prev(after);
  return at < part->first + part->second.bytes ? part : parts_.end();
}

// A huge page that has nothing comes as a whole, so what lies before the block on its first one is
// warm afterwards, and so is what lies behind it on its last one.
std::byte* Regions::warmed_from(std::byte* start) const {
  const Parts::const_iterator part = part_with(start);
  std::byte* const page = huge_page_below(start);
  const bool is_empty = !part->second.is_warm && part->first <= page &&
                        page + kHugePage <= part->first + part->second.bytes;
  return is_empty ? page : start;
}

std::byte* Regions::warmed_to(std::byte* end) const {
  const Parts::const_iterator part = part_with(end - 1);
  std::byte* const page = huge_page_below(end - 1);
  const bool is_empty = !part->second.is_warm && part->first <= page &&
                        page + kHugePage <= part->first + part->second.bytes;
  return is_empty ? page + kHugePage : end;
}

void Regions::take(std::byte* start, int64_t bytes) {
  std::byte* const end = start + bytes;
  std::byte* const from = warmed_from(start);
  std::byte* const to = warmed_to(end);
  Parts::iterator at = parts_.find(part_with(from)->first);
  std::byte* const first = at->first;
  const bool is_first_warm = at->second.is_warm;
  Part last;
  std::byte* reached = first;
  while (reached < to) {
    last = at->second;
    reached = at->first + last.bytes;
    at = remove(at);
  }
  if (first < from) add(first, {from - first, is_first_warm});
  if (from < start) add_warmed(from, start - from);
  if (end < to) add_warmed(end, to - end);
  if (to < reached) add(to, {reached - to, last.is_warm});
  Region& region = std::prev(regions_.upper_bound(start))->second;
  std::byte* const origin = std::prev(regions_.upper_bound(start))->first;
  region.used = std::max<int64_t>(region.used, end - origin);
}

// --- Free memory ---

Regions::Parts::iterator Regions::remove(Parts::iterator part) {
  if (part->second.is_warm) {
    warm_by_size_.erase({part->second.bytes, part->first});
    warm_bytes_ -= part->second.bytes;
  }
  return parts_.erase(part);
}

// Joins what is alike beside it in its region.
void Regions::add(std::byte* start, Part part) {
  const Parts::iterator after = parts_.find(start + part.bytes);
  if (after != parts_.end() && after->second.is_warm == part.is_warm &&
      regions_.count(after->first) == 0) {
    part.bytes += after->second.bytes;
    remove(after);
  }
  Parts::iterator before = parts_.lower_bound(start);
  if (before != parts_.begin() && regions_.count(start) == 0) {
    --before;
    if (before->first + before->second.bytes == start && before->second.is_warm == part.is_warm) {
      start = before->first;
      part.bytes += before->second.bytes;
      remove(before);
    }
  }
  parts_.emplace(start, part);
  if (!part.is_warm) return;
  warm_by_size_.emplace(part.bytes, start);
  warm_bytes_ += part.bytes;
}

// The rest of a huge page, which comes now and not with the block's first write: what is counted as
// warm may be given back at once.
void Regions::add_warmed(std::byte* start, int64_t bytes) {
  madvise(start, static_cast<size_t>(kPage), MADV_POPULATE_WRITE);
  add(start, {bytes, true});
}

bool Regions::add_region(int64_t bytes) {
  std::byte* const start = map_region(bytes);
  if (start == nullptr) return false;
  regions_[start] = {bytes, 0};
  reserved_ += bytes;
  add(start, {bytes, false});
  return true;
}

// As large as all before, so that there are few borders, which no block crosses.
bool Regions::add_region_for(int64_t bytes) {
  const int64_t least = round_up(bytes, kHugePage);
  return add_region(std::max({least, kRegion, reserved_})) ||
         add_region(std::max(least, kRegion)) || add_region(least);
}

// Part of a warm part, which goes back to the system.
void Regions::cool(std::byte* start, int64_t bytes) {
  const Parts::iterator part = parts_.find(part_with(start)->first);
  std::byte* const first = part->first;
  std::byte* const end = first + part->second.bytes;
  madvise(start, static_cast<size_t>(bytes), MADV_DONTNEED);
  remove(part);
  if (first < start) add(first, {start - first, true});
  if (start + bytes < end) add(start + bytes, {end - start - bytes, true});
  add(start, {bytes, false});
}

// A plan may have gaps: what it needs beyond would go back and be taken again in every step.
int64_t Regions::bound() {
  const int64_t bound = most_live_ + std::max(kLeastSlack, most_live_ / kSlackShare);
  const Rounds::Plan* const plan = rounds_.plan();
  return plan == nullptr ? bound : std::max(bound, plan->placement.bytes + kPlanSlack);
}

void Regions::keep_to_bound() {
  const int64_t most = bound();
  while (live_ + warm_bytes_ > most && warm_bytes_ > 0) {
    const Piece piece = piece_to_cool(live_ + warm_bytes_ - most);
    cool(piece.start, piece.bytes);
  }
}

// Whole huge pages of the smallest parts that have some, because a part of one is free only when
// all of it is; else of the smallest part, which serves nobody.
Regions::Piece Regions::piece_to_cool(int64_t bytes) const {
  for (auto at = warm_by_size_.lower_bound({kHugePage, nullptr}); at != warm_by_size_.end(); ++at) {
    std::byte* const first = huge_page_above(at->second);
    std::byte* const last = huge_page_below(at->second + at->first);
    const int64_t most = std::min<int64_t>(last - first, round_up(bytes, kHugePage));
    if (most > 0) return {last - most, most};
  }
  const auto& [most, start] = *warm_by_size_.begin();
  const int64_t given = std::min(bytes, most);
  return {start + most - given, given};
}

// A region without a block goes as a whole.
void Regions::trim() {
  while (warm_bytes_ > 0) cool(warm_by_size_.begin()->second, warm_by_size_.begin()->first);
  for (std::map<std::byte*, Region>::iterator it = regions_.begin(); it != regions_.end();) {
    const std::map<std::byte*, Region>::iterator region = it++;
    const Parts::iterator only = parts_.find(region->first);
    if (only == parts_.end() || only->second.bytes != region->second.bytes) continue;
    unpoison(region->first, region->second.used);
    munmap(region->first, static_cast<size_t>(region->second.bytes));
    reserved_ -= region->second.bytes;
    remove(only);
    regions_.erase(region);
  }
  most_live_ = live_;
}

}  // namespace tandem::runtime
