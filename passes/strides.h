// Strides as eager would have them, for the one question that depends on them before functionalize
// is done: does a reshape share memory or copy?
#pragma once

#include "base/dense_map.h"
#include "ir/graph.h"

namespace tandem::passes {

class EagerStrides {
 public:
  explicit EagerStrides(const ir::Graph& graph) : graph_(&graph) {}

  /// Notes the strides of a view op's results. False when eager copies instead: elements of the
  /// result do not lie at even steps in self's memory, or the op is `contiguous` and self is not.
  /// UserError for `view`, which never copies.
  bool shares_memory(const ir::Node& view, const ir::Value* self);

 private:
  ir::Sizes of(const ir::Value* value) const;
  std::optional<ir::Sizes> view_strides(const ir::Node& view, const ir::Value* result,
                                        const ir::Sizes& self);
  const ir::Graph* graph_;
  DenseMap<ir::Value, ir::Sizes> strides_;
};

}  // namespace tandem::passes
