// Sums that are never stored. A convolution network widens its channels by a product of few terms,
// lets a window of its own slide over each channel, and narrows them again: the wide image is many
// times what it is made from, too large for the caches, and read once. Where the windows' kernel
// can hold the sum's factors it computes what a block of rows sees when it gets there; rows at the
// borders of blocks are computed twice, and the library sums faster: the cost says when that pays.
#include <algorithm>

#include "base/flags.h"
#include "ir/text.h"
#include "schedule/compute_at.h"
#include "schedule/cost.h"
#include "schedule/inline.h"
#include "schedule/joining.h"
#include "schedule/map.h"
#include "schedule/steps.h"
#include "schedule/strided.h"

namespace tandem::schedule {
namespace {

using ir::Value;

bool is_one_sum(const Group& group) {
  return !group.members.empty() && group.takes_members() && group.kernel.stages.size() == 1 &&
         group.kernel.stages[0].reductions.size() == 1 &&
         group.kernel.stages[0].reductions[0].combiner == loop::Combiner::dot;
}

/// The group of a library's convolution that makes the value by few products an element; the
/// kernel holds the factors of so many. Of a value that the second level does not hold: below that
/// launches and borders decide, which the model is too rough for (0.7 to 1.6 of the time,
/// measured).
std::optional<uint32_t> sum_of(const Joining& joining, const Value* value) {
  KernelGraph& graph = joining.graph;
  const Home home = value == nullptr ? Home{} : graph.homes.at(value);
  if (home.item == nullptr || home.item->kind != Item::Kind::library ||
      home.item->route != ops::RouteKind::convolution || value->type.dtype != DType::f32)
    return std::nullopt;
  const Computation& def = graph.computations.of(value->node);
  const std::optional<int64_t> terms = sym::product(def.reduce_sizes).constant();
  const bool is_short = terms && *terms <= graph.target.tuning.fusion.footprint_terms;
  const sym::Expr fitting = graph.target.l2_bytes / size_of(DType::f32);
  const bool is_large = sym::known_lt(fitting, value->type.numel());
  if (!is_short || !is_large || def.combiner != loop::Combiner::dot) return std::nullopt;
  const uint32_t number = joining.number_of.at(home.item);
  return joining.joined[number] ? std::nullopt : std::optional(number);
}

/// Inputs are written over once all have read them: the sum would read later than was counted on.
bool may_be_overwritten(KernelGraph& graph, const Item& sum) {
  bool found = false;
  ir::for_each_operand(sum.node->args, [&](const Value* operand) {
    const Value* root = view_root(graph, operand);
    for (const std::unique_ptr<Item>& item : graph.items)
      for (const Slot& slot : item->slots) found |= slot.in_place_of == root;
  });
  return found;
}

/// Of the sum's operations, and of what of it passes through memory.
Cost cost_apart(KernelGraph& graph, const Value* value) {
  Cost cost;
  cost.launches = 2;
  const double bytes = bytes_of(*value, graph.target);
  count_shared(cost, graph.target, bytes, 2 * bytes);
  const Computation& def = graph.computations.of(value->node);
  cost.flops = 2 * bytes / size_of(value->type.dtype) *
               count_of(sym::product(def.reduce_sizes), graph.target);
  return cost;
}

/// Each block writes to scratch what its windows see; they read it from the nearest cache.
Cost cost_together(const KernelGraph& graph, const Value* value, const Cost& apart) {
  const double again = static_cast<double>(graph.target.tuning.rates.footprint_percent) / 100;
  Cost cost;
  cost.launches = 1;
  cost.flops = apart.flops * again;
  count_scratch(cost, graph.target, 0, again * bytes_of(*value, graph.target));
  return cost;
}

/// Why the sum is not computed at the reader's windows; empty where it was.
std::string try_sum(Joining& joining, uint32_t reader, uint32_t sum) {
  KernelGraph& graph = joining.graph;
  Group& group = graph.groups[reader];
  Item& item = graph.groups[sum].first();
  if (may_be_overwritten(graph, item)) return "what it reads may be written over before";
  std::optional<Group> joined = computed_at_windows(graph, group, item);
  if (!joined) return "it is read at several places";
  const std::string misfit = misfit_of_footprint(joined->kernel, graph.target);
  if (!misfit.empty()) {
    item.computation = {};
    return "no windows slide over it (" + misfit + ")";
  }
  item.kind = Item::Kind::reduce;  // by loops now
  graph.note(*item.node, "summed where windows see it");
  put_sum_into(joining, reader, sum, reader, std::move(*joined));
  return "";
}

/// The first of the sums that it reads for which that can be and pays.
void try_sums(Joining& joining, uint32_t reader) {
  KernelGraph& graph = joining.graph;
  const std::vector<const Value*> values = graph.groups[reader].buffer_values;
  for (const Value* value : values) {
    const std::optional<uint32_t> sum = sum_of(joining, value);
    if (!sum) continue;
    const Cost apart = cost_apart(graph, value);
    const Cost together = cost_together(graph, value, apart);
    ComputeAtDecision decision{graph.groups[reader].first().id, graph.groups[*sum].first().id};
    decision.cost = {apart, together};
    decision.reason = "apart they cost less";
    if (!is_inside(joining, std::array{reader, *sum}, value))
      decision.reason = "others read it, too";
    else if (microseconds(together, graph.target) < microseconds(apart, graph.target))
      decision.reason = try_sum(joining, reader, *sum);
    decision.taken = decision.reason.empty();
    graph.decisions.compute_at.push_back(decision);
    if (decision.taken) return;
  }
}

}  // namespace

void compute_at_windows(KernelGraph& graph) {
  // Windows of a GPU's threads overlap, and have no strip of memory to share.
  if (!flag_fusion() || graph.target.is_gpu()) return;
  Joining joining(graph);
  for (uint32_t i = 0; i < graph.groups.size(); ++i)
    if (is_one_sum(graph.groups[i])) try_sums(joining, i);
  graph.drop_empty_groups(joining.place);
}

}  // namespace tandem::schedule
