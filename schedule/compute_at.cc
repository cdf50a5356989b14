// Problem: what one kernel leaves in memory for the next is often read once, soon, and a part at a
// time. Approach: the producer's stages move into the consumer's loops. At rows the members' stages
// follow each other, what only they read is a row of scratch, and addresses are rewritten for both.
// At windows the sum is a stage in front of the one that reads it, over what one point sees.
#include "schedule/compute_at.h"

#include <array>

#include "schedule/build_kernel.h"
#include "schedule/inline.h"

namespace tandem::schedule {

using ir::Value;
using loop::Kernel;
using loop::Stage;
using loop::Val;
using sym::Expr;

bool is_product(const Group& group) {
  const std::vector<Stage>& stages = group.kernel.stages;
  return stages.size() == 1 && stages[0].reductions.size() == 1 && stages[0].axes.empty() &&
         stages[0].body.empty() && stages[0].reductions[0].combiner == loop::Combiner::dot;
}

ir::Sizes extents(const std::vector<loop::Axis>& axes) {
  ir::Sizes sizes;
  for (const loop::Axis& axis : axes) sizes.push_back(axis.extent);
  return sizes;
}

Expr width_of(const Value& value, const ir::Sizes& rows) {
  return sym::floor_div(value.type.numel(), sym::product(rows));
}

ops::Index fresh_axes(sym::Pool& symbols, const ir::Sizes& sizes) {
  ops::Index axes;
  for (Expr size : sizes) axes.push_back(symbols.index("x", size));
  return axes;
}

sym::Substitution at_rows(const Kernel& kernel, size_t count, const ir::Sizes& rows,
                          const ops::Index& axes) {
  ir::Sizes sizes = extents(kernel.outer);
  sizes.resize(count);
  ops::Index index = index_at(rows, axes, sizes);
  sym::Substitution map;
  for (size_t i = 0; i < count; ++i) map.emplace_back(kernel.outer[i].index, index[i]);
  return map;
}

sym::Substitution at_sum(const Kernel& kernel, const ir::Sizes& rows, const ops::Index& axes) {
  const ir::Sizes batch(rows.begin(), rows.end() - 1);
  const ops::Index batch_axes(axes.begin(), axes.end() - 1);
  sym::Substitution map = at_rows(kernel, kernel.outer.size() - 2, batch, batch_axes);
  map.emplace_back(kernel.stages[0].reduce_axes[0].index, axes.back());
  return map;
}

namespace {

class Joiner {
 public:
  Joiner(sym::Pool& symbols, const ir::Sizes& rows, std::set<const Value*> inside)
      : rows_(rows), axes_(fresh_axes(symbols, rows)), inside_(std::move(inside)) {
    joined_.kind = Group::Kind::chain;
    joined_.kernel.scalars = std::make_shared<loop::ScalarPool>(symbols);
    for (size_t i = 0; i < rows.size(); ++i) joined_.kernel.outer.push_back({axes_[i], rows[i]});
  }

  void add(Group group, bool gathers) {
    Kernel& from = group.kernel;
    map_ = gathers ? at_sum(from, rows_, axes_)
                   : at_rows(from, from.outer.size() - is_product(group), rows_, axes_);
    slots_.clear();
    for (size_t i = 0; i < from.buffers.size(); ++i)
      slots_.push_back(slot_of(from.buffers[i], group.buffer_values[i]));
    first_local_ = joined_.kernel.locals;
    joined_.kernel.locals += gathers ? 0 : from.locals;  // a gather's sum is in memory
    for (Stage& stage : from.stages) {
      if (gathers) gather(from, stage);
      if (is_product(group) && !gathers) stage.axes = {from.outer.back()};
      add_stage(from, std::move(stage));
    }
    if (joined_.members.empty()) joined_.kernel.name = from.name;
    joined_.members.insert(joined_.members.end(), group.members.begin(), group.members.end());
    joined_.needs.reads.insert(group.needs.reads.begin(), group.needs.reads.end());
    joined_.needs.groups.insert(group.needs.groups.begin(), group.needs.groups.end());
  }

  Group take() { return std::move(joined_); }

 private:
  /// Number of the joined kernel's buffer; `value` is null for scratch.
  int32_t slot_of(const loop::Buffer& buffer, const Value* value) {
    for (size_t i = 0; value != nullptr && i < holds_.size(); ++i) {
      if (holds_[i] != value) continue;
      loop::Access& access = joined_.kernel.buffers[i].access;
      if (access != buffer.access && access != loop::Access::scratch)
        access = loop::Access::read_write;
      return static_cast<int32_t>(i);
    }
    bool inside = inside_.count(value) != 0;
    joined_.kernel.buffers.push_back(buffer);
    if (inside) {
      joined_.kernel.buffers.back().access = loop::Access::scratch;
      joined_.kernel.buffers.back().elements = width_of(*value, rows_);
    }
    holds_.push_back(value);
    joined_.buffer_values.push_back(inside ? nullptr : value);
    joined_.buffer_homes.push_back({});
    return static_cast<int32_t>(holds_.size()) - 1;
  }

  /// Address in the joined kernel's buffer: what stays inside starts at its row.
  Expr placed(int32_t slot, Expr address) const {
    const Value* value = holds_[static_cast<size_t>(slot)];
    if (value == nullptr || inside_.count(value) == 0) return address;
    return address - linear_index(axes_, rows_) * width_of(*value, rows_);
  }

  /// One row's part of the sum: added to what the rows before it in the batch have stored.
  void gather(const Kernel& from, Stage& stage) {
    loop::ScalarPool& pool = *from.scalars;
    loop::Store store = stage.after[0];
    const DType dtype = store.value->dtype;
    const Val is_first = pool.binary(loop::Opcode::eq, pool.index(stage.reduce_axes[0].index),
                                     pool.integer(DType::i64, 0));
    const Val before =
        pool.select(is_first, pool.constant(dtype, 0), pool.load(store.buffer, dtype, store.index));
    const std::vector<Val>& factors = stage.reductions[0].inputs;
    store.value = pool.fma(factors[0], factors[1], before);
    loop::Buffer& sums =
        joined_.kernel.buffers[static_cast<size_t>(slots_[static_cast<size_t>(store.buffer)])];
    sums.access = loop::Access::read_write;
    stage = Stage{};
    stage.kind = loop::StageKind::gather;
    stage.axes.assign(from.outer.end() - 2, from.outer.end());
    stage.body = {store};
  }

  void add_stage(const Kernel& from, Stage stage) {
    loop::StageRewrite how;
    how.map_index = [&](Expr e) { return sym::substitute(e, map_); };
    how.first_local = first_local_;
    how.place = [&](int32_t& slot, Expr& index) {
      slot = slots_[static_cast<size_t>(slot)];
      index = placed(slot, index);
    };
    loop::rewrite(*joined_.kernel.scalars, *from.scalars, stage, how);
    joined_.kernel.stages.push_back(std::move(stage));
  }

  ir::Sizes rows_;
  ops::Index axes_;
  std::set<const Value*> inside_;  // values that only members read
  Group joined_;
  std::vector<const Value*> holds_;  // by buffer: as buffer_values, with values that stay inside
  // Of the member in hand.
  sym::Substitution map_;
  std::vector<int32_t> slots_;
  int32_t first_local_ = 0;
};

}  // namespace

Group computed_at_rows(sym::Pool& symbols, const ir::Sizes& rows, std::set<const Value*> inside,
                       std::vector<RowMember> members) {
  Joiner joiner(symbols, rows, std::move(inside));
  for (RowMember& member : members) joiner.add(std::move(member.group), member.gathers);
  return joiner.take();
}

std::optional<Group> computed_at_groups(KernelGraph& graph, const Group& reader, const Item& sum) {
  Group joined;
  joined.space = reader.space;
  joined.members = reader.members;
  joined.needs = reader.needs;
  joined.footprint = &sum;
  build_kernel(graph, joined);
  return joined.footprint_reads == 1 ? std::optional(std::move(joined)) : std::nullopt;
}

std::optional<Group> computed_at_windows(KernelGraph& graph, const Group& reader, Item& sum) {
  Inliner inliner(graph.scalars, graph.computations,
                  [&](const Value* value) { return graph.is_materialized(value); });
  sum.computation = inliner.inlined(graph.computations.of(sum.node), sum.result);
  std::optional<Group> joined = computed_at_groups(graph, reader, sum);
  if (!joined) sum.computation = {};
  return joined;
}

}  // namespace tandem::schedule
