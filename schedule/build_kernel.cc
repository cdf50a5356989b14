// A group becomes a kernel: members are written at the group's axes, stage by stage. What a member
// reads of an earlier stage comes from a local (per row), from the buffer it was stored to, or from
// a row of scratch.
#include "schedule/build_kernel.h"

#include <algorithm>

#include "base/interrupt.h"
#include "loop/stage.h"
#include "schedule/kernel_writer.h"
#include "schedule/space.h"
#include "schedule/steps.h"

namespace tandem::schedule {
namespace {

using ir::Value;
using loop::Val;
using sym::Expr;

bool reads_local(const loop::Kernel& kernel, int32_t local) {
  for (const loop::Stage& stage : kernel.stages)
    for (Val value : loop::scalars_of(stage))
      if (value->opcode == loop::Opcode::local && value->slot == local) return true;
  return false;
}

/// An extreme whose position nobody asks for is found without it: max_pool2d in inference.
void drop_unread_positions(loop::Kernel& kernel) {
  for (loop::Stage& stage : kernel.stages) {
    for (loop::Reduction& reduction : stage.reductions) {
      bool least = reduction.combiner == loop::Combiner::argmin;
      if (!least && reduction.combiner != loop::Combiner::argmax) continue;
      if (reduction.scan || reads_local(kernel, reduction.first_local + 1)) continue;
      reduction.combiner = least ? loop::Combiner::min : loop::Combiner::max;
      reduction.inputs.pop_back();
    }
  }
}

class KernelBuilder {
 public:
  KernelBuilder(KernelGraph& graph, Group& group, KernelWriter& writer)
      : graph_(graph), group_(group), symbols_(graph.graph->pool()), writer_(writer) {
    writer_.read_by([this](const Value* value, const ops::Index& index, Val mask) {
      return element(value, index, mask);
    });
  }

  void build() {
    for (Expr size : group_.space.outer) {
      outer_.push_back(symbols_.index("x", size));
      group_.kernel.outer.push_back({outer_.back(), size});
    }
    int stages = 0;
    for (const Member& member : group_.members) stages = std::max(stages, member.stage + 1);
    for (stage_ = 0; stage_ < stages; ++stage_) build_stage();
    if (!footprint_.reductions.empty())
      group_.kernel.stages.insert(group_.kernel.stages.begin(), std::move(footprint_));
    drop_unread_positions(group_.kernel);
  }

 private:
  // --- what members read

  loop::ScalarPool& scalars() { return writer_.scalars(); }

  /// Element of a materialized value or input in its storage dtype.
  Val element(const Value* value, const ops::Index& index, Val mask) {
    Home home = graph_.homes.at(value);
    const Member* member = home.item == nullptr ? nullptr : member_of(home.item);
    const bool is_sum = home.item != nullptr && home.item == group_.footprint;
    if (is_sum && ++group_.footprint_reads == 1)
      return sum_at_footprint(writer_, *home.item, inner_, group_.space.inner, footprint_, index,
                              mask);
    if (member == nullptr) return writer_.load_value(value, index, mask);
    if (is_per_row(*member)) return row_values_.at({home.item, home.slot});
    if (member->stage == stage_) return point_values_.at({home.item, home.slot});
    return load_earlier({home.item, home.slot}, index);
  }

  const Member* member_of(const Item* item) const {
    for (const Member& member : group_.members)
      if (member.item == item) return &member;
    return nullptr;
  }

  static bool is_per_row(const Member& member) {
    return member.extent == Extent::row ||
           (member.item->kind == Item::Kind::reduce && member.extent == Extent::full);
  }

  Val load_earlier(const SlotKey& key, const ops::Index& index) {
    const Slot& slot = key.first->slots[key.second];
    if (slot.is_stored) return writer_.load_value(slot.value, index, nullptr);
    return scalars().load(scratch_.at(key), slot.dtype, linear_index(inner_, group_.space.inner));
  }

  // --- stages
  // -------------------------------------------------------------------------------------

  void build_stage() {
    group_.kernel.stages.emplace_back();
    inner_.clear();
    std::vector<loop::Axis> axes;
    for (Expr size : group_.space.inner) {
      inner_.push_back(symbols_.index("y", size));
      axes.push_back({inner_.back(), size});
    }
    point_values_.clear();
    bool reduces = false;
    for (const Member& member : group_.members) {
      if (member.stage != stage_ || is_per_row(member)) continue;
      member.extent == Extent::columns ? add_columns(member) : add_point(member);
    }
    for (const Member& member : group_.members)
      if (member.stage == stage_ && is_per_row(member) && member.item->kind == Item::Kind::reduce)
        reduces |= add_reduction(member);
    for (const Member& member : group_.members)
      if (member.stage == stage_ && is_per_row(member)) finish_row(member);
    (reduces ? stage().reduce_axes : stage().axes) = std::move(axes);
    if (!reduces && stage().body.empty()) stage().axes.clear();
  }

  loop::Stage& stage() { return group_.kernel.stages.back(); }

  /// A pointwise member: its value at this point, stored where anyone else needs it.
  void add_point(const Member& member) {
    const Item& item = *member.item;
    const Slot& slot = item.slots[0];
    ops::Index axes = outer_;
    axes.insert(axes.end(), inner_.begin(), inner_.end());
    ir::Sizes sizes = group_.space.outer;
    sizes.insert(sizes.end(), group_.space.inner.begin(), group_.space.inner.end());
    ops::Index index = index_at(sizes, axes, slot.sizes);
    Val value = scalars().cast(writer_.point(item.computation, item.result, index), slot.dtype);
    SlotKey key{&item, 0};
    point_values_[key] = value;
    if (slot.is_stored) return writer_.store(stage().body, key, index, value);
    if (has_later_stage()) store_scratch(key, value);
  }

  /// Partial sums of columns: what this row adds. The first row of a block starts them.
  void add_columns(const Member& member) {
    const Item& item = *member.item;
    const Slot& slot = item.slots[0];
    SlotKey key{&item, 0};
    ColumnPoint point = column_point(item, group_.space, outer_, inner_);
    Val added = writer_.inputs(item.computation, point.out, point.in)[0];
    int32_t number = writer_.buffer(nullptr, {member.item, 0}, slot.dtype, loop::Access::write);
    Val before = scalars().load(number, slot.dtype, address_of(point.out, slot.strides));
    Val first = scalars().binary(loop::Opcode::eq, scalars().index(point.in[0]),
                                 scalars().integer(DType::i64, 0));
    Val sum = scalars().binary(loop::Opcode::add, before, added);
    writer_.store(stage().body, key, point.out, scalars().select(first, added, sum));
    group_.kernel.buffers[static_cast<size_t>(number)].access = loop::Access::read_write;
  }

  bool has_later_stage() const {
    for (const Member& other : group_.members)
      if (other.stage > stage_) return true;
    return false;
  }

  void store_scratch(const SlotKey& key, Val value) {
    const Slot& slot = key.first->slots[key.second];
    const int32_t number = writer_.add_scratch(slot.dtype, sym::product(group_.space.inner));
    scratch_[key] = number;
    stage().body.push_back({number, linear_index(inner_, group_.space.inner), value, false});
  }

  bool add_reduction(const Member& member) {
    const Item& item = *member.item;
    ops::Index out = index_at(group_.space.outer, outer_, item.slots[0].sizes);
    loop::Reduction reduction;
    reduction.combiner = item.computation.combiner;
    reduction.inputs = inputs_of(item, out);
    reduction.first_local = group_.kernel.locals;
    for (int32_t i = 0; i < loop::results(reduction.combiner); ++i)
      locals_[&item].push_back(
          scalars().local(group_.kernel.locals++, reduction.inputs[static_cast<size_t>(i)]->dtype));
    stage().reductions.push_back(std::move(reduction));
    return true;
  }

  std::vector<Val> inputs_of(const Item& item, const ops::Index& out) {
    const Computation& def = item.computation;
    ops::Index r = index_at(group_.space.inner, inner_, def.reduce_sizes);
    if (item.partial_of == nullptr) return writer_.inputs(def, out, r);
    const Slot& partial = item.partial_of->slots[0];
    ops::Index at = out;
    at.insert(at.begin(), r[0]);
    int32_t number =
        writer_.buffer(nullptr, {item.partial_of, 0}, partial.dtype, loop::Access::read);
    return {scalars().load(number, partial.dtype, address_of(at, partial.strides))};
  }

  /// Results of a row: of a reduction from its locals, of a pointwise member from other row values.
  void finish_row(const Member& member) {
    const Item& item = *member.item;
    ops::Index out = index_at(group_.space.outer, outer_, item.slots[0].sizes);
    std::vector<Val> results =
        item.kind == Item::Kind::reduce
            ? writer_.finished(item.computation, locals_.at(&item), out)
            : std::vector<Val>{writer_.point(item.computation, item.result, out)};
    for (uint32_t i = 0; i < item.slots.size(); ++i) {
      SlotKey key{&item, i};
      Val value = scalars().cast(results[i], item.slots[i].dtype);
      row_values_[key] = value;
      if (item.slots[i].is_stored) writer_.store(stage().after, key, out, value);
    }
  }

  KernelGraph& graph_;
  Group& group_;
  sym::Pool& symbols_;
  KernelWriter& writer_;
  ops::Index outer_;
  ops::Index inner_;
  int stage_ = 0;
  loop::Stage footprint_;  // of a sum that is computed where it is read
  std::map<SlotKey, Val> row_values_;
  std::map<SlotKey, Val> point_values_;
  std::map<SlotKey, int32_t> scratch_;
  std::map<const Item*, std::vector<Val>> locals_;  // of a reduction
};

}  // namespace

void build_kernel(KernelGraph& graph, Group& group) {
  group.kernel.scalars = std::make_shared<loop::ScalarPool>(graph.graph->pool());
  group.kernel.name = group.first().node->op->name();
  KernelWriter writer(graph, group);
  if (group.kind != Group::Kind::alone) return KernelBuilder(graph, group, writer).build();
  const Item& item = group.first();
  item.kind == Item::Kind::scan ? build_scan(writer, item) : build_scatter(writer, item);
}

void build_kernels(KernelGraph& graph) {
  for (Group& group : graph.groups) {
    poll_interrupt();
    if (!group.is_library()) build_kernel(graph, group);
  }
}

}  // namespace tandem::schedule
