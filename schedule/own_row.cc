// Problem: kernels that run row by row, one after the other, are the same program as before only if
// each reads, of what the others make, what has been made when it gets there. Approach: nothing is
// asked of ops. A kernel's outer axes are written as functions of the common rows' axes; then every
// address it touches of a value made inside must be its row's start and something that no row's
// axis moves. That is the value's footprint: one row. Who makes and who reads a value changes with
// the chain; where the addresses are does not.
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

/// A place of a value that a group reads or writes.
struct Touch {
  const Value* value = nullptr;
  Expr address;
  bool stores = false;
  std::optional<bool> is_own;  // once it was asked for
};

/// In the order of the program; scratch is the group's own.
std::vector<Touch> touches_of(const Group& group) {
  std::vector<Touch> touches;
  const auto add = [&](int32_t buffer, Expr address, bool stores) {
    const Value* value = group.buffer_values[static_cast<size_t>(buffer)];
    if (value != nullptr) touches.push_back({value, address, stores, {}});
  };
  for (const Stage& stage : group.kernel.stages) {
    for (Val value : loop::scalars_of(stage))
      if (value->opcode == loop::Opcode::load) add(value->slot, value->index, false);
    loop::for_each_store(stage,
                         [&](const loop::Store& store) { add(store.buffer, store.index, true); });
  }
  return touches;
}

/// A group's addresses as functions of the rows.
class AtRows {
 public:
  AtRows(const Group& group, const ir::Sizes& rows, ops::Index axes, sym::Substitution map)
      : rows_(rows), axes_(std::move(axes)), map_(std::move(map)), touches_(touches_of(group)) {}

  /// Whether it knows of the values of the chain its own row only.
  bool keep_to_row(const Joining& joining, const RowChain& chain) {
    return std::ranges::all_of(touches_, [&](Touch& touch) {
      const bool asks = touch.stores ? is_inside(joining, chain.members, touch.value)
                                     : is_made_by(joining, chain.members, touch.value);
      return !asks || is_own(touch);
    });
  }

  /// One factor of a product walks the rows, the other one the columns.
  bool walk_apart(const Group& group, Expr row) const {
    const Expr column = group.kernel.outer.back().index;
    const std::vector<Val>& inputs = group.kernel.stages[0].reductions[0].inputs;
    return std::ranges::any_of(std::initializer_list<size_t>{0, 1}, [&](size_t left) {
      return walks(inputs[left], row) && !walks(inputs[left], column) &&
             walks(inputs[1 - left], column) && !walks(inputs[1 - left], row);
    });
  }

 private:
  bool is_own(Touch& touch) const {
    if (touch.is_own) return *touch.is_own;
    const Expr row = linear_index(axes_, rows_) * width_of(*touch.value, rows_);
    const Expr column = sym::substitute(touch.address, map_) - row;
    touch.is_own =
        std::ranges::none_of(axes_, [&](Expr axis) { return sym::depends_on(column, axis); });
    return *touch.is_own;
  }

  bool walks(Val factor, Expr axis) const {
    std::vector<Val> roots{factor};
    return std::ranges::any_of(loop::reachable(roots), [&](Val part) {
      return sym::depends_on(sym::substitute(part->index, map_), axis);
    });
  }

  ir::Sizes rows_;
  ops::Index axes_;
  sym::Substitution map_;
  std::vector<Touch> touches_;
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

/// Outer axes that are rows: of a product all but its columns.
size_t row_axes(const Group& group) {
  const size_t count = group.kernel.outer.size();
  return is_product(group) && count != 0 ? count - 1 : count;
}

const char* never_walks(const Group& group, const ir::Sizes& rows) {
  ir::Sizes sizes = extents(group.kernel.outer);
  sizes.resize(row_axes(group));
  const bool walks = !sizes.empty() && sym::product(sizes) == sym::product(rows);
  return walks ? nullptr : "it walks other rows";
}

const char* never_gathers(const Group& group, const ir::Sizes& rows) {
  const Kernel& kernel = group.kernel;
  if (!is_product(group) || rows.size() < 2 || kernel.outer.size() < 3)
    return "it is no product for each of a batch";
  const Stage& stage = kernel.stages[0];
  ir::Sizes batch = extents(kernel.outer);
  batch.resize(batch.size() - 2);
  const bool along = stage.reduce_axes.size() == 1 && stage.reduce_axes[0].extent == rows.back() &&
                     sym::product(batch) * rows.back() == sym::product(rows);
  return along ? nullptr : "it does not sum along the rows";
}

bool walk_apart(const AtRows& at, const Group& group, Expr row) {
  return at.walk_apart(group, row) &&
         stores_along(group.kernel.stages[0], group.kernel.outer.back().index);
}

}  // namespace

/// Of a group at the rows.
struct RowFits::Fit {
  ir::Sizes rows;
  bool gathers = false;
  const char* never = nullptr;  // whatever else is in the chain
  std::optional<AtRows> at;     // where nothing hinders it
  Expr row;                     // the axis that one factor of a product walks
  std::optional<bool> apart;    // once it was asked for
};

RowFits::RowFits(const Joining& joining) : joining_(joining), fits_(joining.needs.size()) {}
RowFits::~RowFits() = default;

RowFits::Fit& RowFits::fit_of(const RowChain& chain, uint32_t number) {
  const bool gathers = chain.gathering.count(number) != 0;
  std::vector<Fit>& fits = fits_[number];
  const auto found = std::ranges::find_if(
      fits, [&](const Fit& fit) { return fit.gathers == gathers && fit.rows == chain.rows; });
  if (found != fits.end()) return *found;
  const Group& group = joining_.graph.groups[number];
  Fit& fit = fits.emplace_back(Fit{chain.rows, gathers, nullptr, {}, {}, {}});
  fit.never = gathers ? never_gathers(group, chain.rows) : never_walks(group, chain.rows);
  if (fit.never != nullptr) return fit;
  const ops::Index axes = fresh_axes(joining_.graph.graph->pool(), chain.rows);
  const std::vector<loop::Axis>& outer = group.kernel.outer;
  fit.row = gathers ? outer[outer.size() - 2].index : axes.back();
  fit.at.emplace(group, chain.rows, axes,
                 gathers ? at_sum(group.kernel, chain.rows, axes)
                         : at_rows(group.kernel, row_axes(group), chain.rows, axes));
  return fit;
}

const char* RowFits::misfit(const RowChain& chain, uint32_t number) {
  const Group& group = joining_.graph.groups[number];
  Fit& fit = fit_of(chain, number);
  if (fit.never != nullptr) return fit.never;
  if (reads_gathered(joining_, chain, number)) return kWhole;
  if (fit.gathers && !stores_sums(group.kernel.stages[0]))
    return "it does not store its sums as they are";
  if (!fit.at->keep_to_row(joining_, chain)) return kReads;
  if (!is_product(group)) return nullptr;
  if (!fit.apart) fit.apart = walk_apart(*fit.at, group, fit.row);
  return *fit.apart ? nullptr : kWalks;
}

}  // namespace tandem::schedule
