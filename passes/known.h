// Which values are known before the first call, because they depend on constants alone.
#pragma once

#include "base/dense_map.h"
#include "ir/graph.h"

namespace tandem::passes {

/// Whether any input is constant.
bool has_constants(const ir::Graph& graph);

/// Constant inputs that nothing writes, and results of fixed size that are made from such values or
/// from nothing, by ops that neither write nor draw random numbers nor fail because of data.
class KnownValues {
 public:
  explicit KnownValues(const ir::Graph& graph);
  bool has(const ir::Value* value) const { return known_.at(value) != 0; }
  bool has(const ir::Node& node) const { return !node.results.empty() && has(node.results[0]); }

 private:
  bool is_known(const ir::Node& node) const;
  DenseMap<ir::Value, char> known_;
};

}  // namespace tandem::passes
