// Problem: a kernel that lacks a barrier gives right numbers wherever threads happen to run in a
// lucky order. Approach: each element remembers who loaded and who stored it in this turn, that is
// since the last barrier; two threads, one of which stores, are a race whatever their order was.
#include "loop/races.h"

namespace tandem::loop {

bool Races::load(size_t buffer, int64_t index, int64_t thread) {
  Element& element = elements_[{buffer, index}];
  element.load.enter(turn_, thread);
  return element.store.is_of_other(turn_, thread);
}

bool Races::store(size_t buffer, int64_t index, int64_t thread) {
  Element& element = elements_[{buffer, index}];
  const bool races =
      element.load.is_of_other(turn_, thread) || element.store.is_of_other(turn_, thread);
  element.store.enter(turn_, thread);
  return races;
}

}  // namespace tandem::loop
