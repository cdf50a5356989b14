// A group becomes a kernel: members are written at the group's axes, stage by stage. What a member
// reads of an earlier stage comes from a local (per row), from the buffer it was stored to, or from
// a row of scratch.
#include "schedule/build_kernel.h"

#include <algorithm>
#include <array>

#include "base/check.h"
#include "base/interrupt.h"
#include "loop/stage.h"
#include "ops/elements.h"
#include "schedule/inline.h"
#include "schedule/space.h"
#include "schedule/steps.h"

namespace tandem::schedule {
namespace {

using ir::Value;
using loop::Val;
using sym::Expr;

using SlotKey = std::pair<const Item*, uint32_t>;

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
  KernelBuilder(KernelGraph& graph, Group& group)
      : graph_(graph), group_(group), symbols_(graph.graph->pool()) {
    group_.kernel.scalars = std::make_shared<loop::ScalarPool>(symbols_);
    group_.kernel.name = group_.first().node->op->name();
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

  /// A single item with loops of its own: scan or scatter.
  void build_alone() {
    const Item& item = group_.first();
    item.kind == Item::Kind::scan ? build_scan(item) : build_scatter(item);
  }

 private:
  // --- what a computation becomes here

  loop::ScalarPool& scalars() { return *group_.kernel.scalars; }

  /// Scalars of a computation, its axes at places of this kernel.
  std::vector<Val> written(std::span<const Val> roots, const sym::Substitution& at,
                           std::span<const Val> locals = {}) {
    loop::Rewrite how;
    how.map_index = [&](Expr e) { return sym::substitute(e, at); };
    how.replace = [&](const loop::Scalar& node, std::span<const Val> args) -> Val {
      if (node.opcode == loop::Opcode::local) return locals[static_cast<size_t>(node.slot)];
      return node.opcode == loop::Opcode::check ? check(args[0], args[1], node.slot) : nullptr;
    };
    how.element = [&](const loop::Scalar& part, std::span<const Val> args) -> Val {
      const Value* value = graph_.computations.value(part.slot);
      if (!value->type.is_tensor()) return scalar_input(value);
      Val read = element(value, part.at, part.masked ? args[0] : nullptr);
      for (Val place : args.subspan(part.masked ? 1 : 0))
        read = ops::with_check(scalars(), read, place);
      return read;
    };
    return loop::rewrite(scalars(), graph_.scalars, roots, how);
  }

  Val point(const Computation& of, size_t result, const ops::Index& at) {
    sym::Substitution map;
    bind_axes(map, of.results[result].axes, at);
    return written(std::span(&of.results[result].value, 1), map)[0];
  }

  std::vector<Val> inputs(const Computation& of, const ops::Index& out, const ops::Index& r) {
    sym::Substitution map;
    bind_axes(map, of.out, out);
    bind_axes(map, of.reduce, r);
    return written(of.inputs, map);
  }

  std::vector<Val> finished(const Computation& of, std::span<const Val> combined,
                            const ops::Index& out) {
    if (of.finished.empty()) return {combined.begin(), combined.end()};
    sym::Substitution map;
    bind_axes(map, of.out, out);
    return written(of.finished, map, combined);
  }

  Val check(Val holds, Val value, int32_t error) {
    const Val checked = scalars().check(holds, value, 0);
    if (checked == value) return value;
    return scalars().check(holds, value, number_of(graph_.computations.error_text(error)));
  }

  /// Element of a realised value or input in its storage dtype.
  Val element(const Value* value, const ops::Index& index, Val mask) {
    Home home = graph_.homes.at(value);
    const Member* member = home.item == nullptr ? nullptr : member_of(home.item);
    const bool is_sum = home.item != nullptr && home.item == group_.footprint;
    if (is_sum && ++group_.footprint_reads == 1) return sum_here(index, mask);
    if (member == nullptr) return load_value(value, index, mask);
    if (is_per_row(*member)) return row_values_.at({home.item, home.slot});
    if (member->stage == stage_) return point_values_.at({home.item, home.slot});
    return load_earlier({home.item, home.slot}, index);
  }

  Val scalar_input(const Value* value) {
    Expr symbol = scalar_symbol(*value);
    Val bits = scalars().index(symbol);
    return value->type.dtype == DType::f64 ? scalars().bitcast(bits, DType::f64)
                                           : scalars().cast(bits, value->type.dtype);
  }

  int32_t number_of(const std::string& text) {
    std::vector<std::string>& errors = group_.kernel.errors;
    std::vector<std::string>::iterator it = std::find(errors.begin(), errors.end(), text);
    if (it == errors.end()) it = errors.insert(errors.end(), text);
    return static_cast<int32_t>(it - errors.begin());
  }

  Expr scalar_symbol(const Value& value) { return symbols_.symbol("scalar$" + value.name); }

  const Member* member_of(const Item* item) const {
    for (const Member& member : group_.members)
      if (member.item == item) return &member;
    return nullptr;
  }

  static bool is_per_row(const Member& member) {
    return member.extent == Extent::row ||
           (member.item->kind == Item::Kind::reduce && member.extent == Extent::full);
  }

  // --- buffers
  // ------------------------------------------------------------------------------------

  int32_t buffer(const Value* value, const Home& home, DType dtype, loop::Access access) {
    std::vector<loop::Buffer>& buffers = group_.kernel.buffers;
    for (size_t i = 0; i < buffers.size(); ++i) {
      const Home& known = group_.buffer_homes[i];
      bool same = value != nullptr
                      ? group_.buffer_values[i] == value
                      : known.item == home.item && known.slot == home.slot && known.item != nullptr;
      if (!same || buffers[i].access == loop::Access::scratch) continue;
      if (buffers[i].access != access) buffers[i].access = loop::Access::read_write;
      return static_cast<int32_t>(i);
    }
    buffers.push_back({dtype, access, 0, true, ""});
    group_.buffer_values.push_back(value);
    group_.buffer_homes.push_back(home);
    return static_cast<int32_t>(buffers.size()) - 1;
  }

  static Expr address(const ops::Index& index, const ir::Sizes& strides) {
    Expr address = 0;
    for (size_t i = 0; i < index.size(); ++i) address = address + index[i] * strides[i];
    return address;
  }

  Val load_value(const Value* value, const ops::Index& index, Val mask) {
    int32_t slot = buffer(graph_.memory_of(value), {}, value->type.dtype, loop::Access::read);
    return scalars().load(slot, value->type.dtype, address(index, graph_.strides_of(value)), mask);
  }

  Val load_earlier(const SlotKey& key, const ops::Index& index) {
    const Slot& slot = key.first->slots[key.second];
    if (slot.is_stored) return load_value(slot.value, index, nullptr);
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
    Val value = scalars().cast(point(item.computation, item.result, index), slot.dtype);
    SlotKey key{&item, 0};
    point_values_[key] = value;
    if (slot.is_stored) return store(stage().body, key, index, value);
    if (has_later_stage()) store_scratch(key, value);
  }

  /// Partial sums of columns: what this row adds. The first row of a block starts them.
  void add_columns(const Member& member) {
    const Item& item = *member.item;
    const Slot& slot = item.slots[0];
    SlotKey key{&item, 0};
    ColumnPoint point = column_point(item, group_.space, outer_, inner_);
    Val added = inputs(item.computation, point.out, point.in)[0];
    int32_t number = buffer(nullptr, {member.item, 0}, slot.dtype, loop::Access::write);
    Val before = scalars().load(number, slot.dtype, address(point.out, slot.strides));
    Val first = scalars().binary(loop::Opcode::eq, scalars().index(point.in[0]),
                                 scalars().integer(DType::i64, 0));
    Val sum = scalars().binary(loop::Opcode::add, before, added);
    store(stage().body, key, point.out, scalars().select(first, added, sum));
    group_.kernel.buffers[static_cast<size_t>(number)].access = loop::Access::read_write;
  }

  bool has_later_stage() const {
    for (const Member& other : group_.members)
      if (other.stage > stage_) return true;
    return false;
  }

  void store(std::vector<loop::Store>& list, const SlotKey& key, const ops::Index& index,
             Val value) {
    const Slot& slot = key.first->slots[key.second];
    const Value* memory = slot.value == nullptr ? nullptr : graph_.memory_of(slot.value);
    Home home{const_cast<Item*>(key.first), key.second};
    int32_t number =
        buffer(memory, memory == nullptr ? home : Home{}, slot.dtype, loop::Access::write);
    list.push_back({number, address(index, slot.strides), value, false});
  }

  void store_scratch(const SlotKey& key, Val value) {
    int32_t number = static_cast<int32_t>(group_.kernel.buffers.size());
    const Slot& slot = key.first->slots[key.second];
    add_scratch(slot.dtype, sym::product(group_.space.inner));
    scratch_[key] = number;
    stage().body.push_back({number, linear_index(inner_, group_.space.inner), value, false});
  }

  /// An element of a sum that has no place in memory: a stage before this one computes what the
  /// point reads of it, to scratch. Written at a place inside of the tensor, then moved to the
  /// nearest one: where the mask is false nothing sees which.
  Val sum_here(const ops::Index& index, Val mask) {
    const Item& item = *group_.footprint;
    const Computation& def = item.computation;
    ops::Index at;
    for (Expr size : item.slots[0].sizes) at.push_back(symbols_.index("p", size));
    ops::Index r;
    for (Expr size : def.reduce_sizes) {
      r.push_back(size == Expr(1) ? Expr(0) : symbols_.index("y", size));
      if (size != Expr(1)) footprint_.reduce_axes.push_back({r.back(), size});
    }
    const int32_t local = group_.kernel.locals++;
    std::vector<Val> values = inputs(def, at, r);
    const std::array total{scalars().local(local, values[0]->dtype)};
    values.push_back(finished(def, total, at)[0]);
    const Seen seen = axes_of_footprint();
    ops::Index there;
    for (Expr place : inside(index, item.slots[0].sizes))
      there.push_back(sym::substitute(place, seen.map));
    values = moved(values, at, there);
    const DType dtype = item.slots[0].dtype;
    const int32_t number = static_cast<int32_t>(group_.kernel.buffers.size());
    add_scratch(dtype, seen.elements);
    footprint_.after = {{number, seen.written, scalars().cast(values.back(), dtype), false}};
    values.pop_back();
    footprint_.reductions.push_back({def.combiner, std::move(values), local});
    const Val value = scalars().load(number, dtype, seen.read);
    return mask == nullptr ? value : scalars().select(mask, value, scalars().constant(dtype, 0));
  }

  /// The axes of a footprint: those of the sum that reads it, where they have several elements.
  struct Seen {
    sym::Substitution map;
    Expr written = 0;
    Expr read = 0;
    Expr elements = 1;
  };
  Seen axes_of_footprint() {
    Seen seen;
    footprint_.kind = loop::StageKind::footprint;
    for (size_t i = 0; i < inner_.size(); ++i) {
      const Expr size = group_.space.inner[i];
      if (size == Expr(1)) {
        seen.map.emplace_back(inner_[i], Expr(0));
        continue;
      }
      const Expr axis = symbols_.index("y", size);
      footprint_.axes.push_back({axis, size});
      seen.map.emplace_back(inner_[i], axis);
      seen.written = seen.written * size + axis;
      seen.read = seen.read * size + inner_[i];
      seen.elements = seen.elements * size;
    }
    return seen;
  }

  void add_scratch(DType dtype, Expr elements) {
    group_.kernel.buffers.push_back({dtype, loop::Access::scratch, elements, true, ""});
    group_.buffer_values.push_back(nullptr);
    group_.buffer_homes.push_back({});
  }

  std::vector<Val> moved(const std::vector<Val>& values, const ops::Index& from,
                         const ops::Index& to) {
    sym::Substitution map;
    for (size_t i = 0; i < from.size(); ++i) map.emplace_back(from[i], to[i]);
    loop::Rewrite how;
    how.map_index = [&](Expr e) { return sym::substitute(e, map); };
    return loop::rewrite(scalars(), scalars(), values, how);
  }

  /// The nearest place of the tensor.
  static ops::Index inside(const ops::Index& index, const ir::Sizes& sizes) {
    ops::Index at = index;
    for (size_t i = 0; i < at.size(); ++i) {
      if (!sym::known_le(0, at[i])) at[i] = sym::max(at[i], 0);
      if (!sym::known_lt(at[i], sizes[i])) at[i] = sym::min(at[i], sizes[i] - 1);
    }
    return at;
  }

  bool add_reduction(const Member& member) {
    const Item& item = *member.item;
    ops::Index out = index_at(group_.space.outer, outer_, item.slots[0].sizes);
    loop::Reduction reduction;
    reduction.combiner = item.computation.combiner;
    reduction.inputs = inputs_of(item, out);
    reduction.first_local = group_.kernel.locals;
    group_.kernel.locals += loop::results(reduction.combiner);
    first_local_[&item] = reduction.first_local;
    remember_types(item, reduction);
    stage().reductions.push_back(std::move(reduction));
    return true;
  }

  void remember_types(const Item& item, const loop::Reduction& reduction) {
    for (size_t i = 0; i < static_cast<size_t>(loop::results(reduction.combiner)); ++i)
      local_types_[&item].push_back(reduction.inputs[i]->dtype);
  }

  std::vector<Val> inputs_of(const Item& item, const ops::Index& out) {
    const Computation& def = item.computation;
    ops::Index r = index_at(group_.space.inner, inner_, def.reduce_sizes);
    if (item.partial_of == nullptr) return inputs(def, out, r);
    const Slot& partial = item.partial_of->slots[0];
    ops::Index at = out;
    at.insert(at.begin(), r[0]);
    int32_t number = buffer(nullptr, {item.partial_of, 0}, partial.dtype, loop::Access::read);
    return {scalars().load(number, partial.dtype, address(at, partial.strides))};
  }

  /// Results of a row: of a reduction from its locals, of a pointwise member from other row values.
  void finish_row(const Member& member) {
    const Item& item = *member.item;
    ops::Index out = index_at(group_.space.outer, outer_, item.slots[0].sizes);
    std::vector<Val> results = item.kind == Item::Kind::reduce
                                   ? finished(item.computation, locals_of(item), out)
                                   : std::vector<Val>{point(item.computation, item.result, out)};
    for (uint32_t i = 0; i < item.slots.size(); ++i) {
      SlotKey key{&item, i};
      Val value = scalars().cast(results[i], item.slots[i].dtype);
      row_values_[key] = value;
      if (item.slots[i].is_stored) store(stage().after, key, out, value);
    }
  }

  std::vector<Val> locals_of(const Item& item) {
    std::vector<Val> locals;
    const std::vector<DType>& types = local_types_.at(&item);
    for (size_t i = 0; i < types.size(); ++i)
      locals.push_back(scalars().local(first_local_.at(&item) + static_cast<int32_t>(i), types[i]));
    return locals;
  }

  // --- scan and scatter
  // ---------------------------------------------------------------------------

  void build_scan(const Item& item) {
    const Slot& slot = item.slots[0];
    int64_t dim = item.computation.reduced_dims[0];
    stage_ = 0;
    group_.kernel.stages.emplace_back();
    ops::Index out;
    for (size_t i = 0; i < slot.sizes.size(); ++i) {
      bool scanned = static_cast<int64_t>(i) == dim;
      out.push_back(symbols_.index(scanned ? "y" : "x", slot.sizes[i]));
      loop::Axis axis{out.back(), slot.sizes[i]};
      if (scanned)
        stage().reduce_axes.push_back(axis);
      else if (static_cast<int64_t>(i) < dim)
        group_.kernel.outer.push_back(axis);
      else
        stage().axes.push_back(axis);
    }
    loop::Reduction reduction;
    reduction.combiner = item.computation.combiner;
    reduction.inputs = inputs(item.computation, out, {out[dim]});
    reduction.scan = true;
    group_.kernel.locals = loop::results(reduction.combiner);
    remember_types(item, reduction);
    first_local_[&item] = 0;
    stage().reductions.push_back(std::move(reduction));
    std::vector<Val> results = finished(item.computation, locals_of(item), out);
    for (uint32_t i = 0; i < item.slots.size(); ++i)
      if (item.slots[i].is_stored)
        store(stage().body, {&item, i}, out, scalars().cast(results[i], item.slots[i].dtype));
  }

  /// First stage: the initial values; second: the sources, in order. Tasks own ranges of the
  /// dimensions that destination and source share, so no two tasks touch one place.
  void build_scatter(const Item& item) {
    const Computation& def = item.computation;
    const Slot& slot = item.slots[0];
    SlotKey key{&item, 0};
    stage_ = 0;
    group_.kernel.stages.emplace_back();
    ops::Index index;
    for (size_t i = 0; i < slot.sizes.size(); ++i) {
      index.push_back(symbols_.index("x", slot.sizes[i]));
      bool shared =
          static_cast<int64_t>(i) != def.scatter_dim && def.source_sizes[i] == slot.sizes[i];
      loop::Axis axis{index.back(), slot.sizes[i]};
      (shared ? group_.kernel.outer : stage().axes).push_back(axis);
    }
    store(stage().body, key, index, scalars().cast(point(def, 0, index), slot.dtype));
    group_.kernel.stages.emplace_back();
    ops::Index source;
    ops::Index target;
    for (size_t i = 0; i < def.source_sizes.size(); ++i) {
      bool shared =
          static_cast<int64_t>(i) != def.scatter_dim && def.source_sizes[i] == slot.sizes[i];
      source.push_back(shared ? index[i] : symbols_.index("y", def.source_sizes[i]));
      if (!shared) stage().axes.push_back({source.back(), def.source_sizes[i]});
    }
    target = source;
    sym::Substitution map;
    bind_axes(map, def.source, source);
    const std::vector<Val> scattered = written(std::array{def.destination, def.value}, map);
    target[def.scatter_dim] = scalars().as_index(scattered[0], slot.sizes[def.scatter_dim]);
    Val value = scalars().cast(scattered[1], slot.dtype);
    store(stage().body, key, target, value);
    stage().body.back().accumulate = def.accumulate;
    stage().body.back().combiner = def.combiner;
  }

  KernelGraph& graph_;
  Group& group_;
  sym::Pool& symbols_;
  ops::Index outer_;
  ops::Index inner_;
  int stage_ = 0;
  loop::Stage footprint_;  // of a sum that is computed where it is read
  std::map<SlotKey, Val> row_values_;
  std::map<SlotKey, Val> point_values_;
  std::map<SlotKey, int32_t> scratch_;
  std::map<const Item*, int32_t> first_local_;
  std::map<const Item*, std::vector<DType>> local_types_;
};

}  // namespace

void build_kernel(KernelGraph& graph, Group& group) {
  KernelBuilder builder(graph, group);
  group.kind == Group::Kind::alone ? builder.build_alone() : builder.build();
}

void build_kernels(KernelGraph& graph) {
  for (Group& group : graph.groups) {
    poll_interrupt();
    if (!group.is_library()) build_kernel(graph, group);
  }
}

}  // namespace tandem::schedule
