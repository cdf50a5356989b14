// Numbers that the program reads while it runs, and what has to wait for them.
#pragma once

#include <vector>

#include "base/dense_map.h"
#include "ir/graph.h"

namespace tandem::schedule {

class NumbersRead {
 public:
  explicit NumbersRead(const ir::Graph& graph);

  /// Results of nodes that must have run before the node's results can be computed, inside of
  /// whatever kernel: as numbers, or as the symbols that they give a value. In program order.
  const std::vector<const ir::Value*>& read_for(const ir::Node& node) const;

 private:
  DenseMap<ir::Node, std::vector<const ir::Value*>> needed_;
  std::vector<const ir::Value*> none_;
};

}  // namespace tandem::schedule
