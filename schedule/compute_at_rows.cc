// Problem: between two products that work on the same rows (attention: scores, softmax, weighted
// values) stands a matrix that is larger than what goes in and comes out, and passes through memory
// several times. Approach: groups are computed at common rows (compute_at.h): a product, any
// kernels of the rows, a product that sums along the rows. What only members read is a row of
// scratch; map_chain works on blocks of rows, so that the matrix of a block stays in cache. A
// product that sums down the rows (gradients of keys and values) may be the last to read a matrix:
// it gathers, block after block, what it gives, and the blocks of a batch then run in order. What
// may be together own_row.cc says; what pays, row_cost.cc: from each product on, members are added
// as long as the kernel of all of them costs less than the members apart.
#include <algorithm>

#include "base/flags.h"
#include "schedule/row_cost.h"
#include "schedule/steps.h"

namespace tandem::schedule {
namespace {

using ir::Value;

bool is_member(const RowChain& chain, uint32_t number) {
  return std::ranges::find(chain.members, number) != chain.members.end();
}

bool reads_one_of(const Joining& joining, GroupNumbers members, uint32_t number) {
  const Needs& needs = joining.needs[number];
  const auto is_needed = [&](uint32_t member) { return needs.groups.count(member) != 0; };
  return std::ranges::any_of(members, is_needed) &&
         std::ranges::any_of(
             needs.reads, [&](const Value* value) { return is_made_by(joining, members, value); });
}

void enter(RowChain& chain, uint32_t number, bool gathers) {
  std::vector<uint32_t>& members = chain.members;
  members.insert(std::ranges::upper_bound(members, number), number);
  if (gathers) chain.gathering.insert(number);
}

/// Why the members cannot be one kernel; null where they can.
const char* misfit_of(const Joining& joining, RowFits& fits, const RowChain& chain) {
  for (uint32_t member : chain.members)
    if (const char* misfit = fits.misfit(chain, member)) return misfit;
  return place_of(joining, chain.members) ? nullptr
                                          : "something between needs one and makes another";
}

double gain(const Joining& joining, const RowChain& chain) {
  const Target& target = joining.graph.target;
  return microseconds(cost_apart(joining, chain.members), target) -
         microseconds(cost_together(joining, chain), target);
}

/// The rows that a group walks: of a product all axes but its columns.
ir::Sizes rows_of(const Group& group) {
  ir::Sizes rows = extents(group.kernel.outer);
  if (is_product(group) && !rows.empty()) rows.pop_back();
  return rows;
}

/// Grows a chain, and keeps what it tried.
class Growth {
 public:
  Growth(KernelGraph& graph, const Joining& joining, RowFits& fits)
      : graph_(graph), joining_(joining), fits_(fits) {}

  /// From a product on; null where it cannot start one.
  std::optional<RowChain> from(uint32_t first, bool gathering) {
    RowChain chain;
    chain.members = {first};
    chain.rows = rows_of(joining_.graph.groups[first]);
    waiting_.clear();
    if (misfit_of(joining_, fits_, chain) != nullptr) return std::nullopt;
    std::vector<uint32_t> members = chain.members;
    for (uint32_t i = first + 1; i < joining_.needs.size(); ++i) {
      if (!may_join(joining_, i) || !reads_one_of(joining_, members, i)) continue;
      if (take(chain, i, false) || take_ahead(chain, i))
        add_sources(chain, i, gathering);
      else if (gathering)
        take(chain, i, true);
      members = ahead(chain).members;
    }
    if (!chain.gathering.empty()) add_sources_again(chain);
    return chain;
  }

 private:
  /// Sources that did not pay: rows are in hand by pieces since sums along them have joined.
  void add_sources_again(RowChain& chain) {
    const std::vector<uint32_t> members = chain.members;
    for (const uint32_t member : members) add_sources(chain, member, true);
  }

  bool take(RowChain& chain, uint32_t number, bool gathers) {
    RowChain longer = chain;
    enter(longer, number, gathers);
    return replace(chain, std::move(longer), number);
  }

  /// With those that could join and did not pay alone: what they leave stays inside only once their
  /// readers join. One that can, and does not pay with them either, waits as well.
  bool take_ahead(RowChain& chain, uint32_t number) {
    RowChain longer = ahead(chain);
    enter(longer, number, false);
    if (longer.members.size() > chain.members.size() + 1 && replace(chain, longer, number)) {
      waiting_.clear();
      return true;
    }
    if (misfit_of(joining_, fits_, longer) == nullptr) waiting_.push_back(number);
    return false;
  }

  RowChain ahead(const RowChain& chain) const {
    RowChain longer = chain;
    for (uint32_t number : waiting_)  // one that waited may have joined as another's source
      if (!is_member(longer, number)) enter(longer, number, false);
    return longer;
  }

  /// By the longer one, where that can be and costs less.
  bool replace(RowChain& chain, RowChain longer, uint32_t added) {
    ComputeAtDecision decision{item_of(chain.members[0]), item_of(added)};
    if (const char* misfit = misfit_of(joining_, fits_, longer))
      decision.reason = misfit;
    else if (joining_.graph.target.is_gpu())
      decision.reason = fits_shared_memory(joining_, longer) ? "" : "shared memory is too small";
    else
      compare(decision, chain, longer);
    decision.taken = decision.reason.empty();
    const bool taken = decision.taken;
    graph_.decisions.compute_at.push_back(std::move(decision));
    if (taken) chain = std::move(longer);
    return taken;
  }

  void compare(ComputeAtDecision& decision, const RowChain& chain, const RowChain& longer) const {
    const Target& target = joining_.graph.target;
    std::vector<uint32_t> apart;
    for (uint32_t member : longer.members)
      if (!is_member(chain, member)) apart.push_back(member);
    Cost before = cost_apart(joining_, apart);
    before += chain.members.size() == 1 ? cost_apart(joining_, chain.members)
                                        : cost_together(joining_, chain);
    const Cost after = cost_together(joining_, longer);
    decision.cost = {before, after};
    if (microseconds(after, target) >= microseconds(before, target))
      decision.reason = "apart they cost less";
  }

  uint32_t item_of(uint32_t group) const {
    return joining_.graph.groups[group].members[0].item->id;
  }

  /// Other products that the member reads row by row, and no one else: the gradient of the weights
  /// beside the weights. Or no one else but products that gather.
  void add_sources(RowChain& chain, uint32_t member, bool gathering) {
    for (uint32_t source : joining_.needs[member].groups) {
      if (is_member(chain, source) || !may_join(joining_, source) ||
          !is_product(joining_.graph.groups[source]))
        continue;
      RowChain longer = chain;
      enter(longer, source, false);
      bool joins = leaves_nothing(longer, source) && replace(chain, longer, source);
      if (joins || !gathering) continue;
      enter_readers(longer, source);
      if (leaves_nothing(longer, source)) replace(chain, longer, source);
    }
  }

  void enter_readers(RowChain& chain, uint32_t source) const {
    for (uint32_t i = 0; i < joining_.needs.size(); ++i)
      if (!is_member(chain, i) && may_join(joining_, i) && is_product(joining_.graph.groups[i]) &&
          joining_.needs[i].groups.count(source) != 0)
        enter(chain, i, true);
  }

  bool leaves_nothing(const RowChain& chain, uint32_t member) const {
    const Group& group = joining_.graph.groups[member];
    for (size_t i = 0; i < group.buffer_values.size(); ++i)
      if (group.kernel.buffers[i].access == loop::Access::write &&
          !is_inside(joining_, chain.members, group.buffer_values[i]))
        return false;
    return true;
  }

  KernelGraph& graph_;
  const Joining& joining_;
  RowFits& fits_;
  std::vector<uint32_t> waiting_;
};

std::set<const Value*> values_inside(const Joining& joining, const RowChain& chain) {
  std::set<const Value*> values;
  for (uint32_t member : chain.members)
    for (const Value* value : joining.graph.groups[member].buffer_values)
      if (value != nullptr && is_inside(joining, chain.members, value)) values.insert(value);
  return values;
}

/// With one product rows are no gain: what follows it is in its group already, and a norm in front
/// of it is as fast as a kernel of its own (docs/measured.md).
bool has_two_products(const Joining& joining, const RowChain& chain) {
  return std::ranges::count_if(chain.members, [&](uint32_t member) {
           return is_product(joining.graph.groups[member]);
         }) >= 2;
}

/// The better one of those that gather and that do not.
std::optional<RowChain> best_from(KernelGraph& graph, const Joining& joining, RowFits& fits,
                                  uint32_t first) {
  Growth growth(graph, joining, fits);
  if (graph.target.is_gpu()) return growth.from(first, false);  // blocks run in no order
  std::optional<RowChain> best = growth.from(first, true);
  if (!best || best->gathering.empty()) return best;
  std::optional<RowChain> plain = growth.from(first, false);
  return plain && gain(joining, *plain) > gain(joining, *best) ? plain : best;
}

void join(Joining& joining, const RowChain& chain) {
  const uint32_t place = *place_of(joining, chain.members);
  std::set<const Value*> inside = values_inside(joining, chain);
  std::vector<RowMember> members;
  for (uint32_t member : chain.members)
    members.push_back(
        {std::move(joining.graph.groups[member]), chain.gathering.count(member) != 0});
  put(joining, chain.members, place,
      computed_at_rows(joining.graph.graph->pool(), chain.rows, std::move(inside),
                       std::move(members)));
}

}  // namespace

void compute_at_rows(KernelGraph& graph) {
  if (!flag_fusion()) return;
  Joining joining(graph);
  RowFits fits(joining);
  for (uint32_t i = 0; i < graph.groups.size(); ++i) {
    const Group& group = graph.groups[i];
    if (!may_join(joining, i) || !is_product(group) || rows_of(group).empty()) continue;
    const std::optional<RowChain> chain = best_from(graph, joining, fits, i);
    const bool pays =
        chain && has_two_products(joining, *chain) && !values_inside(joining, *chain).empty();
    if (pays) join(joining, *chain);
  }
  graph.drop_empty_groups(joining.place);
}

}  // namespace tandem::schedule
