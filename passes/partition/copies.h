// Copies of nodes for readers further down the graph.
#pragma once

#include <functional>

#include "passes/partition/partition.h"

namespace tandem::passes {

/// Of values that are not at hand where they are read: what makes them is copied, operands first,
/// right before the first reader that asks, so that a copy lives no longer than it must. A node is
/// copied at most once.
class Copies {
 public:
  /// Values of graph inputs must be at hand.
  Copies(ir::Graph& graph, std::function<bool(const ir::Value*)> is_at_hand)
      : graph_(graph), is_at_hand_(std::move(is_at_hand)) {}

  /// The reader gets copies in place of what is not at hand.
  void serve(ir::Node& reader);
  /// The value as a reader before `before` sees it.
  ir::Value* available(ir::Value* value, ir::Node* before);
  size_t made() const { return made_; }

 private:
  bool is_available(const ir::Value* value) const;
  ir::Value* now(ir::Value* value) const;
  ir::Value* first_missing(const ir::Value& value) const;
  void copy(const ir::Node& node, ir::Node* before);

  ir::Graph& graph_;
  std::function<bool(const ir::Value*)> is_at_hand_;
  DenseMap<ir::Value, ir::Value*> copies_;
  size_t made_ = 0;
};

}  // namespace tandem::passes
