// Fusion: items are taken in program order; each joins the latest group whose iteration space it
// fits into, that it shares data with, and that it can join without a cycle. Whether a read inside
// a group is legal is not guessed from op kinds: the item's expression is written at the group's
// axes, and every read of a member must be at exactly the position that the member computes there.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/flags.h"
#include "ir/text.h"
#include "schedule/reads.h"
#include "schedule/space.h"
#include "schedule/steps.h"

namespace tandem::schedule {

using ir::Value;
using sym::Expr;

namespace {
constexpr uint32_t kUnplaced = UINT32_MAX;

Expr numel(const ir::Sizes& sizes) { return sym::product(sizes); }

class Fuser {
 public:
  explicit Fuser(KernelGraph& graph) : graph_(graph), reads_(graph) {}

  void run() {
    groups_.assign(graph_.items.size(), kUnplaced);
    for (const std::unique_ptr<Item>& item : graph_.items) place(*item);
    for (const std::unique_ptr<Item>& item : graph_.items)
      if (groups_[item->id] == kUnplaced) start_alone(*item);
    find_stored();
    order();
    choose_in_place();
    graph_.decisions.group_of = groups_;
  }

 private:
  // --- spaces

  Space space_of(const Item& item) const {
    const Computation& def = item.computation;
    Space space;
    if (item.kind == Item::Kind::map || item.kind == Item::Kind::library) {
      space.outer = without_ones(item.slots[0].sizes);
      return space;
    }
    space.reduces = true;
    if (def.full_sizes.empty()) {
      space.outer = without_ones(item.slots[0].sizes);
      space.inner = def.reduce_sizes;
      space.whole = false;
      return space;
    }
    std::vector<bool> reduced(def.full_sizes.size(), false);
    for (int64_t dim : def.reduced_dims) reduced[dim] = true;
    bool seen_inner = false;
    for (size_t i = 0; i < reduced.size(); ++i) {
      if (def.full_sizes[i] == Expr(1)) continue;
      (reduced[i] ? space.inner : space.outer).push_back(def.full_sizes[i]);
      space.whole &= reduced[i] || !seen_inner;
      seen_inner |= reduced[i];
    }
    return space;
  }

  bool rows_may_grow(const Space& space) const {
    if (!space.whole) return false;
    std::optional<int64_t> length = numel(space.inner).constant();
    std::optional<int64_t> rows = numel(space.outer).constant();
    if (length && *length > graph_.target.tuning.fusion.longest_row) return false;
    bool few_rows = rows && *rows < 8;
    return !few_rows || (length && *length <= 4096);
  }

  /// Whether the rows of a space run along the memory that a full member walks. Rows of a
  /// channels-last value do where they hold its channels.
  static bool walks_rows(const Item& item, const Space& space) {
    if (!item.channels_last) return true;
    bool reduces = !item.computation.full_sizes.empty() && item.kind == Item::Kind::reduce;
    const ir::Sizes& sizes = reduces ? item.computation.full_sizes : item.slots[0].sizes;
    Expr rows = numel(space.outer);
    return rows == Expr(1) || rows == sizes[0];
  }

  static bool all_walk_rows(const Group& group, const Space& space) {
    return std::all_of(group.members.begin(), group.members.end(), [&](const Member& member) {
      return member.extent == Extent::row || walks_rows(*member.item, space);
    });
  }

  using Room = std::pair<Space, Extent>;

  /// The group's space with room for the item.
  OrReason<Room> fit(const Group& group, const Item& item) const {
    const Space& have = group.space;
    Space want = space_of(item);
    if (item.kind == Item::Kind::map) {
      Expr count = numel(want.outer);
      if (!have.reduces) {
        if (numel(have.outer) == count) return Room{have, Extent::full};
        return kOtherPoints;
      }
      if (count == numel(have.outer)) return Room{have, Extent::row};
      if (count != numel(have.outer) * numel(have.inner)) return kOtherPoints;
      if (!rows_may_grow(have)) return kLongRows;
      if (!walks_rows(item, have) || !all_walk_rows(group, have)) return kOtherOrder;
      return Room{have, Extent::full};
    }
    if (item.kind != Item::Kind::reduce) return "a scan, a scatter or a library call is alone";
    if (item.partial_of != nullptr) return "it combines partial results of all tasks";
    if (item.partial_rows != Expr(0) && adds_rows(group, item)) return Room{have, Extent::columns};
    if (have.reduces) return fit_reduction(group, have, want, item);
    if (!walks_rows(item, want) || !all_walk_rows(group, want)) return kOtherOrder;
    return fit_into_rows(group, have, want);
  }
  static constexpr const char* kOtherPoints = "it has another number of points";
  static constexpr const char* kLongRows = "rows would be too long, or too few";
  static constexpr const char* kOtherOrder = "one of them walks memory in another order";

  /// Sums of columns over the rows that a group walks: each row of a block adds to them, so that
  /// what a row's kernel has in cache is not read a second time (layer norm backward).
  bool adds_rows(const Group& group, const Item& item) const {
    const Space& have = group.space;
    const ir::Sizes& sizes = item.slots[0].sizes;
    bool computes_points =
        std::any_of(group.members.begin(), group.members.end(), [](const Member& member) {
          return member.extent == Extent::full && member.item->kind == Item::Kind::map;
        });
    return have.reduces && rows_may_grow(have) && computes_points &&
           numel(have.outer) == item.partial_rows &&
           numel(have.inner) == numel(ir::Sizes(sizes.begin() + 1, sizes.end()));
  }

  OrReason<Room> fit_reduction(const Group& group, const Space& have, const Space& want,
                               const Item& item) const {
    bool same_rows =
        numel(have.outer) == numel(want.outer) && numel(have.inner) == numel(want.inner);
    if (!same_rows || have.whole != want.whole) return "it reduces other rows";
    if (item.computation.combiner == loop::Combiner::dot)
      return "the register tile of a product has room for one sum";
    if (!have.whole) {
      const Computation& a = group.members[0].item->computation;
      const Computation& b = item.computation;
      bool same_shape = a.full_sizes == b.full_sizes && a.reduced_dims == b.reduced_dims &&
                        have.outer == want.outer && have.inner == want.inner;
      if (!same_shape) return "it reduces other dimensions";
    }
    return Room{have, Extent::full};
  }

  /// A reduction over the trailing part of what the group computes point by point.
  OrReason<Room> fit_into_rows(const Group& group, const Space& have, const Space& want) const {
    if (!want.whole) return "it does not reduce trailing dimensions";
    if (!group.takes_members()) return kFixed;
    if (!rows_may_grow(want)) return kLongRows;
    for (size_t cut = 0; cut <= have.outer.size(); ++cut) {
      ir::Sizes outer(have.outer.begin(), have.outer.begin() + cut);
      ir::Sizes inner(have.outer.begin() + cut, have.outer.end());
      if (numel(outer) != numel(want.outer) || numel(inner) != numel(want.inner)) continue;
      return Room{Space{outer, inner, true, true}, Extent::full};
    }
    return "its rows are no rows of the group";
  }
  static constexpr const char* kFixed = "nothing joins a library call, a scan or a scatter";

  // --- reading

  using Reads = PlacedReads;

  /// What the item reads at a point of the space.
  Reads read(const Item& item, const Space& space, Extent extent) {
    return reads_.of(item, space, extent);
  }

  // --- placing

  void place(Item& item) {
    if (item.kind == Item::Kind::library) return start_library(item);
    Space own = space_of(item);
    Reads reads = read(item, own, Extent::full);
    // What reads nothing (random numbers, ramps) goes where its first reader goes.
    if (reads.at.empty() && item.kind == Item::Kind::map) return;
    std::vector<Item*> sources = unplaced_sources(reads);
    bool alone = item.kind == Item::Kind::scan || item.kind == Item::Kind::scatter;
    if (!alone && join_candidate(item, reads, sources)) return;
    for (Item* source : sources)
      if (groups_[source->id] == kUnplaced) start_alone(*source);
    if (!alone && !sources.empty() && join_candidate(item, reads, {})) return;
    start(item, std::move(own), reads, alone);
  }

  void start_alone(Item& item) {
    Space own = space_of(item);
    start(item, own, read(item, own, Extent::full), false);
  }

  std::vector<Item*> unplaced_sources(const Reads& reads) const {
    std::vector<Item*> sources;
    for (const std::pair<const Value*, Expr>& entry : reads.at) {
      Home home = graph_.homes.at(entry.first);
      bool waits = home.item != nullptr && groups_[home.item->id] == kUnplaced;
      if (waits && std::find(sources.begin(), sources.end(), home.item) == sources.end())
        sources.push_back(home.item);
    }
    return sources;
  }

  bool join_candidate(Item& item, const Reads& reads, const std::vector<Item*>& sources) {
    if (!flag_fusion()) return false;
    for (uint32_t candidate : candidates(reads)) {
      for (Item* source : sources)
        if (groups_[source->id] == kUnplaced) join(candidate, *source);
      bool all_placed = std::all_of(sources.begin(), sources.end(), [&](const Item* source) {
        return groups_[source->id] != kUnplaced;
      });
      if (all_placed && join(candidate, item)) return true;
    }
    return false;
  }

  /// Groups that hold or read what the item reads, latest first.
  std::vector<uint32_t> candidates(const Reads& reads) const {
    std::set<uint32_t, std::greater<>> found;
    for (const std::pair<const Value*, Expr>& entry : reads.at) {
      std::map<const Value*, std::set<uint32_t>>::const_iterator it = users_.find(entry.first);
      if (it != users_.end()) found.insert(it->second.begin(), it->second.end());
      if (const uint32_t* home = group_of(entry.first)) found.insert(*home);
    }
    return {found.begin(), found.end()};
  }

  const uint32_t* group_of(const Value* value) const {
    Home home = graph_.homes.at(value);
    bool placed = home.item != nullptr && groups_[home.item->id] != kUnplaced;
    return placed ? &groups_[home.item->id] : nullptr;
  }

  void assign(Item& item, uint32_t group) { groups_[item.id] = group; }

  std::set<uint32_t> dependencies(const Item& item, const Reads& reads, uint32_t self) const {
    std::set<uint32_t> depends;
    for (const std::pair<const Value*, Expr>& entry : reads.at)
      if (const uint32_t* home = group_of(entry.first); home && *home != self)
        depends.insert(*home);
    if (item.partial_of != nullptr && groups_[item.partial_of->id] != self)
      depends.insert(groups_[item.partial_of->id]);
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

  static bool is_product(const Item& item) {
    return item.kind == Item::Kind::reduce && item.computation.combiner == loop::Combiner::dot;
  }

  /// An epilogue reads the product. What only reads the same operands would bring its own walk
  /// through them into the product's blocks.
  bool reads_member(const Group& group, const Reads& reads) const {
    return std::any_of(reads.at.begin(), reads.at.end(),
                       [&](const std::pair<const Value*, Expr>& entry) {
                         return member_of(group, entry.first) != nullptr;
                       });
  }

  /// A place in a group: everything that joining takes.
  struct Fit {
    Room room;
    Reads reads;
    std::set<uint32_t> depends;
    int stage = 0;
  };

  bool join(uint32_t number, Item& item) {
    OrReason<Fit> found = fit_into(number, item);
    graph_.decisions.joins.push_back({item.id, number, static_cast<bool>(found), found.reason()});
    if (!found) return false;
    Group& group = graph_.groups[number];
    group.space = found->room.first;
    group.needs.groups.insert(found->depends.begin(), found->depends.end());
    add_member(number, item, found->room.second, found->stage, found->reads);
    return true;
  }

  OrReason<Fit> fit_into(uint32_t number, const Item& item) {
    const Group& group = graph_.groups[number];
    if (!group.takes_members()) return kFixed;
    if (static_cast<int64_t>(group.needs.reads.size() + group.members.size()) >
        graph_.target.tuning.fusion.buffers)
      return "the kernel would have too many buffers";
    const OrReason<Room> room = fit(group, item);
    if (!room) return room.reason();
    Fit found{*room, read(item, room->first, room->second), {}, 0};
    if (is_product(*group.members[0].item) && !reads_member(group, found.reads))
      return "it does not read the product, whose operands it would walk again";
    found.depends = dependencies(item, found.reads, number);
    if (reach(found.depends, number)) return "something between needs the one and makes the other";
    const std::optional<int> stage = stage_of(group, room->second, found.reads);
    if (!stage) return "it reads elsewhere than the kernel computes at that point";
    if (!may_have_stage(group, item, *stage)) return "columns have one stage";
    found.stage = *stage;
    return found;
  }

  /// Reductions across memory are columns, and columns have one stage: a second one would walk rows
  /// of strided elements.
  static bool may_have_stage(const Group& group, const Item& item, int stage) {
    bool across = item.channels_last && !group.space.whole;
    return stage == 0 || item.kind != Item::Kind::reduce || !across;
  }

  /// First stage in which everything the item reads of the group is ready; nothing when a read is
  /// not at the position where the member computes it.
  std::optional<int> stage_of(const Group& group, Extent extent, const Reads& reads) const {
    int stage = 0;
    for (const std::pair<const Value*, Expr>& entry : reads.at) {
      const Member* member = member_of(group, entry.first);
      if (member == nullptr) continue;
      bool per_row = member->extent == Extent::row || member->item->kind == Item::Kind::reduce;
      if (entry.second != (per_row ? reads.row : reads.full)) return std::nullopt;
      bool reader_per_row = extent == Extent::row;
      if (reader_per_row && !per_row) return std::nullopt;
      stage = std::max(stage, member->stage + (per_row && !reader_per_row ? 1 : 0));
    }
    return stage;
  }

  const Member* member_of(const Group& group, const Value* value) const {
    Home home = graph_.homes.at(value);
    for (const Member& member : group.members)
      if (member.item == home.item && home.item != nullptr) return &member;
    return nullptr;
  }

  void add_member(uint32_t number, Item& item, Extent extent, int stage, const Reads& reads) {
    Group& group = graph_.groups[number];
    group.members.push_back({&item, extent, stage});
    group.needs.can_fail |= reads.can_fail;
    for (const std::pair<const Value*, Expr>& entry : reads.at) {
      group.needs.reads.insert(entry.first);
      users_[entry.first].insert(number);
      bool same_place = entry.second == (extent == Extent::row ? reads.row : reads.full);
      if (!same_place) moved_reads_.insert({number, entry.first});
      bool by_finish = item.kind == Item::Kind::reduce && entry.second == reads.row;
      if (extent != Extent::full || by_finish) row_reads_.insert({number, entry.first});
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
        moved_reads_.insert({number, entry.first});
  }

  void start_library(Item& item) {
    Group group;
    group.kind = Group::Kind::library;
    group.needs.can_fail = item.route == ops::RouteKind::host;  // it may raise
    Reads reads;
    ir::for_each_operand(item.node->args, [&](const Value* operand) {
      const Value* source = graph_.is_realized(operand) ? operand : view_root_of(operand);
      reads.at.emplace_back(source, 0);
    });
    for (Item* source : unplaced_sources(reads)) start_alone(*source);
    uint32_t number = static_cast<uint32_t>(graph_.groups.size());
    group.needs.groups = dependencies(item, reads, number);
    graph_.groups.push_back(std::move(group));
    add_member(number, item, Extent::full, 0, reads);
    for (const std::pair<const Value*, Expr>& entry : reads.at)
      moved_reads_.insert({number, entry.first});
  }

  const Value* view_root_of(const Value* value) const {
    while (!graph_.is_realized(value)) value = std::get<Value*>(value->node->args[0]);
    return value;
  }

  // --- order and storage

  void find_stored() {
    for (const ir::Output& output : graph_.graph->outputs())
      if (output.value != nullptr) store(output.value);
    for (const ir::Node* node = graph_.graph->first(); node != nullptr; node = node->next)
      if (node->op->mutates()) store(std::get<Value*>(node->args[1]));
    for (uint32_t i = 0; i < graph_.groups.size(); ++i)
      for (const Value* value : graph_.groups[i].needs.reads)
        if (const uint32_t* home = group_of(value); home && *home != i) store(value);
    for (const std::unique_ptr<Item>& item : graph_.items)
      if (item->partial_of != nullptr) item->partial_of->slots[0].is_stored = true;
  }

  void store(const Value* value) {
    Home home = graph_.homes.at(value);
    if (home.item != nullptr) home.item->slots[home.slot].is_stored = true;
  }

  bool writes_back(const Group& group) const {
    for (const Member& member : group.members)
      for (const Slot& slot : member.item->slots)
        if (slot.value != nullptr && write_back_target(slot.value) != nullptr) return true;
    return false;
  }

  /// Input that receives the value at the end of the graph.
  const Value* write_back_target(const Value* value) const {
    for (const ir::Use& use : value->uses)
      if (use.node != nullptr && use.node->op->mutates() && use.arg == 1)
        return std::get<Value*>(use.node->args[0]);
    return nullptr;
  }

  /// Topological order by first member; groups that overwrite inputs come as late as they can.
  void order() {
    std::vector<Group>& groups = graph_.groups;
    std::vector<size_t> waiting(groups.size());
    std::vector<std::vector<uint32_t>> users(groups.size());
    for (uint32_t i = 0; i < groups.size(); ++i) {
      waiting[i] = groups[i].needs.groups.size();
      for (uint32_t before : groups[i].needs.groups) users[before].push_back(i);
    }
    std::set<std::pair<bool, uint32_t>> ready;
    for (uint32_t i = 0; i < groups.size(); ++i)
      if (waiting[i] == 0) ready.insert({writes_back(groups[i]), i});
    std::vector<Group> ordered;
    position_.assign(groups.size(), 0);
    while (!ready.empty()) {
      uint32_t next = ready.begin()->second;
      ready.erase(ready.begin());
      position_[next] = static_cast<uint32_t>(ordered.size());
      ordered.push_back(std::move(groups[next]));
      for (uint32_t user : users[next])
        if (--waiting[user] == 0) ready.insert({writes_back(groups[user]), user});
    }
    TD_CHECK(ordered.size() == groups.size()) << "fusion made a cycle";
    for (Group& group : ordered) {
      std::set<uint32_t> renamed;
      for (uint32_t before : group.needs.groups) renamed.insert(position_[before]);
      group.needs.groups = std::move(renamed);
    }
    groups = std::move(ordered);
  }

  /// A new value of an input may be written straight into the input when every other reader has
  /// run, its own group reads it at the place it writes, and nothing that can fail comes later. Its
  /// own group must not fail either: tasks before the failing one, or beside it, have written.
  void choose_in_place() {
    uint32_t after_failing = 0;
    for (uint32_t i = 0; i < graph_.groups.size(); ++i)
      if (graph_.groups[i].needs.can_fail) after_failing = i + 1;
    for (const std::unique_ptr<Item>& item : graph_.items)
      for (uint32_t slot = 0; slot < item->slots.size(); ++slot)
        try_in_place(*item, slot, after_failing);
  }

  void try_in_place(Item& item, uint32_t slot, uint32_t after_failing) {
    const Value* value = item.slots[slot].value;
    const Value* input = value == nullptr ? nullptr : write_back_target(value);
    if (input == nullptr || input->node != nullptr || is_output(value)) return;
    const Group& group = graph_.groups[position_[groups_[item.id]]];
    bool one_stage = std::all_of(group.members.begin(), group.members.end(),
                                 [](const Member& member) { return member.stage == 0; });
    bool map_only = item.kind == Item::Kind::map && one_stage;
    bool same_layout = input->type.sizes == value->type.sizes && input->type.strides.empty() &&
                       input->type.dtype == value->type.dtype;
    uint32_t original = groups_[item.id];
    uint32_t place = position_[original];
    if (!map_only || !same_layout || place < after_failing) return;
    if (moved_reads_.count({original, input})) return;
    // What is computed once a row reads after the row's elements are written.
    bool writes_rows = member_of(group, value)->extent == Extent::full;
    if (writes_rows && row_reads_.count({original, input})) return;
    for (uint32_t reader : users_[input])
      if (reader != original && position_[reader] >= place) return;
    for (uint32_t reader : users_[value])  // later writes must not spoil them
      if (position_[reader] < place) return;
    item.slots[slot].in_place_of = input;
  }

  bool is_output(const Value* value) const {
    return std::any_of(value->uses.begin(), value->uses.end(),
                       [](const ir::Use& use) { return use.node == nullptr; });
  }

  KernelGraph& graph_;
  ReadsInSpace reads_;
  std::vector<uint32_t> groups_;    // by item id: number of the group before ordering
  std::vector<uint32_t> position_;  // by that number: place in execution order
  std::map<const Value*, std::set<uint32_t>> users_;  // only looked up, never iterated for output
  // By that number: what it reads elsewhere than it computes; what it reads once a row.
  std::set<std::pair<uint32_t, const Value*>> moved_reads_, row_reads_;
};

}  // namespace

void form_groups(KernelGraph& graph) { Fuser(graph).run(); }

}  // namespace tandem::schedule
