// Side tables: an analysis keeps its facts in a vector indexed by dense id, never in the node.
#pragma once

#include <cstddef>
#include <vector>

namespace tandem {

/// Maps objects with a dense `id` member to T. Reading an id never written gives T{}.
template <class Key, class T>
class DenseMap {
 public:
  DenseMap() = default;
  explicit DenseMap(size_t size) : values_(size) {}

  T& operator[](const Key* key) {
    if (key->id >= values_.size()) values_.resize(key->id + 1);
    return values_[key->id];
  }
  T at(const Key* key) const { return key->id < values_.size() ? T(values_[key->id]) : T{}; }
  const T* find(const Key* key) const {
    return key->id < values_.size() ? &values_[key->id] : nullptr;
  }

 private:
  std::vector<T> values_;
};

}  // namespace tandem
