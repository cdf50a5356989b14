// Minimum cuts: decisions that are made for all values together, where each has a price and so has
// each pair that is decided differently.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/tuning.h"

namespace tandem {

class FlowNetwork {
 public:
  /// A flow is repaired where the network has so many edges for each that changed.
  explicit FlowNetwork(size_t vertices, int64_t edges_of_repair = Tuning::Saving().edges_of_repair);
  ~FlowNetwork();
  FlowNetwork(FlowNetwork&&) noexcept;

  /// Capacities must not be negative, and a million of the largest must fit an i64. Gives the
  /// number of the edge.
  size_t connect(size_t from, size_t to, int64_t capacity);
  /// Of an edge that is there: a network may be asked again.
  void set_capacity(size_t edge, int64_t capacity);
  /// Capacities and flow as they stand: what is set and found from here on is forgotten by
  /// `recall`.
  void remember();
  void recall();
  /// The weight of the minimum cut between the two. Where few capacities are others than in the
  /// flow before, all of edges from the same source, that flow is repaired: what takes time is what
  /// the changes reach.
  int64_t flow(size_t source, size_t sink);
  /// After flow: what the source still reaches, the smallest source side of all minimum cuts. It
  /// does not depend on the flow that was found.
  std::vector<char> source_side(size_t source) const;
  /// Edges looked at so far, about: a measure of work that is the same on each machine.
  int64_t steps() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tandem
