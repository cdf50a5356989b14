// What stands between the tensor graph and the program: items, which items share a kernel, the
// kernels, and the order they run in. Each step is a pass over it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/pass.h"
#include "schedule/fuse.h"
#include "schedule/schedule.h"

namespace tandem::schedule {

struct KernelGraph {
  KernelGraph(const ir::Graph& graph, const Target& target);
  KernelGraph(const KernelGraph&) = delete;
  KernelGraph& operator=(const KernelGraph&) = delete;

  Plan plan;
  GraphLowering lowering;
  Drafts drafts;
  std::vector<Group> groups;
  LaunchOrder order;
};

using KernelPass = Pass<KernelGraph>;

// What holds of a kernel graph, in the order in which it comes to hold.
enum KernelFacts : Facts {
  kItems = 1,    // values that get memory or a place in a kernel; their routes
  kDrafts = 2,   // items that share a kernel
  kKernels = 4,  // each group has one
  kOrdered = 8,  // groups run in this order
};

/// For people: items with their layouts, then groups, each with its kernel.
std::string to_string(const KernelGraph& graph);

/// All steps in their order, on a new kernel graph. UserError where a step that another one needs
/// is disabled, or TANDEM_STOP_AFTER ends the road.
void run_steps(KernelGraph& graph);

}  // namespace tandem::schedule
