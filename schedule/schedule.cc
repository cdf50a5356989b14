// The steps of the room in their order, for a graph and for its setup.
#include "schedule/schedule.h"

#include "base/interrupt.h"
#include "schedule/build_kernel.h"
#include "schedule/chain.h"
#include "schedule/check_kernel.h"
#include "schedule/side_by_side.h"

namespace tandem::schedule {
namespace {

/// Joins the constants that setup computes with its outputs, by name.
void link_setup(Scheduled& main, Scheduled setup) {
  for (abi::Constant& constant : main.program.constants)
    for (size_t i = 0; i < setup.program.outputs.size(); ++i)
      if (setup.program.outputs[i].name == constant.name)
        constant.setup_output = static_cast<int32_t>(i);
  main.program.setup = std::make_shared<abi::Program>(std::move(setup.program));
  main.setup_kernels = std::move(setup.kernels);
  main.notes.insert(main.notes.end(), setup.notes.begin(), setup.notes.end());
}

void check_kernels(const std::vector<Group>& groups, std::string_view step) {
  for (const Group& group : groups)
    if (!group.is_library) check_kernel(group.kernel, step);
}

void map_kernels(const Plan& plan, std::vector<Group>& groups) {
  for (Group& group : groups) {
    if (group.is_library) continue;
    poll_interrupt();
    map_axes(group.kernel, plan.target);
    check_kernel(group.kernel, "map_axes");
    share_scratch(group);
    check_kernel(group.kernel, "share_scratch");
  }
}

LaunchOrder order_launches(const Plan& plan, const std::vector<Group>& groups) {
  std::vector<GroupUse> uses;
  for (const Group& group : groups) uses.push_back(use_of(group, plan));
  return side_by_side(uses);
}

Scheduled schedule_one(const ir::Graph& graph, const Target& target) {
  Plan plan;
  plan.graph = &graph;
  plan.target = target;
  GraphLowering lowering(plan);
  realize(plan, lowering);
  choose_layouts(plan, lowering);
  split_reductions(plan, lowering);
  Drafts drafts = form_groups(plan, lowering);
  std::vector<Group> groups;
  for (const Draft& draft : drafts.drafts) {
    poll_interrupt();
    groups.push_back(build_kernel(plan, lowering, draft, drafts));
  }
  check_kernels(groups, "build_kernel");
  chain_products(plan, drafts, groups);
  check_kernels(groups, "chain_products");
  sum_on_the_way(plan, lowering, drafts, groups);
  check_kernels(groups, "sum_on_the_way");
  map_kernels(plan, groups);
  const LaunchOrder order = order_launches(plan, groups);
  return emit_program(plan, lowering, std::move(groups), drafts, order);
}

}  // namespace

Scheduled schedule(const ir::Graph& graph, const Target& target) {
  Scheduled scheduled = schedule_one(graph, target);
  if (const ir::Graph* setup = graph.module().find(graph.name() + ".setup"))
    link_setup(scheduled, schedule_one(*setup, target));
  return scheduled;
}

}  // namespace tandem::schedule
