// Minimum cuts: decisions that are made for all values together, where each has a price and so has
// each pair that is decided differently.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace tandem {

class FlowNetwork {
 public:
  explicit FlowNetwork(size_t vertices);
  ~FlowNetwork();
  FlowNetwork(FlowNetwork&&) noexcept;

  /// Capacities must not be negative, and a million of the largest must fit an i64. Gives the
  /// number of the edge.
  size_t connect(size_t from, size_t to, int64_t capacity);
  /// Of an edge that is there: a network may be asked again.
  void set_capacity(size_t edge, int64_t capacity);
  /// The weight of the minimum cut between the two.
  int64_t flow(size_t source, size_t sink);
  /// After flow: what the source still reaches, the smallest source side of all minimum cuts.
  std::vector<char> source_side(size_t source) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tandem
