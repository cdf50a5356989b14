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
#include "schedule/schedule.h"

namespace tandem::schedule {
namespace {

using ir::Value;
using sym::Expr;

constexpr int64_t kMostTerms = 32;

class OnTheWay {
 public:
  OnTheWay(Plan& plan, GraphLowering& lowering, const Drafts& drafts, std::vector<Group>& groups)
      : plan_(plan), lowering_(lowering), drafts_(drafts), groups_(groups) {
    for (const Draft& draft : drafts_.drafts) draft_of_[draft.members[0].item] = &draft;
    for (Group& group : groups_)
      if (group.is_library) library_[group.items[0]] = &group;
  }

  void run() {
    for (Group& group : groups_)
      if (is_one_sum(group)) try_sums(*draft_of_.at(group.items[0]), group);
    std::erase_if(groups_, [](const Group& group) { return group.items.empty(); });
  }

 private:
  static bool is_one_sum(const Group& group) {
    return !group.items.empty() && !group.is_chain && !group.is_library &&
           group.kernel.stages.size() == 1 && group.kernel.stages[0].reductions.size() == 1 &&
           group.kernel.stages[0].reductions[0].combiner == loop::Combiner::dot;
  }

  void try_sums(const Draft& draft, Group& group) {
    for (const Value* value : group.buffer_values) {
      Group* sum = value == nullptr ? nullptr : sum_of(value);
      if (sum == nullptr || !is_read_here_only(value, draft) || may_be_overwritten(*sum)) continue;
      Draft wider = draft;
      wider.on_the_way = sum->items[0];
      Group joined = build_kernel(plan_, lowering_, wider, drafts_);
      loop::Kernel trial = joined.kernel;
      if (joined.sums_on_the_way != 1 || !maps(trial)) continue;
      plan_.notes.push_back({ir::to_string(*sum->items[0]->node), "summed where windows see it"});
      joined.items.insert(joined.items.begin(), sum->items[0]);
      *sum = {};
      group = std::move(joined);
      return;
    }
  }

  bool maps(loop::Kernel& trial) const {
    map_axes(trial, plan_.target);
    return !has_footprint(trial);
  }

  /// The library call that writes a large value, sums of few products.
  Group* sum_of(const Value* value) {
    const Home home = plan_.homes.at(value);
    if (home.item == nullptr || home.item->kind != Item::Kind::library ||
        home.item->route != ops::RouteKind::convolution || value->type.dtype != DType::f32)
      return nullptr;
    const std::optional<int64_t> bytes = value->type.numel().constant();
    const Computation& def = lowering_.computation(value->node);
    const std::optional<int64_t> terms = sym::product(def.reduce_sizes).constant();
    const bool pays = bytes && *bytes * size_of(value->type.dtype) > plan_.target.l2_bytes &&
                      terms && *terms <= kMostTerms;
    if (!pays || def.combiner != loop::Combiner::dot) return nullptr;
    std::map<const Item*, Group*>::const_iterator found = library_.find(home.item);
    const bool is_there = found != library_.end() && found->second->is_library;
    return is_there ? found->second : nullptr;
  }

  bool is_read_here_only(const Value* value, const Draft& reader) const {
    const bool stays = std::all_of(value->uses.begin(), value->uses.end(), [](const ir::Use& use) {
      return use.node != nullptr && !use.node->op->mutates();
    });
    return stays &&
           std::none_of(drafts_.drafts.begin(), drafts_.drafts.end(), [&](const Draft& draft) {
             return &draft != &reader && draft.reads.count(value) != 0;
           });
  }

  /// Inputs are written over once all have read them: the sum would read later than was counted on.
  bool may_be_overwritten(const Group& sum) const {
    bool found = false;
    ir::for_each_operand(sum.items[0]->node->args, [&](const Value* operand) {
      const Value* root = view_root(lowering_, operand);
      for (const auto& entry : drafts_.in_place) found |= entry.second == root;
    });
    return found;
  }

  Plan& plan_;
  GraphLowering& lowering_;
  const Drafts& drafts_;
  std::vector<Group>& groups_;
  std::map<const Item*, const Draft*> draft_of_;  // by first member
  std::map<const Item*, Group*> library_;         // empty groups once they are summed elsewhere
};

}  // namespace

void sum_on_the_way(Plan& plan, GraphLowering& lowering, const Drafts& drafts,
                    std::vector<Group>& groups) {
  if (flag_fusion()) OnTheWay(plan, lowering, drafts, groups).run();
}

}  // namespace tandem::schedule
