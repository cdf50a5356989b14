// Problem: a group is a promise (these items, in this space, in these stages, over these reads),
// and kernels are built, joined and ordered by what it says. Approach: each part of it is asked of
// the members' computations again, with the very questions that form_groups asks.
#include "schedule/check_groups.h"
#include "loop/stage.h"

#include <fmt/format.h>

#include <algorithm>

#include "ir/text.h"
#include "loop/stage.h"
#include "schedule/group_storage.h"
#include "schedule/reads.h"
#include "schedule/space.h"
#include "schedule/strided.h"

namespace tandem::schedule {
namespace {

using ir::Value;
using sym::Expr;

bool is_per_row(const Member& member) {
  return member.extent == Extent::row || member.item->kind == Item::Kind::reduce;
}

bool is_fused(const Member& member) {
  return member.item->kind == Item::Kind::map || member.item->kind == Item::Kind::reduce;
}

bool is_alone(const Member& member) {
  return member.item->kind == Item::Kind::scan || member.item->kind == Item::Kind::scatter;
}

/// Of one group.
class Checker {
 public:
  Checker(const KernelGraph& graph, const DenseMap<Value, std::string>& names, ReadsInSpace& reads,
          size_t number, const std::vector<size_t>& group_of)
      : graph_(graph),
        names_(names),
        reads_(reads),
        group_of_(group_of),
        group_(graph.groups[number]),
        number_(number) {}

  Problems run() {
    if (!check_kind()) return std::move(problems_);
    if (group_.takes_members())
      for (const Member& member : group_.members) check_place(member);
    if (!problems_.empty()) return std::move(problems_);
    for (const Member& member : group_.members) check_reads(member);
    check_needs();
    if (group_.takes_members()) check_overwriting();
    if (group_.kernel.scalars != nullptr) check_buffers();
    expect(group_.kernel.scalars != nullptr || group_.buffer_values.empty(),
           "it holds buffers and has no kernel");
    return std::move(problems_);
  }

 private:
  template <class... Args>
  bool expect(bool holds, fmt::format_string<Args...> text, Args&&... args) {
    if (!holds)
      problems_.push_back(
          {Problem::Of::group, number_, fmt::format(text, std::forward<Args>(args)...)});
    return holds;
  }

  bool check_kind() {
    const Item::Kind first = group_.first().kind;
    const bool is_one = group_.members.size() == 1;
    switch (group_.kind) {
      case Group::Kind::loops:
      case Group::Kind::chain:
        return expect(std::ranges::all_of(group_.members, is_fused),
                      "its members are maps and reductions");
      case Group::Kind::alone:
        return expect(is_one && is_alone(group_.members[0]), "one scan or scatter is alone");
      case Group::Kind::library:
        return expect(is_one && first == Item::Kind::library && group_.kernel.scalars == nullptr,
                      "it is one library call");
    }
    return true;
  }

  // --- the space

  /// The sum that a footprint stage computes has the places of its reader.
  bool is_footprint(const Member& member) const { return member.item == group_.footprint; }

  void check_place(const Member& member) {
    if (is_footprint(member)) return;
    const Item& item = *member.item;
    const Expr rows = sym::product(group_.space.outer);
    const Expr row = sym::product(group_.space.inner);
    const Expr points = sym::product(item.slots[0].sizes);
    const bool is_map = item.kind == Item::Kind::map;
    bool fits = false;
    switch (member.extent) {
      case Extent::full:
        fits = is_map ? points == rows * row || same_points(item)
                      : group_.space.reduces && points == rows &&
                            sym::product(item.computation.reduce_sizes) == row;
        break;
      case Extent::row: fits = is_map && group_.space.reduces && points == rows; break;
      case Extent::columns: fits = !is_map && sums_columns(item, rows, row); break;
    }
    expect(fits, "item {} does not fill its space", item.id);
  }

  /// Counted as one product, as form_groups does where a row is cut out of points.
  bool same_points(const Item& item) const {
    ir::Sizes sizes = group_.space.outer;
    sizes.insert(sizes.end(), group_.space.inner.begin(), group_.space.inner.end());
    return sym::product(sizes) == sym::product(item.slots[0].sizes);
  }

  bool sums_columns(const Item& item, Expr rows, Expr row) const {
    const ir::Sizes& sizes = item.slots[0].sizes;
    return group_.space.reduces && item.partial_rows == rows && !sizes.empty() &&
           item.computation.reduce_sizes.size() == 1 && item.computation.inputs.size() == 1 &&
           sym::product(ir::Sizes(sizes.begin() + 1, sizes.end())) == row;
  }

  // --- what members read of each other

  void check_reads(const Member& member) {
    if (group_.is_library()) return check_operands(member);
    const bool is_placed = group_.takes_members() && !is_footprint(member);
    const PlacedReads reads = is_placed ? reads_.of(*member.item, group_.space, member.extent)
                                        : reads_.of_item(*member.item);
    expect(!reads.can_fail || group_.needs.can_fail, "item {} can fail", member.item->id);
    for (const auto& [value, position] : reads.at) {
      check_said(value);
      const Member* source = member_of(graph_, group_, value);
      if (source != nullptr && is_placed && !is_footprint(*source))
        check_source(member, *source, position, reads);
    }
    if (member.item->partial_of == nullptr) return;
    const size_t from = group_of_[member.item->partial_of->id];
    expect(from == number_ || group_.needs.groups.count(static_cast<uint32_t>(from)) != 0,
           "item {} combines what group {} makes, behind which it does not run", member.item->id,
           from);
  }

  void check_source(const Member& reader, const Member& source, Expr position,
                    const PlacedReads& reads) {
    const bool per_row = is_per_row(source);
    const bool by_row = reader.extent == Extent::row;
    const bool is_there =
        source.extent != Extent::columns && position == (per_row ? reads.row : reads.full);
    expect(is_there && (per_row || !by_row), "item {} reads item {} elsewhere than it is computed",
           reader.item->id, source.item->id);
    const int ready = source.stage + (per_row && !by_row ? 1 : 0);
    const bool is_before =
        ready <= reader.stage && (source.stage < reader.stage || &source < &reader);
    expect(is_before, "item {} reads item {} in a stage where it is not yet computed",
           reader.item->id, source.item->id);
  }

  // --- what it needs

  void check_operands(const Member& member) {
    ir::for_each_operand(member.item->node->args, [&](const Value* operand) {
      if (!operand->type.is_tensor()) return;
      while (!graph_.is_materialized(operand)) operand = std::get<Value*>(operand->node->args[0]);
      check_said(operand);
    });
  }

  void check_said(const Value* value) {
    expect(group_.needs.reads.count(value) != 0, "it reads %{} and does not say so",
           names_.at(value));
  }

  void check_needs() {
    for (const Value* value : group_.needs.reads) {
      const Home home = graph_.homes.at(value);
      if (home.item == nullptr) continue;
      const size_t from = group_of_[home.item->id];
      if (from == number_) continue;
      expect(group_.needs.groups.count(static_cast<uint32_t>(from)) != 0,
             "it reads %{} of group {}, behind which it does not run", names_.at(value), from);
      expect(home.item->slots[home.slot].is_stored, "it reads %{}, which is not stored",
             names_.at(value));
    }
  }

  // --- writing over inputs

  void check_overwriting() {
    for (const Member& member : group_.members)
      for (const Slot& slot : member.item->slots)
        if (slot.in_place_of != nullptr) check_overwriting(member, slot);
  }

  void check_overwriting(const Member& writer, const Slot& slot) {
    const Value* input = slot.in_place_of;
    for (size_t i = number_ + 1; i < graph_.groups.size(); ++i)
      expect(graph_.groups[i].needs.reads.count(input) == 0,
             "it writes over %{}, which group {} reads later", names_.at(input), i);
    if (starts_as(graph_.computations, *writer.item, input)) return;
    for (const Member& reader : group_.members) {
      const PlacedReads& reads = reads_.of(*reader.item, group_.space, reader.extent);
      const bool by_row = reader.extent != Extent::full;
      for (const auto& [value, position] : reads.at) {
        if (value != input) continue;
        const bool is_there = position == (reader.extent == Extent::row ? reads.row : reads.full);
        const bool is_late =
            by_row || (reader.item->kind == Item::Kind::reduce && position == reads.row);
        expect(is_there && !(is_late && writer.extent == Extent::full) && reader.stage == 0,
               "item {} reads %{} elsewhere than it is written over", reader.item->id,
               names_.at(input));
      }
    }
  }

  // --- kernels

  void check_buffers() {
    const size_t held = group_.buffer_values.size();
    if (held > group_.kernel.buffers.size() || group_.buffer_homes.size() != held) return;
    for (size_t i = 0; i < held; ++i) {
      const Value* value = group_.buffer_values[i];
      const Home home = group_.buffer_homes[i];
      if (value != nullptr) check_value(group_.kernel.buffers[i], value, i);
      if (home.item != nullptr) check_home(group_.kernel.buffers[i], home, i);
      for (size_t j = 0; j < i; ++j) {
        const bool same_value = value != nullptr && group_.buffer_values[j] == value;
        const bool same_home = home.item != nullptr && group_.buffer_homes[j].item == home.item &&
                               group_.buffer_homes[j].slot == home.slot;
        expect(!same_value && !same_home, "buffers {} and {} hold the same", j, i);
      }
    }
  }

  void check_value(const loop::Buffer& buffer, const Value* value, size_t i) {
    const bool is_made = member_of(graph_, group_, value) != nullptr;
    const bool is_over = overwrites(value);
    const bool reads = buffer.access != loop::Access::write;
    const bool writes = buffer.access != loop::Access::read;
    expect(value->type.is_tensor() && buffer.dtype == value->type.dtype,
           "buffer {} has another type than %{}", i, names_.at(value));
    expect(!writes || is_made || is_over, "it writes %{}, which no member is", names_.at(value));
    expect(!reads || is_made || is_over || says_memory(value), "it reads %{} and does not say so",
           names_.at(value));
  }

  /// Reads it, or what is written over it.
  bool says_memory(const Value* memory) const {
    return std::ranges::any_of(
        group_.needs.reads, [&](const Value* value) { return graph_.memory_of(value) == memory; });
  }

  bool overwrites(const Value* input) const {
    return std::ranges::any_of(group_.members, [&](const Member& member) {
      return std::ranges::any_of(member.item->slots,
                                 [&](const Slot& slot) { return slot.in_place_of == input; });
    });
  }

  void check_home(const loop::Buffer& buffer, const Home& home, size_t i) {
    const Slot& slot = home.item->slots[home.slot];
    const auto is_it = [&](const Member& member) { return member.item == home.item; };
    const auto combines = [&](const Member& member) {
      return member.item->partial_of == home.item;
    };
    const bool is_made = std::ranges::any_of(group_.members, is_it);
    expect(slot.value == nullptr && buffer.dtype == slot.dtype, "buffer {} is no slot {}.{}", i,
           home.item->id, home.slot);
    expect(is_made || (buffer.access == loop::Access::read &&
                       std::ranges::any_of(group_.members, combines)),
           "buffer {} holds partial results that are not its own", i);
  }

  const KernelGraph& graph_;
  const DenseMap<Value, std::string>& names_;
  ReadsInSpace& reads_;
  const std::vector<size_t>& group_of_;  // by item id
  const Group& group_;
  size_t number_;
  Problems problems_;
};

/// A processor takes such a store only where the buffer begins on a line: not in an input.
void check_stores(const KernelGraph& graph, size_t number, Problems& problems) {
  const Group& group = graph.groups[number];
  for (const loop::Stage& stage : group.kernel.stages)
    loop::for_each_store(stage, [&](const loop::Store& store) {
      const size_t buffer = static_cast<size_t>(store.buffer);
      const bool is_held = buffer < group.buffer_values.size();
      const Value* value = is_held ? group.buffer_values[buffer] : nullptr;
      if (store.nontemporal && (value == nullptr || !graph.has_own_memory(value)))
        problems.push_back({Problem::Of::group, number,
                            fmt::format("buffer {} is no result with memory of its own, and is "
                                        "stored past the caches",
                                        buffer)});
    });
}

}  // namespace

Problems problems_of_groups(const KernelGraph& graph) {
  const DenseMap<Value, std::string> names = ir::value_names(*graph.graph);
  ReadsInSpace reads(graph);
  std::vector<size_t> group_of(graph.items.size(), 0);
  for (size_t i = 0; i < graph.groups.size(); ++i)
    for (const Member& member : graph.groups[i].members) group_of[member.item->id] = i;
  Problems problems;
  for (size_t i = 0; i < graph.groups.size(); ++i) {
    std::ranges::move(Checker(graph, names, reads, i, group_of).run(),
                      std::back_inserter(problems));
    check_stores(graph, i, problems);
  }
  return problems;
}

}  // namespace tandem::schedule
