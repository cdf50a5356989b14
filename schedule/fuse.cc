// Fusion: items are taken in program order; each joins the group whose iteration space it fits
// into, that it saves the most time with (join_cost.h), and that it can join without a cycle. What
// the group computes counts twice, as it is neither stored nor read; of equal groups the latest is
// taken.
// Whether a read inside a group is legal is not guessed from op kinds: the item's expression is
// written at the group's axes, and every read of a member must be at exactly the position that the
// member computes there.
#include <algorithm>
#include <set>
#include <utility>

#include "base/flags.h"
#include "ir/text.h"
#include "schedule/column_pieces.h"
#include "schedule/fit.h"
#include "schedule/group_storage.h"
#include "schedule/join_cost.h"
#include "schedule/numbers_read.h"
#include "schedule/reads.h"
#include "schedule/steps.h"

namespace tandem::schedule {

using ir::Value;
using sym::Expr;

namespace {
constexpr uint32_t kUnplaced = UINT32_MAX;

bool is_product(const Item& item) {
  return item.kind == Item::Kind::reduce && loop::multiplies(item.computation.combiner);
}

/// Whether what is made of the value ends in the node, and nothing else reads any of it.
bool is_only_reader(const ir::Node& reader, const Value* value) {
  while (value->uses.size() == 1 && value->uses[0].node != nullptr) {
    const ir::Node& node = *value->uses[0].node;
    if (&node == &reader) return true;
    if (node.results.size() != 1) return false;
    value = node.results[0];
  }
  return false;
}

/// Whether it adds sums of integers (compute_at_groups.cc).
bool adds_sums(const KernelGraph& graph, const Item& item, const PlacedReads& reads) {
  if (item.kind != Item::Kind::reduce || is_product(item)) return false;
  return std::ranges::any_of(reads.at, [&](const std::pair<const Value*, Expr>& entry) {
    const Item* source = graph.homes.at(entry.first).item;
    return source != nullptr && is_product(*source) &&
           source->computation.combiner != loop::Combiner::dot &&
           is_only_reader(*item.node, entry.first);
  });
}

/// Whether it gives the numbers of another value, in its type.
bool copies(const Item& item) {
  if (item.kind != Item::Kind::map) return false;
  const loop::Val value = item.computation.results[item.result].value;
  return value->opcode == loop::Opcode::element && value->dtype == item.slots[0].dtype;
}

/// Products whose sums are stored as they are, for a kernel that makes one of their factors, a
/// matrix much larger than the sums, row by row, to add them up on its way (compute_at_rows.cc).
/// First those that sum down its rows, with a batch for each core. Then those that sum along rows
/// of a matrix which one of these reads, if the rows are taken in pieces (column_pieces.cc). What
/// joins is not known yet: where none does, what could have been an epilogue is a launch more.
class AddedUp {
 public:
  explicit AddedUp(const KernelGraph& graph) : graph_(graph) {
    for (const std::unique_ptr<Item>& item : graph.items)
      if (const Value* matrix = summed_down(*item)) matrices_.insert(matrix);
  }

  bool operator()(const Item& item) const {
    return summed_down(item) != nullptr || is_in_pieces(item);
  }

 private:
  /// Positions of a computed matrix by the one axis that the product sums over.
  std::vector<loop::Val> matrices(const Item& item, size_t dims_behind) const {
    const Computation& made = item.computation;
    const bool has_batch = item.slots[0].sizes.size() >= 3;
    if (!is_product(item) || !has_batch || made.combiner != loop::Combiner::dot ||
        made.reduce.size() != 1)
      return {};
    std::vector<loop::Val> found = elements_of(graph_.computations, made.inputs);
    std::erase_if(found, [&](loop::Val element) {
      const size_t rank = element->at.size();
      return matrix_of(element)->node == nullptr || rank < 3 ||
             element->at[rank - 1 - dims_behind] != made.reduce[0];
    });
    return found;
  }

  const Value* matrix_of(loop::Val element) const {
    return graph_.computations.value(element->slot);
  }

  const Value* summed_down(const Item& item) const {
    const Tuning::Chains& tuning = graph_.target.tuning.chains;
    for (const loop::Val element : matrices(item, 1)) {
      const Slot& sums = item.slots[0];
      const ir::Sizes batch(sums.sizes.begin(), sums.sizes.end() - 2);
      const int64_t fewest = std::max<int64_t>(tuning.few_tasks, graph_.target.cores);
      const Expr bytes = sym::product(sums.sizes) * size_of(sums.dtype);
      const Value* matrix = matrix_of(element);
      // Of sizes that nobody knows: a long matrix gains more than a short one loses.
      if (!sym::known_lt(sym::product(batch), fewest) &&
          !sym::known_lt(matrix->type.numel() * size_of(matrix->type.dtype), bytes * tuning.wider))
        return matrix;
    }
    return nullptr;
  }

  bool is_in_pieces(const Item& item) const {
    return std::ranges::any_of(matrices(item, 0), [&](loop::Val element) {
      return matrices_.count(matrix_of(element)) != 0 &&
             are_cut(item.computation.reduce_sizes[0], graph_.target);
    });
  }

  const KernelGraph& graph_;
  std::set<const Value*> matrices_;  // looked up only
};

/// Reductions across memory are columns, and columns have one stage: a second one would walk rows
/// of strided elements.
bool may_have_stage(const Group& group, const Item& item, int stage) {
  bool across = item.channels_last && !group.space.whole;
  return stage == 0 || item.kind != Item::Kind::reduce || !across;
}

/// An epilogue reads the product. What only reads the same operands would bring its own walk
/// through them into the product's blocks.
bool reads_member(const KernelGraph& graph, const Group& group, const PlacedReads& reads) {
  return std::any_of(reads.at.begin(), reads.at.end(),
                     [&](const std::pair<const Value*, Expr>& entry) {
                       return member_of(graph, group, entry.first) != nullptr;
                     });
}

/// Backward computes a value of a checkpoint region again to have it from there on: a kernel of
/// forward that reads the same would make it at once, and keep it all the way.
bool is_for_backward(const Item& item, const Group& group) {
  return item.node->backward && item.node->region != 0 &&
         std::ranges::none_of(group.members,
                              [](const Member& member) { return member.item->node->backward; });
}

/// First stage in which everything the item reads of the group is ready; nothing when a read is
/// not at the position where the member computes it.
std::optional<int> stage_of(const KernelGraph& graph, const Group& group, Extent extent,
                            const PlacedReads& reads) {
  int stage = 0;
  for (const std::pair<const Value*, Expr>& entry : reads.at) {
    const Member* member = member_of(graph, group, entry.first);
    if (member == nullptr) continue;
    bool per_row = member->extent == Extent::row || member->item->kind == Item::Kind::reduce;
    if (entry.second != (per_row ? reads.row : reads.full)) return std::nullopt;
    bool reader_per_row = extent == Extent::row;
    if (reader_per_row && !per_row) return std::nullopt;
    stage = std::max(stage, member->stage + (per_row && !reader_per_row ? 1 : 0));
  }
  return stage;
}

class Fuser {
 public:
  explicit Fuser(KernelGraph& graph)
      : graph_(graph), reads_(graph), numbers_(*graph.graph), added_up_(graph) {}

  void run() {
    found_.group_of.assign(graph_.items.size(), kUnplaced);
    for (const std::unique_ptr<Item>& item : graph_.items) place(*item);
    for (const std::unique_ptr<Item>& item : graph_.items)
      if (found_.group_of[item->id] == kUnplaced) start_alone(*item);
    mark_stored(graph_, found_.group_of);
    choose_in_place(graph_, found_, order_groups(graph_));
    graph_.decisions.group_of = found_.group_of;
  }

 private:
  using Reads = PlacedReads;

  /// What the item reads at a point of the space.
  const Reads& read(const Item& item, const Space& space, Extent extent) {
    return reads_.of(item, space, extent);
  }

  const Reads& own_reads(const Item& item) { return read(item, space_of(item), Extent::full); }

  // --- placing

  void place(Item& item) {
    if (item.kind == Item::Kind::library) return start_library(item);
    const Reads& reads = own_reads(item);
    // What reads nothing (random numbers, ramps) goes where its first reader goes.
    if (reads.at.empty() && item.kind == Item::Kind::map) return;
    std::vector<Item*> sources = unplaced_sources(reads);
    bool alone = item.kind == Item::Kind::scan || item.kind == Item::Kind::scatter;
    if (!alone && join_candidate(item, reads, sources)) return;
    for (Item* source : sources)
      if (found_.group_of[source->id] == kUnplaced) start_alone(*source);
    if (!alone && !sources.empty() && join_candidate(item, reads, {})) return;
    start(item, space_of(item), reads, alone);
  }

  void start_alone(Item& item) {
    Space own = space_of(item);
    start(item, own, own_reads(item), false);
  }

  std::vector<Item*> unplaced_sources(const Reads& reads) const {
    std::vector<Item*> sources;
    for (const std::pair<const Value*, Expr>& entry : reads.at) {
      Home home = graph_.homes.at(entry.first);
      bool waits = home.item != nullptr && found_.group_of[home.item->id] == kUnplaced;
      if (waits && std::find(sources.begin(), sources.end(), home.item) == sources.end())
        sources.push_back(home.item);
    }
    return sources;
  }

  bool join_candidate(Item& item, const Reads& reads, const std::vector<Item*>& sources) {
    if (!flag_fusion()) return false;
    for (const uint32_t candidate : candidates(reads)) {
      for (Item* source : sources)
        if (found_.group_of[source->id] == kUnplaced) join(candidate, *source);
      bool all_placed = std::all_of(sources.begin(), sources.end(), [&](const Item* source) {
        return found_.group_of[source->id] != kUnplaced;
      });
      if (all_placed && join(candidate, item)) return true;
    }
    return false;
  }

  /// Groups that hold or read what the item reads: by the time that joining saves, then the
  /// latest.
  std::vector<uint32_t> candidates(const Reads& reads) const {
    std::map<uint32_t, Cost, std::greater<>> saved;
    for (const std::pair<const Value*, Expr>& entry : reads.at) {
      const Cost once = cost_of_reading(*entry.first, graph_.target);
      for (uint32_t user : found_.users_of(entry.first)) saved[user] += once;
      if (const uint32_t* home = group_of(entry.first)) (saved[*home] += once) += once;
    }
    std::vector<uint32_t> order;
    for (const std::pair<const uint32_t, Cost>& entry : saved) order.push_back(entry.first);
    std::ranges::stable_sort(order, std::greater<>{}, [&](uint32_t number) {
      return microseconds(saved.at(number), graph_.target);
    });
    return order;
  }

  const uint32_t* group_of(const Value* value) const {
    Home home = graph_.homes.at(value);
    bool placed = home.item != nullptr && found_.group_of[home.item->id] != kUnplaced;
    return placed ? &found_.group_of[home.item->id] : nullptr;
  }

  void assign(Item& item, uint32_t group) { found_.group_of[item.id] = group; }

  std::set<uint32_t> dependencies(const Item& item, const Reads& reads, uint32_t self) const {
    std::set<uint32_t> depends;
    const auto add = [&](const Value* value) {
      if (const uint32_t* home = group_of(value); home && *home != self) depends.insert(*home);
    };
    for (const std::pair<const Value*, Expr>& entry : reads.at) add(entry.first);
    if (item.partial_of != nullptr && found_.group_of[item.partial_of->id] != self)
      depends.insert(found_.group_of[item.partial_of->id]);
    for (const Value* number : numbers_.read_for(*item.node)) add(number);
    return depends;
  }

  /// Whether any of them has to run after `to`.
  bool reach(const std::set<uint32_t>& from, uint32_t to) const {
    std::vector<uint32_t> stack(from.begin(), from.end());
    std::vector<char> seen(graph_.groups.size(), 0);
    while (!stack.empty()) {
      uint32_t at = stack.back();
      stack.pop_back();
      if (at == to) return true;
      if (std::exchange(seen[at], 1) != 0) continue;
      const std::set<uint32_t>& depends = graph_.groups[at].needs.groups;
      stack.insert(stack.end(), depends.begin(), depends.end());
    }
    return false;
  }

  /// A place in a group: everything that joining takes.
  struct Fit {
    Room room;
    const Reads* reads = nullptr;
    std::set<uint32_t> depends;
    int stage = 0;
  };

  bool join(uint32_t number, Item& item) {
    OrReason<Fit> found = fit_into(number, item);
    const Group& into = graph_.groups[number];
    const Comparison cost = found
                                ? compare_join(graph_, into, found->room.space, item, *found->reads)
                                : compare_join(graph_, into, into.space, item, own_reads(item));
    const bool is_dear = found && gain_of(cost, graph_.target) < 0;
    const bool is_taken = found && !is_dear;
    graph_.decisions.joins.push_back(
        {item.id, number, is_taken, is_dear ? "apart they cost less" : found.reason(), cost});
    if (!is_taken) return false;
    Group& group = graph_.groups[number];
    group.space = found->room.space;
    group.needs.groups.insert(found->depends.begin(), found->depends.end());
    add_member(number, item, found->room.extent, found->stage, *found->reads);
    return true;
  }

  OrReason<Fit> fit_into(uint32_t number, const Item& item) {
    const Group& group = graph_.groups[number];
    if (!group.takes_members()) return kFixed;
    if (is_for_backward(item, group)) return "it is computed again, for backward";
    if (static_cast<int64_t>(group.needs.reads.size() + group.members.size()) >
        graph_.target.tuning.fusion.buffers)
      return "the kernel would have too many buffers";
    const OrReason<Room> room = fit(group, item, graph_.target.tuning.fusion);
    if (!room) return room.reason();
    const Reads& reads = read(item, room->space, room->extent);
    if (is_product(*group.members[0].item) && !reads_member(graph_, group, reads))
      return "it does not read the product, whose operands it would walk again";
    if (!copies(item) && added_up_(*group.members[0].item))
      return "the product may be summed where its rows are made";
    const Member& first = group.members[0];
    const bool is_first_alone =
        adds_sums(graph_, *first.item, read(*first.item, group.space, first.extent));
    if (adds_sums(graph_, item, reads) || (is_first_alone && !reads_member(graph_, group, reads)))
      return "sums of groups are computed where one sum adds them";
    std::set<uint32_t> depends = dependencies(item, reads, number);
    if (reach(depends, number)) return "something between needs the one and makes the other";
    const std::optional<int> stage = stage_of(graph_, group, room->extent, reads);
    if (!stage) return "it reads elsewhere than the kernel computes at that point";
    if (!may_have_stage(group, item, *stage)) return "columns have one stage";
    return Fit{*room, &reads, std::move(depends), *stage};
  }

  void add_member(uint32_t number, Item& item, Extent extent, int stage, const Reads& reads) {
    Group& group = graph_.groups[number];
    group.members.push_back({&item, extent, stage});
    group.needs.can_fail |= reads.can_fail;
    for (const std::pair<const Value*, Expr>& entry : reads.at) {
      group.needs.reads.insert(entry.first);
      found_.users[entry.first].insert(number);
      bool same_place = entry.second == (extent == Extent::row ? reads.row : reads.full);
      if (!same_place) found_.moved.insert({number, entry.first});
      bool by_finish = item.kind == Item::Kind::reduce && entry.second == reads.row;
      if (extent != Extent::full || by_finish) found_.once_a_row.insert({number, entry.first});
    }
    assign(item, number);
  }

  void start(Item& item, Space space, const Reads& reads, bool alone) {
    uint32_t number = static_cast<uint32_t>(graph_.groups.size());
    Group group;
    group.space = std::move(space);
    group.kind = alone ? Group::Kind::alone : Group::Kind::loops;
    group.needs.groups = dependencies(item, reads, number);
    graph_.groups.push_back(std::move(group));
    add_member(number, item, Extent::full, 0, reads);
    if (alone)
      for (const std::pair<const Value*, Expr>& entry : reads.at)
        found_.moved.insert({number, entry.first});
  }

  void start_library(Item& item) {
    Group group;
    group.kind = Group::Kind::library;
    group.needs.can_fail = ops::def_of(*item.node).opaque;  // it may raise
    Reads reads;
    ir::for_each_operand(item.node->args, [&](const Value* operand) {
      if (!operand->type.is_tensor()) return;
      const Value* source = graph_.is_materialized(operand) ? operand : view_root_of(operand);
      reads.at.emplace_back(source, 0);
    });
    for (Item* source : unplaced_sources(reads)) start_alone(*source);
    uint32_t number = static_cast<uint32_t>(graph_.groups.size());
    group.needs.groups = dependencies(item, reads, number);
    graph_.groups.push_back(std::move(group));
    add_member(number, item, Extent::full, 0, reads);
    for (const std::pair<const Value*, Expr>& entry : reads.at)
      found_.moved.insert({number, entry.first});
  }

  const Value* view_root_of(const Value* value) const {
    while (!graph_.is_materialized(value)) value = std::get<Value*>(value->node->args[0]);
    return value;
  }

  KernelGraph& graph_;
  ReadsInSpace reads_;
  NumbersRead numbers_;
  AddedUp added_up_;
  GroupReads found_;
};

}  // namespace

void form_groups(KernelGraph& graph) { Fuser(graph).run(); }

}  // namespace tandem::schedule
