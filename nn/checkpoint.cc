// A region is a number and a policy on each node that its function writes; passes/partition/ reads
// them. Nodes are marked after the function wrote them, since a policy asks for the operator.
#include "nn/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/diagnostic.h"

namespace tandem::nn {
namespace {

using ir::Node;

/// Greater than those of all regions so far, so that of two regions in a row the later one knows.
int32_t next_region(const ir::Graph& graph) {
  int32_t last = 0;
  for (const Node* node = graph.first(); node != nullptr; node = node->next)
    last = std::max(last, node->region);
  return last + 1;
}

}  // namespace

RecomputePolicy recompute_all(std::string_view) { return RecomputePolicy::must_recompute; }

RegionFunction checkpoint(RegionFunction region, RegionPolicy policy) {
  return [region = std::move(region), policy = std::move(policy)](Trace& trace,
                                                                  const Tensors& inputs) {
    const ir::Graph& graph = trace.builder().graph();
    const Node* before = graph.last();
    const int32_t number = next_region(graph);
    Tensors results = region(trace, inputs);
    for (Node* node = before == nullptr ? graph.first() : before->next; node != nullptr;
         node = node->next) {
      if (node->region != 0) continue;  // of a region inside of this one
      node->region = number;
      node->policy = policy(node->op->name());
    }
    return results;
  };
}

RegionFunction with_memory_budget(RegionFunction region, double share) {
  if (!(share >= 0 && share <= 1))
    throw UserError(
        fmt::format("[memory_budget] a region's is a number from 0 to 1, not {}", share));
  return [region = std::move(region), share](Trace& trace, const Tensors& inputs) {
    const ir::Graph& graph = trace.builder().graph();
    const Node* before = graph.last();
    Tensors results = region(trace, inputs);
    for (Node* node = before == nullptr ? graph.first() : before->next; node != nullptr;
         node = node->next)
      if (!node->memory_budget) node->memory_budget = share;  // else of a region inside of this one
    return results;
  };
}

}  // namespace tandem::nn
