// The choices that no other one beats.
#pragma once

#include <iterator>
#include <map>
#include <utility>
#include <vector>

#include "passes/partition/budget.h"

namespace tandem::passes {

/// By bytes and by cost; the first of equal ones stays.
class Front {
 public:
  bool beats(int64_t bytes, double cost) const {
    const auto above = by_bytes_.upper_bound(bytes);
    return above != by_bytes_.begin() && std::prev(above)->second.choice.cost <= cost;
  }

  void add(Choice choice) {
    if (beats(choice.bytes, choice.cost)) return;
    const auto first = by_bytes_.lower_bound(choice.bytes);
    auto end = first;
    while (end != by_bytes_.end() && end->second.choice.cost >= choice.cost) ++end;
    by_bytes_.erase(first, end);
    const int64_t bytes = choice.bytes;
    by_bytes_.emplace_hint(end, bytes, Entry{std::move(choice), false});
  }

  /// Of those that were not taken before the one below the widest gap: between it and the next one
  /// a better choice could save so many bytes times so much work. Null: all were taken.
  const Choice* take() {
    Entry* widest = nullptr;
    double most = -1;
    for (auto at = by_bytes_.begin(); at != by_bytes_.end(); ++at) {
      const double gap = gap_above(at);
      if (at->second.is_taken || gap <= most) continue;
      widest = &at->second;
      most = gap;
    }
    if (widest == nullptr) return nullptr;
    widest->is_taken = true;
    return &widest->choice;
  }

  size_t size() const { return by_bytes_.size(); }

  std::vector<Choice> choices() const {
    std::vector<Choice> all;
    for (const auto& [bytes, entry] : by_bytes_) all.push_back(entry.choice);
    return all;
  }

 private:
  struct Entry {
    Choice choice;
    bool is_taken = false;
  };
  using Entries = std::map<int64_t, Entry>;  // cost falls

  double gap_above(Entries::const_iterator at) const {
    const auto next = std::next(at);
    if (next == by_bytes_.end()) return 0;
    const Choice& less = at->second.choice;
    const Choice& more = next->second.choice;
    return static_cast<double>(more.bytes - less.bytes) * (less.cost - more.cost);
  }

  Entries by_bytes_;
};

}  // namespace tandem::passes
