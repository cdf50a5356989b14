// Sums of groups of terms, which are then scaled and added (compute_at_groups): the weight is read
// once, a row of the left factor again and again. So there is nothing to block: a task has as many
// columns as lie side by side, two registers of them; rows of the left factor that share the
// weight's terms (parts of numbers too long for bytes) are a register tile; what the groups sum to
// is a row of scratch for each column, which stays in the first-level cache.
#include <algorithm>
#include <array>
#include <bit>

#include "schedule/axes.h"
#include "schedule/map.h"

namespace tandem::schedule {
namespace {

using loop::Axis;
using loop::AxisKind;
using loop::Kernel;
using loop::Stage;
using loop::Val;
using sym::Expr;

/// The input that walks the columns, where the other one does not; -1 for neither.
int right_of(const Stage& sums, Expr column) {
  const std::vector<Val>& inputs = sums.reductions[0].inputs;
  for (size_t right : {0, 1})
    if (walks(inputs[right], column) && !walks(inputs[1 - right], column) &&
        runs_along(inputs[right], column, column))
      return static_cast<int>(right);
  return -1;
}

/// How many rows of the left factor read each term of the right one; a product's blocks are for
/// more than a few.
bool has_few_rows(const Kernel& kernel, Val right, int64_t most) {
  int64_t rows = 1;
  for (const std::vector<Axis>* axes : {&kernel.outer, &kernel.stages[0].axes})
    for (const Axis& axis : *axes) {
      if (walks(right, axis.index)) continue;
      const std::optional<int64_t> extent = axis.extent.constant();
      if (!extent || *extent > most) return false;
      rows *= *extent;
    }
  return rows <= most;
}

/// Axes that the right factor does not walk go last: its terms are unpacked once for all of them.
void share_right(std::vector<Axis>& axes, Val right) {
  std::ranges::stable_partition(axes, [&](const Axis& axis) { return walks(right, axis.index); });
}

/// Each column has scratch of its own.
void widen_scratch(Kernel& kernel, int32_t number, const Axis& columns, int64_t width) {
  loop::Buffer& scratch = kernel.buffers[static_cast<size_t>(number)];
  scratch.elements = scratch.elements * width;
  loop::StageRewrite how;
  how.place = [&](int32_t& slot, Expr& index) {
    if (slot == number) index = index * width + columns.index;
  };
  for (Stage& stage : kernel.stages) loop::rewrite(*kernel.scalars, *kernel.scalars, stage, how);
}

/// Each step asks for one line of what is read so far behind; a load's lines are as many as the
/// steps that read it.
void ask_ahead(Stage& sums, Val right, const Axis& columns, int64_t ahead) {
  constexpr int64_t kLineBytes = 64;
  for (Val part : loop::reachable(std::array{right})) {
    if (part->opcode != loop::Opcode::load) continue;
    const int64_t line = kLineBytes / size_of(part->dtype);
    const int64_t lines = std::max<int64_t>(1, columns.lanes / line);
    const Expr step = sums.reduce_axes.empty() ? Expr(0) : sums.reduce_axes.back().index;
    const Expr first = sym::substitute(part->index, {{columns.index, Expr(0)}});
    sums.prefetches.push_back(
        {part->slot, first + ahead / size_of(part->dtype) + sym::mod(step, lines) * line});
  }
}

/// The axes of the reader's sums as those of the sums of groups that take the same steps through
/// the scratch between them.
sym::Substitution as_axes_of(const Stage& sums, const Stage& reader, Expr read) {
  sym::Substitution map;
  for (const Axis& axis : reader.reduce_axes) {
    const std::optional<sym::Affine> along = sym::affine_in(read, axis.index);
    for (const Axis& other : sums.axes) {
      const std::optional<sym::Affine> made = sym::affine_in(sums.after[0].index, other.index);
      if (along && made && made->coefficient == along->coefficient)
        map.emplace_back(axis.index, other.index);
    }
  }
  return map;
}

/// What the reader takes beside the sums of each group (scales) comes from memory as well, and
/// would be waited for: it is asked for while the group is summed, its line once.
void ask_for_reader(Kernel& kernel, const Axis& columns) {
  Stage& sums = kernel.stages[0];
  const int32_t scratch = sums.after[0].buffer;
  std::vector<Val> loads = loop::all_scalars_of(*kernel.scalars, kernel.stages[1]);
  std::erase_if(loads, [](Val value) { return value->opcode != loop::Opcode::load; });
  const auto read = std::ranges::find(loads, scratch, [](Val load) { return load->slot; });
  if (read == loads.end()) return;
  const sym::Substitution groups = as_axes_of(sums, kernel.stages[1], (*read)->index);
  for (Val load : loads) {
    const bool walks_groups =
        std::ranges::any_of(groups, [&](const auto& pair) { return walks(load, pair.first); });
    if (load->slot == scratch || !walks_groups || !walks(load, columns.index)) continue;
    const Expr first = sym::substitute(load->index, {{columns.index, Expr(0)}});
    sums.prefetches.push_back({load->slot, sym::substitute(first, groups)});
  }
}

/// A task is a panel of columns.
void take_panel(Kernel& kernel, int64_t width, size_t right, const Target& target) {
  Axis columns =
      take_block(kernel, kernel.outer.size() - 1, width, {&kernel.stages[0], &kernel.stages[1]});
  columns.kind = AxisKind::vector;
  columns.lanes = static_cast<int>(std::min<int64_t>(width, int64_t{2} * target.lanes()));
  widen_scratch(kernel, kernel.stages[0].after[0].buffer, columns, width);
  all_tasks(kernel.outer);
  Stage& sums = kernel.stages[0];
  sums.kind = loop::StageKind::loops;
  const Val weight = sums.reductions[0].inputs[right];
  share_right(sums.axes, weight);
  if (sums.axes.empty() || walks(weight, sums.axes.back().index))
    sums.axes.push_back({kernel.scalars->symbols().index("y", 1), 1});
  Axis& rows = sums.axes.back();
  rows.kind = AxisKind::unroll;
  rows.lanes = static_cast<int>(std::bit_ceil(static_cast<uint64_t>(*rows.extent.constant())));
  sums.axes.insert(sums.axes.end() - 1, columns);
  ask_ahead(sums, weight, columns, target.tuning.products.group_ahead);
  kernel.stages[1].axes = {columns};
  ask_for_reader(kernel, columns);
}

}  // namespace

Misfit map_groups(Kernel& kernel, const Target& target) {
  if (!has_footprint(kernel) || kernel.outer.empty()) return "it does not sum sums of groups";
  const Stage& reader = kernel.stages[1];
  const bool adds = reader.axes.empty() && reader.body.empty() && !reader.reductions.empty();
  if (!adds || kernel.stages[0].reductions[0].combiner == loop::Combiner::dot)
    return "its groups are no sums of integers";
  const int right = right_of(kernel.stages[0], kernel.outer.back().index);
  if (right < 0) return "no factor lies along the results";
  const Val weight = kernel.stages[0].reductions[0].inputs[static_cast<size_t>(right)];
  const Tuning::Products& tuning = target.tuning.products;
  if (!has_few_rows(kernel, weight, tuning.group_rows)) return "many rows read each term";
  const std::optional<int64_t> width = kernel.outer.back().extent.constant();
  if (!width || *width == 0 || *width % target.lanes() != 0 || *width > tuning.group_columns)
    return "its results are no panel";
  take_panel(kernel, *width, static_cast<size_t>(right), target);
  return nullptr;
}

}  // namespace tandem::schedule
