// Objects that live as long as their container: stable addresses, destroyed together in reverse
// order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace tandem {

/// Owns objects of one type in blocks. Addresses never change; nothing is freed before the arena.
template <class T>
class Arena {
 public:
  Arena() = default;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  Arena(Arena&&) noexcept = default;
  Arena& operator=(Arena&&) noexcept = default;

  template <class... Args>
  T* make(Args&&... args) {
    objects_.push_back(std::make_unique<T>(std::forward<Args>(args)...));
    return objects_.back().get();
  }
  size_t size() const { return objects_.size(); }

 private:
  std::vector<std::unique_ptr<T>> objects_;
};

}  // namespace tandem
