// Problem: between two products that work on the same rows (attention: scores, softmax, weighted
// values) stands a matrix that is larger than what goes in and comes out, and passes through memory
// several times. Approach: groups become one kernel whose outer axes are those rows: a product, any
// kernels of the rows, a product that sums along the rows. What only members read is a row of
// scratch; map_axes works on blocks of rows, so that the matrix of a block stays in cache. Nothing
// is asked of ops: a member reads, of what the chain computes, exactly its own row, which the
// addresses say. Right factors are copied to panels for each block of rows, so they must be small.
// A product that sums along the rows (gradients of keys and values) may be the last to read a
// matrix: it gathers, block after block, what it gives, and the blocks of a batch then run in
// order.
#include "schedule/chain.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/flags.h"
#include "schedule/chain_rows.h"
#include "schedule/steps.h"

namespace tandem::schedule {
namespace {

using ir::Value;
using loop::Kernel;
using loop::Stage;
using loop::Val;
using sym::Expr;

/// Groups under construction as one.
struct Chain {
  std::vector<uint32_t> members;  // in the order of their stages
  std::set<uint32_t> gathering;   // members that sum along the rows
  ir::Sizes rows;                 // sizes of the outer axes
  int products = 0;
};

class Chainer {
 public:
  explicit Chainer(KernelGraph& graph)
      : graph_(graph),
        tuning_(graph.target.tuning),
        groups_(graph.groups),
        symbols_(graph.graph->pool()) {
    for (uint32_t i = 0; i < groups_.size(); ++i) {
      place_.push_back(i);
      needs_.push_back(groups_[i].needs);
      for (const Member& member : groups_[i].members) enter_item(*member.item, i);
    }
    joined_.resize(groups_.size());
  }

  void run() {
    for (uint32_t i = 0; i < groups_.size(); ++i) {
      if (!may_join(i) || !is_product(groups_[i]) || groups_[i].kernel.outer.size() < 2) continue;
      Chain chain = best_from(i);
      std::optional<uint32_t> place = place_of(chain);
      if (place && is_worth_it(chain)) join(chain, *place);
    }
    graph_.drop_empty_groups(place_);
  }

 private:
  void enter_item(const Item& item, uint32_t group) {
    number_of_[&item] = group;
    for (const Slot& slot : item.slots)
      if (slot.in_place_of != nullptr) overwritten_.emplace(group, slot.in_place_of);
  }

  /// A kernel of its own values: nothing written over an input, no partial sums, no failing.
  bool may_join(uint32_t number) const {
    const Group& group = groups_[number];
    if (joined_[number] || !group.takes_members() || needs_[number].can_fail) return false;
    if (overwritten_.count(number) != 0) return false;
    for (size_t i = 0; i < group.kernel.buffers.size(); ++i) {
      loop::Access access = group.kernel.buffers[i].access;
      if (group.buffer_values[i] == nullptr && access != loop::Access::scratch) return false;
    }
    return !is_empty(group.kernel);
  }

  static bool is_empty(const Kernel& kernel) {
    auto none = [](const std::vector<loop::Axis>& axes) {
      return std::any_of(axes.begin(), axes.end(),
                         [](const loop::Axis& axis) { return axis.extent == Expr(0); });
    };
    return none(kernel.outer) ||
           std::any_of(kernel.stages.begin(), kernel.stages.end(), [&](const Stage& stage) {
             return none(stage.axes) || none(stage.reduce_axes);
           });
  }

  /// The boldest chain that pays.
  Chain best_from(uint32_t first) {
    if (graph_.target.is_gpu()) return grown(first, false);  // blocks have no order to gather in
    use_l3_ = true;
    Chain chain = grown(first, true);
    if (gathering_pays(chain) && long_panels_pay(chain)) return chain;
    use_l3_ = false;
    chain = grown(first, true);
    return gathering_pays(chain) ? chain : grown(first, false);
  }

  Chain grown(uint32_t first, bool gathering) {
    Chain chain;
    chain.members = {first};
    chain.rows = extents(groups_[first].kernel.outer);
    chain.rows.pop_back();
    chain.products = 1;
    if (!fits(chain, first)) return chain;
    for (uint32_t i = first + 1; i < groups_.size(); ++i) {
      if (!may_join(i) || !reads_chain(chain, i)) continue;
      if (try_member(chain, i, false)) {
        add_sources(chain, i, gathering);
      } else if (gathering) {
        try_member(chain, i, true);
      }
    }
    return chain;
  }

  void enter(Chain& chain, uint32_t number, bool gathers) const {
    std::vector<uint32_t>& members = chain.members;
    members.insert(std::upper_bound(members.begin(), members.end(), number), number);
    if (gathers) chain.gathering.insert(number);
    chain.products += is_product(groups_[number]) ? 1 : 0;
  }

  bool holds_together(const Chain& chain) {
    bool all_fit = std::all_of(chain.members.begin(), chain.members.end(), [&](uint32_t member) {
      return chain.gathering.count(member) == 0 ? fits(chain, member)
                                                : fits_gathering(chain, member);
    });
    return all_fit && stays_in_cache(chain) && place_of(chain);
  }

  bool try_member(Chain& chain, uint32_t number, bool gathers) {
    Chain longer = chain;
    enter(longer, number, gathers);
    if (!holds_together(longer)) return false;
    chain = std::move(longer);
    return true;
  }

  /// Other products that the member reads row by row, and no one else: the gradient of the weights
  /// beside the weights. Or no one else but products that gather.
  void add_sources(Chain& chain, uint32_t member, bool gathering) {
    for (uint32_t source : needs_[member].groups) {
      if (is_member(chain, source) || !may_join(source) || !is_product(groups_[source])) continue;
      Chain longer = chain;
      enter(longer, source, false);
      bool joins = holds_together(longer) && leaves_nothing(longer, source);
      if (!joins && gathering) {
        enter_readers(longer, source);
        joins = holds_together(longer) && leaves_nothing(longer, source);
      }
      if (joins) chain = std::move(longer);
    }
  }

  void enter_readers(Chain& chain, uint32_t source) const {
    for (uint32_t i = 0; i < groups_.size(); ++i)
      if (!is_member(chain, i) && may_join(i) && is_product(groups_[i]) &&
          needs_[i].groups.count(source) != 0)
        enter(chain, i, true);
  }

  bool leaves_nothing(const Chain& chain, uint32_t member) const {
    const Group& group = groups_[member];
    for (size_t i = 0; i < group.buffer_values.size(); ++i)
      if (group.kernel.buffers[i].access == loop::Access::write &&
          !is_inside(chain, group.buffer_values[i]))
        return false;
    return true;
  }

  bool is_member(const Chain& chain, uint32_t number) const {
    return std::find(chain.members.begin(), chain.members.end(), number) != chain.members.end();
  }

  bool is_made_in(const Chain& chain, const Value* value) const {
    Home home = value == nullptr ? Home{} : graph_.homes.at(value);
    return home.item != nullptr && is_member(chain, number_of_.at(home.item));
  }

  bool reads_chain(const Chain& chain, uint32_t number) const {
    const std::set<const Value*>& reads = needs_[number].reads;
    return std::any_of(reads.begin(), reads.end(),
                       [&](const Value* value) { return is_made_in(chain, value); });
  }

  // --- what fits
  // ------------------------------------------------------------------------------------

  /// Whether the group walks the chain's rows and knows, of the chain's values, its own row only.
  bool fits(const Chain& chain, uint32_t number) {
    const Group& group = groups_[number];
    const Kernel& kernel = group.kernel;
    size_t count = kernel.outer.size();
    if (is_product(group)) count -= count == 0 ? 0 : 1;
    ir::Sizes sizes = extents(kernel.outer);
    sizes.resize(count);
    if (is_product(group) && !has_small_panel(group)) return false;
    if (reads_gathered(chain, number)) return false;
    if (count == 0 || sym::product(sizes) != sym::product(chain.rows)) return false;
    ops::Index axes = fresh_axes(symbols_, chain.rows);
    sym::Substitution map = at_rows(kernel, count, chain.rows, axes);
    for (const Stage& stage : kernel.stages)
      if (!keeps_to_row(chain, group, stage, map, axes)) return false;
    return !is_product(group) || walks_apart(group, map, axes.back());
  }

  bool is_gathered(const Chain& chain, const Value* value) const {
    Home home = graph_.homes.at(value);
    return home.item != nullptr && chain.gathering.count(number_of_.at(home.item)) != 0;
  }

  /// Another member's result, that is: it is whole after the last block only.
  bool reads_gathered(const Chain& chain, uint32_t number) const {
    const std::set<const Value*>& reads = needs_[number].reads;
    return std::any_of(reads.begin(), reads.end(), [&](const Value* value) {
      return is_gathered(chain, value) && number_of_.at(graph_.homes.at(value).item) != number;
    });
  }

  /// Whether the group is a product, for each of a batch, that sums along the chain's rows and
  /// stores the sums as they are.
  bool fits_gathering(const Chain& chain, uint32_t number) {
    const Group& group = groups_[number];
    const Kernel& kernel = group.kernel;
    if (!is_product(group) || chain.rows.size() < 2 || kernel.outer.size() < 3) return false;
    const Stage& stage = kernel.stages[0];
    ir::Sizes batch = extents(kernel.outer);
    batch.resize(batch.size() - 2);
    const Expr tasks = sym::product(batch);
    if (stage.reduce_axes.size() != 1 || stage.reduce_axes[0].extent != chain.rows.back() ||
        tasks * chain.rows.back() != sym::product(chain.rows) ||
        !sym::known_le(std::max<int64_t>(tuning_.chains.few_tasks, graph_.target.cores), tasks))
      return false;
    if (reads_gathered(chain, number) || !stores_sums(stage) || !has_small_block(kernel))
      return false;
    ops::Index axes = fresh_axes(symbols_, chain.rows);
    sym::Substitution map = at_sum(kernel, chain.rows, axes);
    return keeps_to_row(chain, group, stage, map, axes) &&
           walks_apart(group, map, kernel.outer[kernel.outer.size() - 2].index);
  }

  static bool stores_sums(const Stage& stage) {
    return stage.after.size() == 1 && !stage.after[0].accumulate &&
           stage.after[0].value->opcode == loop::Opcode::local &&
           stage.after[0].value->dtype == DType::f32;
  }

  /// Of the right factor, a block of rows.
  bool has_small_block(const Kernel& kernel) const {
    int64_t width = kernel.outer.back().extent.constant().value_or(tuning_.assumed_length);
    return width * tuning_.chains.fewest_rows * size_of(DType::f32) <=
           std::max(graph_.target.l2_bytes, share_of_l3()) / 2;
  }

  /// What the gathering members read stays inside, and is more than the cache holds.
  bool gathering_pays(const Chain& chain) const {
    for (uint32_t member : chain.gathering)
      for (const Value* value : needs_[member].reads) {
        if (!is_made_in(chain, value) || is_gathered(chain, value)) continue;
        std::optional<int64_t> elements =
            (width_of(*value, chain.rows) * chain.rows.back()).constant();
        bool is_large =
            elements && *elements * size_of(value->type.dtype) >= tuning_.chains.large_matrix;
        if (!is_large || !is_inside(chain, value)) return false;
      }
    return true;
  }

  bool keeps_to_row(const Chain& chain, const Group& group, const Stage& stage,
                    const sym::Substitution& map, const ops::Index& axes) const {
    auto own_row = [&](int32_t slot, Expr address) {
      const Value* value = group.buffer_values[static_cast<size_t>(slot)];
      Expr row = linear_index(axes, chain.rows) * width_of(*value, chain.rows);
      Expr column = sym::substitute(address, map) - row;
      return std::none_of(axes.begin(), axes.end(),
                          [&](Expr axis) { return sym::depends_on(column, axis); });
    };
    for (Val value : loop::scalars_of(stage)) {
      bool loads = value->opcode == loop::Opcode::load;
      const Value* from = loads ? group.buffer_values[static_cast<size_t>(value->slot)] : nullptr;
      if (is_made_in(chain, from) && !own_row(value->slot, value->index)) return false;
    }
    bool keeps = true;
    loop::for_each_store(stage, [&](const loop::Store& store) {
      const Value* to = group.buffer_values[static_cast<size_t>(store.buffer)];
      keeps &= to == nullptr || !is_inside(chain, to) || own_row(store.buffer, store.index);
    });
    return keeps;
  }

  /// One factor walks the rows, the other one the columns.
  static bool walks_apart(const Group& group, const sym::Substitution& map, Expr row) {
    const Kernel& kernel = group.kernel;
    Expr column = kernel.outer.back().index;
    auto walks = [&](Val factor, Expr axis) {
      std::vector<Val> roots{factor};
      for (Val part : loop::reachable(roots))
        if (sym::depends_on(sym::substitute(part->index, map), axis)) return true;
      return false;
    };
    const std::vector<Val>& inputs = kernel.stages[0].reductions[0].inputs;
    for (size_t left : {0, 1})
      if (walks(inputs[left], row) && !walks(inputs[left], column) &&
          walks(inputs[1 - left], column) && !walks(inputs[1 - left], row))
        return stores_along(kernel.stages[0], column);
    return false;
  }

  static bool stores_along(const Stage& stage, Expr column) {
    return std::all_of(stage.after.begin(), stage.after.end(), [&](const loop::Store& store) {
      std::optional<sym::Affine> affine = sym::affine_in(store.index, column);
      return affine && affine->coefficient == Expr(1);
    });
  }

  // --- where it runs
  // --------------------------------------------------------------------------------

  /// A member's place to which all others can move.
  std::optional<uint32_t> place_of(const Chain& chain) const {
    for (uint32_t place : chain.members)
      if (std::all_of(chain.members.begin(), chain.members.end(),
                      [&](uint32_t member) { return may_move(chain, member, place); }))
        return place;
    return std::nullopt;
  }

  bool may_move(const Chain& chain, uint32_t member, uint32_t to) const {
    for (uint32_t other = 0; other < needs_.size(); ++other) {
      if (is_member(chain, other)) continue;
      bool before = place_[other] < to;
      bool needs_it = needs_[other].groups.count(member) != 0;
      bool is_needed = needs_[member].groups.count(other) != 0;
      if ((needs_it && before) || (is_needed && !before)) return false;
      if (before && place_[other] > member && overwrites_read(other, member)) return false;
    }
    return true;
  }

  /// Whether a group writes over an input that the member reads.
  bool overwrites_read(uint32_t writer, uint32_t member) const {
    auto [first, last] = overwritten_.equal_range(writer);
    return std::any_of(first, last, [&](const std::pair<const uint32_t, const Value*>& entry) {
      return needs_[member].reads.count(entry.second) != 0;
    });
  }

  // --- what it is worth
  // -----------------------------------------------------------------------------

  /// Whether only members read a value of the chain.
  bool is_inside(const Chain& chain, const Value* value) const {
    if (!is_made_in(chain, value)) return false;
    for (const ir::Use& use : value->uses)
      if (use.node == nullptr || use.node->op->mutates()) return false;
    for (uint32_t i = 0; i < needs_.size(); ++i)
      if (needs_[i].reads.count(value) != 0 && !is_member(chain, i)) return false;
    return true;
  }

  std::set<const Value*> inside(const Chain& chain) const {
    std::set<const Value*> values;
    for (uint32_t member : chain.members)
      for (const Value* value : groups_[member].buffer_values)
        if (value != nullptr && is_inside(chain, value)) values.insert(value);
    return values;
  }

  bool is_worth_it(const Chain& chain) const {
    return chain.products >= 2 && !inside(chain).empty();
  }

  /// Whether a block of rows is small enough for what stays inside.
  bool stays_in_cache(const Chain& chain) const {
    if (graph_.target.is_gpu()) return stays_in_shared(chain);
    int64_t row = 0;
    for (const Value* value : inside(chain))
      row = std::max(row, width_of(*value, chain.rows).constant().value_or(tuning_.assumed_length) *
                              size_of(value->type.dtype));
    return row * tuning_.chains.fewest_rows <= std::max(graph_.target.l2_bytes, share_of_l3() / 2);
  }

  /// Of a GPU: all of it at once, with room for a few numbers of each row.
  bool stays_in_shared(const Chain& chain) const {
    constexpr int64_t kNumbers = 64;
    int64_t row = kNumbers * size_of(DType::f64);
    for (const Value* value : inside(chain)) {
      const int64_t width = width_of(*value, chain.rows).range().hi;
      if (width > graph_.target.gpu.shared_bytes) return false;
      row += width * size_of(value->type.dtype);
    }
    return row * tuning_.blocks.chain_rows <= graph_.target.gpu.shared_bytes;
  }

  /// Of the right factor: it is copied for each block of rows. A narrow one (keys, values of
  /// attention) may be long, as then the scores would be far larger.
  bool has_small_panel(const Group& group) const {
    const int64_t l2 = graph_.target.l2_bytes;
    const Panel panel = panel_of(group);
    bool is_narrow = std::min(panel.width, panel.length) <= tuning_.chains.narrow_factor;
    return panel.bytes <= (is_narrow ? std::max(2 * l2, share_of_l3()) : l2 / 4);
  }

  struct Panel {
    int64_t width = 0;
    int64_t length = 1;
    int64_t bytes = INT64_MAX;
  };

  Panel panel_of(const Group& group) const {
    const Stage& stage = group.kernel.stages[0];
    Panel panel;
    if (group.kernel.outer.empty()) return panel;
    panel.width = group.kernel.outer.back().extent.constant().value_or(tuning_.assumed_length);
    for (const loop::Axis& axis : stage.reduce_axes)
      panel.length *= axis.extent.constant().value_or(tuning_.assumed_length);
    panel.bytes = size_of(stage.reductions[0].inputs[0]->dtype) * panel.width * panel.length;
    return panel;
  }

  /// A factor that the second-level cache does not hold is worth its copies only where what it
  /// meets, or makes, stays out of memory.
  bool long_panels_pay(const Chain& chain) const {
    return std::all_of(chain.members.begin(), chain.members.end(), [&](uint32_t member) {
      const Group& group = groups_[member];
      if (!is_product(group) || chain.gathering.count(member) != 0 ||
          panel_of(group).bytes <= 2 * graph_.target.l2_bytes)
        return true;
      return std::any_of(
          group.buffer_values.begin(), group.buffer_values.end(), [&](const Value* value) {
            return value != nullptr && is_inside(chain, value) &&
                   sym::known_lt(tuning_.chains.narrow_factor, width_of(*value, chain.rows));
          });
    });
  }

  /// What a core may take of the last cache: slower, but a long row's scores in memory are far
  /// worse.
  int64_t share_of_l3() const {
    return use_l3_ ? graph_.target.l3_bytes / (2 * graph_.target.cores) : 0;
  }

  // --- joining
  // --------------------------------------------------------------------------------------

  void join(const Chain& chain, uint32_t place) {
    std::set<const Value*> values = inside(chain);
    std::vector<ChainMember> members;
    for (uint32_t member : chain.members)
      members.push_back({std::move(groups_[member]), chain.gathering.count(member) != 0});
    for (uint32_t member : chain.members) {
      joined_[member] = true;
      place_[member] = place;
      groups_[member] = {};
    }
    groups_[place] = joined_members(symbols_, chain.rows, std::move(values), std::move(members));
  }

  KernelGraph& graph_;
  const Tuning& tuning_;
  std::vector<Needs> needs_;  // by group, as they were before any was joined
  std::vector<Group>& groups_;
  sym::Pool& symbols_;
  std::map<const Item*, uint32_t> number_of_;          // its group; only looked up
  std::multimap<uint32_t, const Value*> overwritten_;  // inputs, by the group that writes over them
  std::vector<uint32_t> place_;                        // by group: where it runs
  std::vector<char> joined_;
  bool use_l3_ = false;
};

}  // namespace

void chain_products(KernelGraph& graph) {
  if (flag_fusion()) Chainer(graph).run();
}

}  // namespace tandem::schedule
