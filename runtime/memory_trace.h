// What the allocator really held while a program ran. Off unless started.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

namespace tandem::runtime {

class MemoryTrace {
 public:
  /// Bytes that the allocator of the process had handed out, to whomever: calls of other threads
  /// are among them.
  struct Call {
    int64_t before = 0;          // when the call began
    std::vector<int64_t> peaks;  // at each step, at most; empty before the first call
  };

  void start() { running_ = true; }
  bool running() const { return running_; }
  void keep(Call call) {
    const std::lock_guard<std::mutex> lock(mutex_);
    last_ = std::move(call);
  }
  /// Of the call that ended last.
  Call last() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return last_;
  }

 private:
  mutable std::mutex mutex_;
  bool running_ = false;
  Call last_;
};

}  // namespace tandem::runtime
