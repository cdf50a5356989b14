// The requests of a training step, which come again in the next one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "runtime/placement.h"

namespace tandem::runtime {

/// Rounds of requests that are mostly like earlier ones. Keeps the sizes and lifetimes of some, and
/// where blocks would lie so that little is wasted. Rounds are told apart by their first request.
class Rounds {
 public:
  /// What one round asked for, and where it should have been.
  struct Plan {
    std::vector<Lifetime> requests;
    std::vector<Lifetime> latest;  // of the last round of this kind
    Placement placement;
    bool is_good = false;       // has few gaps
    std::byte* base = nullptr;  // for who places blocks to keep
  };

  /// A program runs. One that lets go of its arguments is the end of a round, or near it: the next
  /// one that does not begins another round; so does one that finds no block of this round alive.
  void begin_call(bool lets_go);
  /// The offset of the next request's block; none where the plan has no such request there.
  std::optional<int64_t> expect(int64_t bytes);
  /// Of the request that was asked about last.
  void took(std::byte* block, int64_t bytes);
  void released(std::byte* block);
  /// Of this round, from its first request on, if there was one like it; else null.
  Plan* plan() { return plan_; }
  /// Whether nothing has been asked for in this round.
  bool is_first() const { return requests_.empty(); }
  /// How often blocks were placed, which takes tens of milliseconds: once for requests that come
  /// again, also with others between that begin alike.
  int64_t placements() const { return placements_; }

 private:
  void begin_round();
  void keep_plan();
  const Placement& placement_of_round();

  struct Placed {
    std::vector<Lifetime> requests;
    Placement placement;
  };

  std::map<int64_t, Plan> plans_;  // by the bytes of the first request
  std::vector<Placed> placed_;     // the latest last
  int64_t placements_ = 0;
  std::vector<Lifetime> requests_;      // of this round
  std::map<std::byte*, size_t> alive_;  // of these requests
  Plan* plan_ = nullptr;
  size_t next_ = 0;     // of the plan's requests
  uint32_t clock_ = 0;  // counts what happens in this round
  bool has_let_go_ = false;
  bool is_recording_ = false;
};

}  // namespace tandem::runtime
