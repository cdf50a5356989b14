// What threads of a block touch between two barriers: for the interpreter, which runs them one
// after the other and would not notice that nothing orders them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>

namespace tandem::loop {

class Races {
 public:
  /// What was touched before is seen by all from here on.
  void wait() { ++turn_; }
  /// Both say whether another thread has touched the element since, one of the two by a store.
  bool load(size_t buffer, int64_t index, int64_t thread);
  bool store(size_t buffer, int64_t index, int64_t thread);

 private:
  struct Touch {
    int64_t turn = -1;
    int64_t thread = 0;
    bool several = false;  // threads
    bool is_of_other(int64_t now, int64_t me) const {
      return turn == now && (several || thread != me);
    }
    void enter(int64_t now, int64_t me) {
      several = turn == now && (several || thread != me);
      turn = now;
      thread = me;
    }
  };
  struct Element {
    Touch load;
    Touch store;
  };
  struct Place {
    size_t buffer;
    int64_t index;
    bool operator==(const Place&) const = default;
  };
  struct PlaceHash {
    size_t operator()(const Place& place) const {
      return static_cast<size_t>(place.index) * 0x9e3779b97f4a7c15 + place.buffer;
    }
  };

  std::unordered_map<Place, Element, PlaceHash> elements_;  // only looked up
  int64_t turn_ = 0;
};

}  // namespace tandem::loop
