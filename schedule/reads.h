// What items read: a question about their computations, asked once an item. At another position it
// is the same with other axes.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "schedule/lowering.h"
#include "schedule/plan.h"

namespace tandem::schedule {

/// Elements of realised values and inputs, by their row-major position.
using ReadList = std::vector<std::pair<const ir::Value*, sym::Expr>>;

/// All that has no place inlined, over the axes of the item's computation.
struct ItemReads {
  ReadList at;
  bool can_fail = false;
};

class ReadsByItem {
 public:
  ReadsByItem(const Plan& plan, GraphLowering& lowering) : plan_(&plan), lowering_(&lowering) {}
  const ItemReads& of(const Item& item);

 private:
  const Plan* plan_;
  GraphLowering* lowering_;
  std::vector<std::optional<ItemReads>> known_;  // by item id
};

}  // namespace tandem::schedule
