// The threads that OpenMP keeps for a caller, beside which our team computes.
#pragma once

#include <atomic>
#include <cstdint>

namespace tandem::runtime {

/// A call of a program while it lives. Before it begins, the threads that OpenMP keeps for the
/// calling thread are ended, where the call is long enough for that to pay: once their region is
/// over they look for a next one, for some 5 ms, on the cores that our team needs. The next region
/// starts them again.
class CallBesideOpenMP {
 public:
  /// `duration`: ns that the program's last call took, 0: none yet. Written when this one ends.
  explicit CallBesideOpenMP(std::atomic<int64_t>& duration);
  CallBesideOpenMP(const CallBesideOpenMP&) = delete;
  CallBesideOpenMP& operator=(const CallBesideOpenMP&) = delete;
  ~CallBesideOpenMP();

 private:
  std::atomic<int64_t>& duration_;
  int64_t begin_ = 0;
};

}  // namespace tandem::runtime
