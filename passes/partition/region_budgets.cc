// Problem: memory is short in one part of a model, and time in another; one budget for the graph
// spends where its solver finds it cheapest, not where the user knows it is wanted. Approach: nodes
// that carry the same share are a part. Each part is solved as if all else were kept where
// backward, or what is computed again here, reads it: what the solver then saves of the part, and
// computes again, becomes a policy of these nodes, which every partition heeds, that of the whole
// graph among them. So bytes outside are the same in all choices of a part, and its share counts
// its own.
#include <fmt/format.h>

#include <algorithm>

#include "ops/opdef.h"
#include "passes/partition/budget.h"
#include "passes/partition/partition.h"
#include "passes/passes.h"

namespace tandem::passes {
namespace {

using ir::Node;
using ir::RecomputePolicy;

/// Each once, the smallest first.
std::vector<double> shares_of(const ir::Graph& graph) {
  std::vector<double> shares;
  for (const Node* node = graph.first(); node != nullptr; node = node->next)
    if (node->memory_budget && !node->backward) shares.push_back(*node->memory_budget);
  std::ranges::sort(shares);
  shares.erase(std::ranges::unique(shares).begin(), shares.end());
  return shares;
}

/// What the rest of the graph may not do again while a part is solved. Views and what is made from
/// nothing cost nothing to make, so that they are no reason to keep anything.
class KeptOutside {
 public:
  KeptOutside(ir::Graph& graph, double share) {
    for (Node* node = graph.first(); node != nullptr; node = node->next) {
      const bool is_free = node->op->is_view() || is_source(*node);
      if (node->memory_budget == share || is_free || node->policy != RecomputePolicy::none)
        continue;
      node->policy = RecomputePolicy::must_save;
      changed_.push_back(node);
    }
  }
  KeptOutside(const KeptOutside&) = delete;
  KeptOutside& operator=(const KeptOutside&) = delete;
  ~KeptOutside() {
    for (Node* node : changed_) node->policy = RecomputePolicy::none;
  }

 private:
  std::vector<Node*> changed_;
};

struct Decisions {
  std::vector<const Node*> saved;
  std::vector<const Node*> again;
};

/// A policy of the user's own stays, so it is no decision.
bool is_open(const Node* node, double share) {
  return node != nullptr && node->memory_budget == share && !node->backward &&
         node->policy == RecomputePolicy::none;
}

Decisions decided(ir::Graph& graph, GraphCtx& ctx, double share) {
  Budget budget = ctx.budget;
  budget.kind = Budget::Kind::fraction;
  budget.fraction = share;
  Decisions decisions;
  const KeptOutside kept(graph, share);
  const Frontier frontier = frontier_of(graph, ctx.target, budget, ctx.storage, ctx.notes);
  const Choice& choice = within_share(frontier, budget);
  for (const ir::Value* value : choice.saved)
    if (is_open(value->node, share)) decisions.saved.push_back(value->node);
  for (const Node* node : choice.again)
    if (is_open(node, share)) decisions.again.push_back(node);
  ctx.notes.push_back(fmt::format("region_budgets: of nodes with {} {} are saved, {} made again",
                                  share, decisions.saved.size(), decisions.again.size()));
  return decisions;
}

}  // namespace

void region_budgets(ir::Graph& graph, GraphCtx& ctx) {
  DenseMap<Node, RecomputePolicy> policies;
  for (const double share : shares_of(graph)) {
    const Decisions decisions = decided(graph, ctx, share);
    for (const Node* node : decisions.again) policies[node] = RecomputePolicy::must_recompute;
    for (const Node* node : decisions.saved) policies[node] = RecomputePolicy::must_save;
  }
  for (Node* node = graph.first(); node != nullptr; node = node->next) {
    if (policies.at(node) != RecomputePolicy::none) node->policy = policies.at(node);
    node->memory_budget.reset();
  }
}

}  // namespace tandem::passes
