// Problem: loops that share a kernel share what they read and never store what only they need, but
// they share its tasks too: a few long rows are work for few cores. Approach: the cost model counts
// the two kernels and the one. What fusion cannot know yet (which results are stored for others) is
// counted in neither.
#include "schedule/join_cost.h"

#include <cmath>

#include "schedule/fit.h"
#include "schedule/group_storage.h"

namespace tandem::schedule {
namespace {

using ir::Value;
using sym::Expr;

/// Of a kernel over the space. Columns are cut as far as there are cores.
double tasks_of(const Space& space, const Target& target) {
  if (space.reduces && !space.whole) return target.cores;
  const double count = count_of(sym::product(space.outer), target);
  const double smallest = static_cast<double>(target.tuning.points.smallest_task);
  return space.reduces ? count : std::ceil(count / smallest);
}

double operations_of(const Item& item, const Target& target) {
  const ir::Sizes& reduced = item.computation.full_sizes;
  const double points =
      count_of(sym::product(reduced.empty() ? item.slots[0].sizes : reduced), target);
  return points * static_cast<double>(target.tuning.rates.element_operations);
}

/// Of the kernel that the group is so far, its idle cores aside.
Cost work_of(const Group& group, const Target& target) {
  Cost cost;
  cost.launches = 1;
  for (const Value* value : group.needs.reads) cost += cost_of_reading(*value, target);
  for (const Member& member : group.members) cost.flops += operations_of(*member.item, target);
  return cost;
}

}  // namespace

Cost cost_of_reading(const Value& value, const Target& target) {
  Cost cost;
  const double bytes = bytes_of(value, target);
  count_shared(cost, target, bytes, bytes);
  return cost;
}

Comparison compare_join(const KernelGraph& graph, const Group& group, const Space& joined,
                        const Item& item, const PlacedReads& reads) {
  const Target& target = graph.target;
  Cost apart = work_of(group, target);
  Cost together = apart;
  Cost alone;
  alone.launches = 1;
  alone.flops = operations_of(item, target);
  together.flops += alone.flops;
  for (const std::pair<const Value*, Expr>& read : reads.at) {
    const Cost once = cost_of_reading(*read.first, target);
    const bool is_made = member_of(graph, group, read.first) != nullptr;
    alone += once;
    if (is_made) alone += once;  // and stored
    if (!is_made && group.needs.reads.count(read.first) == 0) together += once;
  }
  count_slack(apart, target, tasks_of(group.space, target));
  count_slack(alone, target, tasks_of(space_of(item), target));
  count_slack(together, target, tasks_of(joined, target));
  apart += alone;
  return {apart, together};
}

double gain_of(const Comparison& cost, const Target& target) {
  return microseconds(cost.apart, target) - microseconds(cost.together, target);
}

}  // namespace tandem::schedule
