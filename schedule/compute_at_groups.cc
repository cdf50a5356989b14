// Sums of sums. Where scales change along the terms of a product (a weight of 4 bits has one for
// each 32 terms), integers are summed group by group, and those sums are scaled and added. The
// sums of groups are many times the results, and each is read once, by the result that it is part
// of. Approach: where that result is computed, its groups are summed just before, to scratch.
// Nothing is computed twice and less passes through memory, so there is no cost to compare; only
// that lanes can run along the results (map_groups) is asked.
#include <array>

#include "base/flags.h"
#include "ir/text.h"
#include "schedule/compute_at.h"
#include "schedule/joining.h"
#include "schedule/map.h"
#include "schedule/steps.h"

namespace tandem::schedule {
namespace {

using ir::Value;

bool is_one_sum(const Group& group) {
  return !group.members.empty() && group.takes_members() && group.kernel.stages.size() == 1 &&
         group.kernel.stages[0].reductions.size() == 1;
}

/// The group that makes the value, alone, as sums of packed integers.
std::optional<uint32_t> sums_of(const Joining& joining, const Value* value) {
  const Home home = value == nullptr ? Home{} : joining.graph.homes.at(value);
  if (home.item == nullptr || home.item->kind != Item::Kind::reduce) return std::nullopt;
  const uint32_t number = joining.number_of.at(home.item);
  const Group& group = joining.graph.groups[number];
  if (!may_join(joining, number) || !is_one_sum(group) || group.members.size() != 1)
    return std::nullopt;
  const loop::Combiner combiner = group.kernel.stages[0].reductions[0].combiner;
  const bool is_packed = loop::multiplies_bytes(combiner) || combiner == loop::Combiner::dot2;
  return is_packed ? std::optional(number) : std::nullopt;
}

/// As many as the reader has steps: none is read twice.
bool are_read_once(const Group& reader, const Value* value) {
  const sym::Expr steps = sym::product(reader.space.outer) * sym::product(reader.space.inner);
  return sym::known_eq(value->type.numel(), steps);
}

/// Why the sums are not computed where they are read; empty where they were.
std::string try_sums(Joining& joining, uint32_t reader, uint32_t sums, const Value* value) {
  KernelGraph& graph = joining.graph;
  if (!is_inside(joining, std::array{reader, sums}, value)) return "others read it, too";
  if (!are_read_once(graph.groups[reader], value)) return "it is read several times";
  const std::optional<uint32_t> place = place_of(joining, std::array{reader, sums});
  if (!place) return "something between needs one and makes another";
  const Item& item = graph.groups[sums].first();
  std::optional<Group> joined = computed_at_groups(graph, graph.groups[reader], item);
  if (!joined) return "it is read at several places";
  const std::string misfit = misfit_of_footprint(joined->kernel, graph.target);
  if (!misfit.empty()) return "lanes do not run along its results (" + misfit + ")";
  graph.note(*item.node, "summed where its groups are added");
  put_sum_into(joining, reader, sums, *place, std::move(*joined));
  return "";
}

void try_reader(Joining& joining, uint32_t reader) {
  KernelGraph& graph = joining.graph;
  const std::vector<const Value*> values = graph.groups[reader].buffer_values;
  for (const Value* value : values) {
    const std::optional<uint32_t> sums = sums_of(joining, value);
    if (!sums || *sums == reader) continue;
    ComputeAtDecision decision{graph.groups[reader].first().id, graph.groups[*sums].first().id};
    decision.reason = try_sums(joining, reader, *sums, value);
    decision.taken = decision.reason.empty();
    graph.decisions.compute_at.push_back(decision);
    if (decision.taken) return;
  }
}

}  // namespace

void compute_at_groups(KernelGraph& graph) {
  if (!flag_fusion() || graph.target.is_gpu()) return;
  Joining joining(graph);
  for (uint32_t i = 0; i < graph.groups.size(); ++i)
    if (is_one_sum(graph.groups[i]) && may_join(joining, i)) try_reader(joining, i);
  graph.drop_empty_groups(joining.place);
}

}  // namespace tandem::schedule
