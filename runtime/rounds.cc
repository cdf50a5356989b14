// Problem: where a block should lie depends on how long it will live, and on what will be asked for
// meanwhile. An allocator that does not know leaves gaps of up to a sixth in a training step.
// Approach: a step asks for what the step before asked for. Its requests are written down with
// their lifetimes, and placed as offline as an arena's temporaries are. The next round's requests
// are looked up in order; a request that was not there before is stepped over, and so are a few
// that do not come.
#include "runtime/rounds.h"

#include <algorithm>
#include <span>

namespace tandem::runtime {
namespace {

constexpr size_t kMostRequests = 8192;  // placing takes the square of them
constexpr size_t kMostPlans = 8;
constexpr size_t kMostPlaced = 16;  // of programs that take turns
constexpr size_t kLookAhead = 16;
constexpr int64_t kGapShare = 8;  // a plan with more gaps is none

bool is_beginning_of(const std::vector<Lifetime>& part, const std::vector<Lifetime>& whole) {
  return part.size() < whole.size() && std::ranges::equal(part, std::span(whole).first(part.size()),
                                                          {}, &Lifetime::bytes, &Lifetime::bytes);
}

}  // namespace

void Rounds::begin_call(bool lets_go) {
  if (!lets_go && (has_let_go_ || alive_.empty())) begin_round();
  has_let_go_ |= lets_go;
}

void Rounds::begin_round() {
  keep_plan();
  requests_.clear();
  alive_.clear();
  plan_ = nullptr;
  next_ = 0;
  clock_ = 0;
  has_let_go_ = false;
  is_recording_ = true;
}

// Only what has come twice takes the place of another plan, because placing takes time. A round
// that stopped early, as one without backward does, leaves the plan of a longer one.
void Rounds::keep_plan() {
  if (requests_.empty() || requests_.size() > kMostRequests) return;
  for (const auto& [block, request] : alive_) requests_[request].last_use = clock_;
  if (plans_.size() >= kMostPlans && !plans_.contains(requests_[0].bytes)) plans_.clear();
  Plan& plan = plans_[requests_[0].bytes];
  if (plan.requests == requests_ || is_beginning_of(requests_, plan.requests)) return;
  if (plan.requests.empty() || plan.latest == requests_) {
    plan.placement = placement_of_round();
    plan.is_good = plan.placement.bytes <= peak_of(requests_) / kGapShare * (kGapShare + 1);
    plan.requests = requests_;
  }
  plan.latest = requests_;
}

// Steps of programs that take turns may begin alike: their plans replace one another, and are not
// made again.
const Placement& Rounds::placement_of_round() {
  const auto known = std::ranges::find(placed_, requests_, &Placed::requests);
  if (known != placed_.end()) {
    std::rotate(known, known + 1, placed_.end());
    return placed_.back().placement;
  }
  if (placed_.size() == kMostPlaced) placed_.erase(placed_.begin());
  ++placements_;
  placed_.push_back({requests_, place_tightly(requests_)});
  return placed_.back().placement;
}

std::optional<int64_t> Rounds::expect(int64_t bytes) {
  if (is_recording_ && requests_.empty()) {
    const auto found = plans_.find(bytes);
    const bool is_good = found != plans_.end() && found->second.is_good;
    plan_ = is_good ? &found->second : nullptr;
  }
  if (plan_ == nullptr) return std::nullopt;
  const size_t end = std::min(plan_->requests.size(), next_ + kLookAhead);
  for (size_t at = next_; at < end; ++at) {
    if (plan_->requests[at].bytes != bytes) continue;
    next_ = at + 1;
    return plan_->placement.offsets[at];
  }
  return std::nullopt;
}

void Rounds::took(std::byte* block, int64_t bytes) {
  if (!is_recording_ || requests_.size() > kMostRequests) return;
  ++clock_;
  alive_[block] = requests_.size();
  requests_.push_back({bytes, clock_, clock_});
}

void Rounds::released(std::byte* block) {
  const auto request = alive_.find(block);
  if (request == alive_.end()) return;
  requests_[request->second].last_use = clock_;
  alive_.erase(request);
}

}  // namespace tandem::runtime
