// What items read: a question about their computations, asked once an item. At another position it
// is the same with other axes.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "schedule/kernel_graph.h"

namespace tandem::schedule {

/// Elements of realised values and inputs, by their row-major position.
using ReadList = std::vector<std::pair<const ir::Value*, sym::Expr>>;

/// All that has no place inlined, over the axes of the item's computation.
struct ItemReads {
  ReadList at;
  bool can_fail = false;
};

/// The elements of tensors among the parts of scalars.
std::vector<loop::Val> elements_of(const Computations& computations,
                                   std::span<const loop::Val> roots);

class ReadsByItem {
 public:
  explicit ReadsByItem(const KernelGraph& graph) : graph_(&graph) {}
  const ItemReads& of(const Item& item);

 private:
  const KernelGraph* graph_;
  std::vector<std::optional<ItemReads>> known_;  // by item id
};

}  // namespace tandem::schedule
