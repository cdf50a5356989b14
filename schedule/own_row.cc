// Problem: kernels that run row by row, one after the other, are the same program as before only if
// each reads, of what the others make, what has been made when it gets there. Approach: nothing is
// asked of ops. A kernel's outer axes are written as functions of the common rows' axes; then every
// address it touches of a value made inside must be its row's start and something that no row's
// axis moves. That is the value's footprint: one row.
#include "schedule/own_row.h"

#include <algorithm>

namespace tandem::schedule {
namespace {

using ir::Value;
using loop::Kernel;
using loop::Stage;
using loop::Val;
using sym::Expr;

bool is_gathered(const Joining& joining, const RowChain& chain, const Value* value) {
  const Home home = joining.graph.homes.at(value);
  return home.item != nullptr && chain.gathering.count(joining.number_of.at(home.item)) != 0;
}

/// Another member's result, that is: it is whole after the last block only.
bool reads_gathered(const Joining& joining, const RowChain& chain, uint32_t number) {
  return std::ranges::any_of(joining.needs[number].reads, [&](const Value* value) {
    return is_gathered(joining, chain, value) &&
           joining.number_of.at(joining.graph.homes.at(value).item) != number;
  });
}

/// A group's addresses as functions of the chain's rows.
struct AtRows {
  const Joining& joining;
  const RowChain& chain;
  const Group& group;
  sym::Substitution map;
  ops::Index axes;

  bool is_own(int32_t slot, Expr address) const {
    const Value* value = group.buffer_values[static_cast<size_t>(slot)];
    const Expr row = linear_index(axes, chain.rows) * width_of(*value, chain.rows);
    const Expr column = sym::substitute(address, map) - row;
    return std::ranges::none_of(axes, [&](Expr axis) { return sym::depends_on(column, axis); });
  }

  bool loads_own(const Stage& stage) const {
    return std::ranges::all_of(loop::scalars_of(stage), [&](Val value) {
      if (value->opcode != loop::Opcode::load) return true;
      const Value* from = group.buffer_values[static_cast<size_t>(value->slot)];
      return !is_made_by(joining, chain.members, from) || is_own(value->slot, value->index);
    });
  }

  bool stores_own(const Stage& stage) const {
    bool keeps = true;
    loop::for_each_store(stage, [&](const loop::Store& store) {
      const Value* to = group.buffer_values[static_cast<size_t>(store.buffer)];
      keeps &= to == nullptr || !is_inside(joining, chain.members, to) ||
               is_own(store.buffer, store.index);
    });
    return keeps;
  }

  bool keep_to_row(const Stage& stage) const { return loads_own(stage) && stores_own(stage); }

  bool walks(Val factor, Expr axis) const {
    std::vector<Val> roots{factor};
    return std::ranges::any_of(loop::reachable(roots), [&](Val part) {
      return sym::depends_on(sym::substitute(part->index, map), axis);
    });
  }

  /// One factor walks the rows, the other one the columns.
  bool walk_apart(Expr row) const {
    const Expr column = group.kernel.outer.back().index;
    const std::vector<Val>& inputs = group.kernel.stages[0].reductions[0].inputs;
    return std::ranges::any_of(std::initializer_list<size_t>{0, 1}, [&](size_t left) {
      return walks(inputs[left], row) && !walks(inputs[left], column) &&
             walks(inputs[1 - left], column) && !walks(inputs[1 - left], row);
    });
  }
};

bool stores_along(const Stage& stage, Expr column) {
  return std::ranges::all_of(stage.after, [&](const loop::Store& store) {
    const std::optional<sym::Affine> affine = sym::affine_in(store.index, column);
    return affine && affine->coefficient == Expr(1);
  });
}

bool stores_sums(const Stage& stage) {
  return stage.after.size() == 1 && !stage.after[0].accumulate &&
         stage.after[0].value->opcode == loop::Opcode::local &&
         stage.after[0].value->dtype == DType::f32;
}

constexpr const char* kWalks = "its factors do not walk rows and columns apart";
constexpr const char* kReads = "it reads, or others read of it, more than the row in hand";
constexpr const char* kWhole = "it reads a sum that is whole after the last row only";

}  // namespace

const char* misfit_at_rows(const Joining& joining, const RowChain& chain, uint32_t number) {
  const Group& group = joining.graph.groups[number];
  const Kernel& kernel = group.kernel;
  size_t count = kernel.outer.size();
  if (is_product(group)) count -= count == 0 ? 0 : 1;
  ir::Sizes sizes = extents(kernel.outer);
  sizes.resize(count);
  if (count == 0 || sym::product(sizes) != sym::product(chain.rows)) return "it walks other rows";
  if (reads_gathered(joining, chain, number)) return kWhole;
  const ops::Index axes = fresh_axes(joining.graph.graph->pool(), chain.rows);
  const AtRows at{joining, chain, group, at_rows(kernel, count, chain.rows, axes), axes};
  for (const Stage& stage : kernel.stages)
    if (!at.keep_to_row(stage)) return kReads;
  if (!is_product(group)) return nullptr;
  const bool apart =
      at.walk_apart(axes.back()) && stores_along(kernel.stages[0], kernel.outer.back().index);
  return apart ? nullptr : kWalks;
}

const char* misfit_gathering(const Joining& joining, const RowChain& chain, uint32_t number) {
  const Group& group = joining.graph.groups[number];
  const Kernel& kernel = group.kernel;
  if (!is_product(group) || chain.rows.size() < 2 || kernel.outer.size() < 3)
    return "it is no product for each of a batch";
  const Stage& stage = kernel.stages[0];
  ir::Sizes batch = extents(kernel.outer);
  batch.resize(batch.size() - 2);
  if (stage.reduce_axes.size() != 1 || stage.reduce_axes[0].extent != chain.rows.back() ||
      sym::product(batch) * chain.rows.back() != sym::product(chain.rows))
    return "it does not sum along the rows";
  if (reads_gathered(joining, chain, number)) return kWhole;
  if (!stores_sums(stage)) return "it does not store its sums as they are";
  const ops::Index axes = fresh_axes(joining.graph.graph->pool(), chain.rows);
  const AtRows at{joining, chain, group, at_sum(kernel, chain.rows, axes), axes};
  if (!at.keep_to_row(stage)) return kReads;
  const bool apart = at.walk_apart(kernel.outer[kernel.outer.size() - 2].index) &&
                     stores_along(stage, kernel.outer.back().index);
  return apart ? nullptr : kWalks;
}

}  // namespace tandem::schedule
