// Problem: of the scores of a block of rows a causal mask hides half, and softmax and the product
// with the values walked all of them, over numbers that are known: what is hidden is -inf in the
// row's maximum, exp of it 0 in its sum, and the weights there are 0. Approach: the stages are read
// in order, and of each it is asked what it has and stores behind the last column that any row of
// the block sees: a number, or nobody knows. A stage whose reductions combine only their identity
// there may end early, if what it stores there is read by stages that do so too. Scores behind are
// not computed at all (visible_columns.cc).
//   exp(-inf - m) is 0 for the maximum m of the row, unless that is NaN or -inf; then what is seen
//   of the row is NaN as well, and so is the sum without what is hidden. The sum of these is 1 at
//   least, or NaN, and so is every weight of the row; so 0 times its inverse is 0, where it
//   matters. Where a mask may hide a whole row, 0 stands for a maximum of -inf and 1 for the sum of
//   such a row: then exp(-inf - 0) is 0 as well, and the inverse of the sum at most 1.
#include "schedule/hidden_terms.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <unordered_map>

#include "loop/stage.h"
#include "schedule/visible_columns.h"

namespace tandem::schedule {
namespace {

using loop::Axis;
using loop::Opcode;
using loop::Stage;
using loop::Val;
using sym::Expr;
using Number = std::optional<double>;

/// A row's maximum that is kept: of what, along which axis.
struct Maximum {
  Val of = nullptr;
  Expr column;
  const loop::Reduction* made_by = nullptr;
};

/// What a stage stores at each place of that axis. Of a product down the rows nothing that ends.
const std::vector<loop::Store>& columns_of(const Stage& stage, const ColumnAxis& axis) {
  static const std::vector<loop::Store> kNone;
  if (stage.kind == loop::StageKind::gather) return kNone;
  return axis.is_summed || stage.reductions.empty() ? stage.body : stage.after;
}

class HiddenTerms {
 public:
  HiddenTerms(const loop::Kernel& kernel, const HiddenColumns& hidden)
      : kernel_(kernel), hidden_(hidden) {}

  std::vector<std::optional<ColumnAxis>> run() {
    const std::vector<Stage>& stages = kernel_.stages;
    std::vector<std::optional<ColumnAxis>> ends;
    for (const Stage& stage : stages) ends.push_back(read(stage));
    for (size_t i = stages.size(); i-- > 0;)
      for (size_t j = i + 1; ends[i] && j < stages.size(); ++j)
        if (!ends[j] && reads_any(stages[j], columns_of(stages[i], *ends[i])))
          ends[i] = std::nullopt;
    return ends;
  }

 private:
  /// The axis behind whose end the stage combines nothing; and what it stores there.
  std::optional<ColumnAxis> read(const Stage& stage) {
    if (stage.kind == loop::StageKind::gather) return read_gather(stage);
    const bool has_columns = is_row(stage.axes);
    if (is_row(stage.reduce_axes)) {
      find_numbers(stage, stage.reduce_axes[0]);
      const bool adds_nothing = std::ranges::all_of(
          stage.reductions,
          [&](const loop::Reduction& each) { return is_identity(each, stage.axes.empty()); });
      if (adds_nothing || !has_columns) {
        const bool may = keep(stage, stage.body) && adds_nothing;
        keep_numbers_of_rows(stage);
        return may ? std::optional(ColumnAxis{true, 0}) : std::nullopt;
      }
    }
    if (!has_columns) {
      forget(stage);
      return std::nullopt;
    }
    find_numbers(stage, stage.axes[0]);
    const ColumnAxis axis{false, 0};
    return keep(stage, columns_of(stage, axis)) ? std::optional(axis) : std::nullopt;
  }

  /// A product that sums down the rows: one of its factors is 0.
  std::optional<ColumnAxis> read_gather(const Stage& stage) {
    forget(stage);
    for (size_t i = 0; i < stage.axes.size(); ++i) {
      if (stage.axes[i].extent != hidden_.width) continue;
      find_numbers(stage, stage.axes[i]);
      if (multiplies_zero(stage.body[0].value->args)) return ColumnAxis{false, i};
    }
    return std::nullopt;
  }

  bool is_row(const std::vector<Axis>& axes) const {
    return axes.size() == 1 && axes[0].extent == hidden_.width;
  }

  void find_numbers(const Stage& stage, const Axis& axis) {
    column_ = axis.index;
    numbers_.clear();
    const std::vector<Val> roots = loop::roots_of(stage);
    for (const Val value : loop::reachable(roots)) numbers_[value] = number_of(value);
  }

  /// What the stage stores to columns of the row; whether that is all scratch.
  bool keep(const Stage& stage, const std::vector<loop::Store>& columns) {
    forget(stage);
    for (const loop::Store& store : columns)
      stored_[store.buffer] = store.index == place() ? numbers_.at(store.value) : Number();
    return std::ranges::all_of(columns,
                               [&](const loop::Store& store) { return is_scratch(store.buffer); });
  }

  void forget(const Stage& stage) {
    loop::for_each_store(stage, [&](const loop::Store& store) {
      stored_.erase(store.buffer);
      maxima_.erase(store.buffer);
      sums_.erase(store.buffer);
    });
  }

  Expr place() const { return hidden_.rows.index * hidden_.pitch + column_; }

  bool is_scratch(int32_t buffer) const {
    return kernel_.buffers[static_cast<size_t>(buffer)].access == loop::Access::scratch;
  }

  Number number_of(Val value) const {
    switch (value->opcode) {
      case Opcode::constant: return is_float(value->dtype) ? Number(value->number) : Number();
      case Opcode::cast: return is_float(value->dtype) ? numbers_.at(value->args[0]) : Number();
      case Opcode::select: return hides(value->args[0]) ? numbers_.at(value->args[2]) : Number();
      case Opcode::load: return stored_at(value);
      case Opcode::mul: return product_of(value->args[0], value->args[1]);
      case Opcode::exp: return is_exp_of_nothing(value->args[0]) ? Number(0) : Number();
      default: return std::nullopt;
    }
  }

  Number product_of(Val a, Val b) const {
    const Number x = numbers_.at(a);
    const Number y = numbers_.at(b);
    if (x && y) return *x * *y;
    return (x == 0 && is_inverse_of_sum(b)) || (y == 0 && is_inverse_of_sum(a)) ? Number(0)
                                                                                : Number();
  }

  bool is_inverse_of_sum(Val value) const {
    if (value->opcode != Opcode::div || numbers_.at(value->args[0]) != 1) return false;
    const auto& [sum, maximum] = without_guard(value->args[1]);
    if (sum->opcode != Opcode::load || sum->index != hidden_.rows.index) return false;
    const auto found = sums_.find(sum->slot);
    if (found == sums_.end()) return false;
    return found->second == nullptr || (maximum != nullptr && made_by(maximum) == found->second);
  }

  bool hides(Val condition) const {
    return hidden_from(condition, column_, hidden_.rows, hidden_.height) == hidden_.end;
  }

  Number stored_at(Val load) const {
    const auto found = stored_.find(load->slot);
    return found != stored_.end() && !load->masked && load->index == place() ? found->second
                                                                             : Number();
  }

  /// exp(-inf - m), m the maximum of what is -inf here, or 0 for that of a row that sees nothing.
  bool is_exp_of_nothing(Val power) const {
    if (power->opcode != Opcode::sub || numbers_.at(power->args[0]) != -HUGE_VAL) return false;
    const auto& [value, maximum] = without_guard(power->args[1]);
    if (made_by(value) == nullptr || (maximum != nullptr && maximum != value)) return false;
    const auto& [of, column, by] = maxima_.at(value->slot);
    return loop::substituted(*kernel_.scalars, of, {{column, column_}}) == power->args[0];
  }

  /// Of a row's maximum; null of anything else.
  const loop::Reduction* made_by(Val maximum) const {
    const bool is_row = maximum->opcode == Opcode::load && maximum->index == hidden_.rows.index;
    const auto found = is_row ? maxima_.find(maximum->slot) : maxima_.end();
    return found == maxima_.end() ? nullptr : found->second.made_by;
  }

  /// Of products that mapping makes what 0 times the other factor is; of a row's alone, strictly.
  bool is_identity(const loop::Reduction& reduction, bool is_row) const {
    const std::vector<Val>& inputs = reduction.inputs;
    const Number first = numbers_.at(inputs[0]);
    switch (reduction.combiner) {
      case loop::Combiner::max: return first == -HUGE_VAL;
      case loop::Combiner::sum: return first == 0;
      case loop::Combiner::dot:
        return is_row ? product_of(inputs[0], inputs[1]) == 0 : multiplies_zero(inputs);
      default: return false;
    }
  }

  /// Of the first two.
  bool multiplies_zero(const std::vector<Val>& factors) const {
    return numbers_.at(factors[0]) == 0 || numbers_.at(factors[1]) == 0;
  }

  /// Maxima of a row, and sums of exponentials of what lies under its maximum.
  void keep_numbers_of_rows(const Stage& stage) {
    for (const loop::Store& store : stage.after)
      for (const loop::Reduction& reduction : stage.reductions)
        if (store.index == hidden_.rows.index && store.value->opcode == Opcode::local &&
            store.value->slot == reduction.first_local)
          keep_number_of_row(store.buffer, reduction);
  }

  void keep_number_of_row(int32_t buffer, const loop::Reduction& reduction) {
    const Val input = reduction.inputs[0];
    if (reduction.combiner == loop::Combiner::max) maxima_[buffer] = {input, column_, &reduction};
    const bool is_of_exp = input->opcode == Opcode::exp && is_exp_of_nothing(input->args[0]);
    if (reduction.combiner != loop::Combiner::sum || !is_of_exp) return;
    const Val guarded = without_guard(input->args[0]->args[1]).maximum;
    sums_[buffer] = guarded == nullptr ? nullptr : made_by(guarded);
  }

  static bool reads_any(const Stage& reader, const std::vector<loop::Store>& stores) {
    return std::ranges::any_of(loop::scalars_of(reader), [&](Val value) {
      return value->opcode == Opcode::load &&
             std::ranges::any_of(
                 stores, [&](const loop::Store& store) { return store.buffer == value->slot; });
    });
  }

  const loop::Kernel& kernel_;
  const HiddenColumns& hidden_;
  Expr column_;                              // of the stage in hand
  std::unordered_map<Val, Number> numbers_;  // of its scalars, behind the end
  std::map<int32_t, Number> stored_;         // in rows of scratch, there
  std::map<int32_t, Maximum> maxima_;        // in columns of scratch
  /// The same of exponentials; by what rows that see nothing are told from others, if any.
  std::map<int32_t, const loop::Reduction*> sums_;
};

}  // namespace

Guarded without_guard(Val value) {
  if (value->opcode != Opcode::select) return {value};
  const Val blind = value->args[0];
  const bool is_blind = blind->opcode == Opcode::eq && blind->args[1]->opcode == Opcode::constant &&
                        blind->args[1]->number == -HUGE_VAL;
  const Val number = value->args[1];
  if (!is_blind || number->opcode != Opcode::constant || !std::isfinite(number->number))
    return {value};
  return {value->args[2], blind->args[0]};
}

std::vector<std::optional<ColumnAxis>> axes_that_end_early(const loop::Kernel& kernel,
                                                           const HiddenColumns& hidden) {
  return HiddenTerms(kernel, hidden).run();
}

}  // namespace tandem::schedule
