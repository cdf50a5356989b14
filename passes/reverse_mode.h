// Reverse mode over functional nodes: what the passes share that write gradients.
#pragma once

#include <vector>

#include "base/dense_map.h"
#include "ops/opdef.h"

namespace tandem::passes {

/// Gradient nodes go where the builder stands. A gradient that is absent is zero and is not
/// materialised on its way; two contributions add.
class ReverseMode {
 public:
  explicit ReverseMode(ir::Builder& builder) : builder_(builder) {}

  /// To be said of the values that gradients are asked for, before `find_needs`.
  void mark(const ir::Value* value) { needs_[value] = 1; }
  /// Values that marked ones reach over these nodes, which are in order.
  void find_needs(const std::vector<ir::Node*>& nodes);
  bool needs(const ir::Value* value) const { return needs_.at(value); }

  /// Adds to the gradient of a value.
  void accumulate(const ir::Value* value, ops::Tensor grad);
  /// Writes the gradients of what the nodes read, last node first.
  void visit(const std::vector<ir::Node*>& nodes);
  /// Empty where it is zero.
  ops::Tensor gradient(const ir::Value* value) const { return grads_.at(value); }
  /// A history goes on from it to what gradients started from; its gradient may be zero.
  bool is_reached(const ir::Value* value) const { return reached_.at(value); }

 private:
  void visit(const ir::Node& node);
  void write_gradients(const ir::Node& node, const std::vector<ops::Tensor>& grads);
  void pass_on(const ir::Node& node, const ops::Gradient& gradient);

  ir::Builder& builder_;
  DenseMap<ir::Value, char> needs_;
  DenseMap<ir::Value, ops::Tensor> grads_;
  DenseMap<ir::Value, char> reached_;
};

}  // namespace tandem::passes
