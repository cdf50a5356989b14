// Sums that are never stored. A convolution network widens its channels by a product of few terms,
// lets a window of its own slide over each channel, and narrows them again: the wide image is many
// times what it is made from, too large for the caches, and read once. Where the windows' kernel
// can hold the sum's factors it computes what a block of rows sees when it gets there; rows at the
// borders of blocks are computed twice. Few terms only: the library sums long ones faster.
#include <algorithm>
#include <map>

#include "base/flags.h"
#include "ir/text.h"
#include "schedule/build_kernel.h"
#include "schedule/inline.h"
#include "schedule/map.h"
#include "schedule/steps.h"
#include "schedule/strided.h"

namespace tandem::schedule {
namespace {

using ir::Value;
using sym::Expr;

class OnTheWay {
 public:
  explicit OnTheWay(KernelGraph& graph) : graph_(graph), groups_(graph.groups) {
    for (uint32_t i = 0; i < groups_.size(); ++i) joined_to_.push_back(i);
    for (Group& group : groups_)
      if (group.is_library()) library_[&group.first()] = &group;
  }

  void run() {
    for (Group& group : groups_)
      if (is_one_sum(group)) try_sums(group);
    graph_.drop_empty_groups(joined_to_);
  }

 private:
  uint32_t number_of(const Group& group) const {
    return static_cast<uint32_t>(&group - groups_.data());
  }

  static bool is_one_sum(const Group& group) {
    return !group.members.empty() && group.takes_members() && group.kernel.stages.size() == 1 &&
           group.kernel.stages[0].reductions.size() == 1 &&
           group.kernel.stages[0].reductions[0].combiner == loop::Combiner::dot;
  }

  void try_sums(Group& group) {
    for (const Value* value : group.buffer_values) {
      Group* sum = value == nullptr ? nullptr : sum_of(value);
      if (sum == nullptr || !is_read_here_only(value, group) || may_be_overwritten(*sum)) continue;
      Group joined = with_footprint(group, *sum->members[0].item);
      loop::Kernel trial = joined.kernel;
      if (joined.footprint_reads != 1 || !maps(trial)) {
        sum->first().computation = {};
        continue;
      }
      sum->first().kind = Item::Kind::reduce;  // by loops now
      graph_.note(*sum->first().node, "summed where windows see it");
      joined.members.insert(joined.members.begin(), sum->members[0]);
      joined.needs.reads.insert(sum->needs.reads.begin(), sum->needs.reads.end());
      joined.needs.groups.insert(sum->needs.groups.begin(), sum->needs.groups.end());
      joined_to_[number_of(*sum)] = number_of(group);
      *sum = {};
      group = std::move(joined);
      return;
    }
  }

  Group with_footprint(const Group& group, Item& sum) {
    Inliner inliner(graph_.scalars, graph_.computations,
                    [&](const Value* value) { return graph_.is_realized(value); });
    sum.computation = inliner.inlined(graph_.computations.of(sum.node), sum.result);
    Group joined;
    joined.space = group.space;
    joined.members = group.members;
    joined.needs = group.needs;
    joined.footprint = &sum;
    build_kernel(graph_, joined);
    return joined;
  }

  bool maps(loop::Kernel& trial) const {
    map_axes(trial, graph_.target);
    return !has_footprint(trial);
  }

  /// The library call that writes a large value, sums of few products.
  Group* sum_of(const Value* value) {
    const Home home = graph_.homes.at(value);
    if (home.item == nullptr || home.item->kind != Item::Kind::library ||
        home.item->route != ops::RouteKind::convolution || value->type.dtype != DType::f32)
      return nullptr;
    const std::optional<int64_t> bytes = value->type.numel().constant();
    const Computation& def = graph_.computations.of(value->node);
    const std::optional<int64_t> terms = sym::product(def.reduce_sizes).constant();
    const bool pays = bytes && *bytes * size_of(value->type.dtype) > graph_.target.l2_bytes &&
                      terms && *terms <= graph_.target.tuning.fusion.footprint_terms;
    if (!pays || def.combiner != loop::Combiner::dot) return nullptr;
    std::map<const Item*, Group*>::const_iterator found = library_.find(home.item);
    const bool is_there = found != library_.end() && found->second->is_library();
    return is_there ? found->second : nullptr;
  }

  bool is_read_here_only(const Value* value, const Group& reader) const {
    const bool stays = std::all_of(value->uses.begin(), value->uses.end(), [](const ir::Use& use) {
      return use.node != nullptr && !use.node->op->mutates();
    });
    return stays && std::none_of(groups_.begin(), groups_.end(), [&](const Group& group) {
             return &group != &reader && group.needs.reads.count(value) != 0;
           });
  }

  /// Inputs are written over once all have read them: the sum would read later than was counted on.
  bool may_be_overwritten(const Group& sum) const {
    bool found = false;
    ir::for_each_operand(sum.first().node->args, [&](const Value* operand) {
      const Value* root = view_root(graph_, operand);
      for (const std::unique_ptr<Item>& item : graph_.items)
        for (const Slot& slot : item->slots) found |= slot.in_place_of == root;
    });
    return found;
  }

  KernelGraph& graph_;
  std::vector<Group>& groups_;
  std::vector<uint32_t> joined_to_;        // by group
  std::map<const Item*, Group*> library_;  // empty groups once they are summed elsewhere
};

}  // namespace

void sum_on_the_way(KernelGraph& graph) {
  // Windows of a GPU's threads overlap, and have no strip of memory to share.
  if (flag_fusion() && !graph.target.is_gpu()) OnTheWay(graph).run();
}

}  // namespace tandem::schedule
