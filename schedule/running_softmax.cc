// Problem: softmax needs a row's maximum before its first exponential, so a row of scores is made
// whole and walked three times; of 8192 columns it comes from behind the second-level cache each
// time. Approach: the maximum so far will do, if what was made under an older one is scaled. With m
// of the pieces so far, and n after this one,
//   s := s exp(m - n) + sum exp(x - n),    o := o exp(m - n) + sum exp(x - n) v,
// and o / s is what it is of a whole row, but for one rounding a piece. Of a piece that shows
// nothing n may be -inf still: x - 0 is taken for it, and 1 for exp(m - n). A row that shows
// nothing at all has sums of 0, so what divides by them is NaN, as by sums of NaN.
#include "schedule/running_softmax.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <vector>

#include "loop/stage.h"
#include "schedule/axes.h"
#include "schedule/hidden_terms.h"

namespace tandem::schedule {
namespace {

using loop::Combiner;
using loop::Kernel;
using loop::Opcode;
using loop::Stage;
using loop::Store;
using loop::Val;
using sym::Expr;

/// The result of its only reduction, stored as it is wherever it is stored.
bool stores_local_alone(const Stage& stage) {
  return std::ranges::all_of(stage.after, [&](const Store& store) {
    return store.value->opcode == Opcode::local &&
           store.value->slot == stage.reductions[0].first_local;
  });
}

/// A chain before it owns blocks of rows, read in order.
class SoftmaxRows {
 public:
  SoftmaxRows(const Kernel& kernel, Expr width) : kernel_(kernel), width_(width) {}

  bool run() {
    return std::ranges::all_of(kernel_.stages,
                               [this](const Stage& stage) { return read(stage); }) &&
           multiplies_;
  }

 private:
  bool read(const Stage& stage) {
    if (stage.kind == loop::StageKind::gather) return false;
    if (!reduces(stage, width_))
      return stores_rows(stage, stage.body) && stores_rows(stage, stage.after);
    if (stage.reductions.size() != 1) return false;
    switch (stage.reductions[0].combiner) {
      case Combiner::max: return read_maximum(stage);
      case Combiner::sum: return read_sum(stage);
      case Combiner::dot: return read_product(stage);
      default: return false;
    }
  }

  bool read_maximum(const Stage& stage) {
    const bool is_first = !maximum_ && stage.axes.empty() && stage.body.empty();
    if (!is_first || !stores_local_alone(stage) || depends(stage.reductions[0].inputs[0]))
      return false;
    maximum_ = stage.reductions[0].first_local;
    carry(stage);
    return true;
  }

  bool read_sum(const Stage& stage) {
    const bool fits =
        stage.axes.empty() && stores_local_alone(stage) && is_scaled(stage.reductions[0].inputs[0]);
    if (!fits || !stores_rows(stage, stage.body)) return false;
    carry(stage);
    return true;
  }

  /// Its results leave the kernel, and are final with the last piece: nothing may read them before.
  bool read_product(const Stage& stage) {
    const std::vector<Val>& factors = stage.reductions[0].inputs;
    const bool first = is_scaled(factors[0]) && !depends(factors[1]);
    const bool second = is_scaled(factors[1]) && !depends(factors[0]);
    multiplies_ = true;
    for (const Store& store : stage.after) kept_.insert(store.buffer);
    return (first || second) && stage.axes.size() == 1 && stage.body.empty() &&
           std::ranges::none_of(stage.after,
                                [&](const Store& store) { return is_scratch(store.buffer); });
  }

  /// What depends on the maximum goes to scratch, and is proportional to exp(-maximum).
  bool stores_rows(const Stage& stage, const std::vector<Store>& stores) {
    for (const Store& store : stores) {
      const bool scaled = is_scaled(store.value);
      if (!scaled && depends(store.value)) return false;
      if (scaled && !is_row(store.buffer)) return false;
      if (scaled) scaled_.insert(store.buffer);
    }
    return std::ranges::none_of(stage.reductions, [&](const loop::Reduction& reduction) {
      return !reduces(stage, width_) &&
             std::ranges::any_of(reduction.inputs, [&](Val input) { return depends(input); });
    });
  }

  void carry(const Stage& stage) {
    carried_.insert(stage.reductions[0].first_local);
    for (const Store& store : stage.after) kept_.insert(store.buffer);
  }

  bool is_scratch(int32_t slot) const {
    return kernel_.buffers[static_cast<size_t>(slot)].access == loop::Access::scratch;
  }
  bool is_row(int32_t slot) const {
    return is_scratch(slot) && kernel_.buffers[static_cast<size_t>(slot)].elements == width_;
  }

  bool is_scaled(Val value) const {
    switch (value->opcode) {
      case Opcode::exp: return is_under_maximum(value->args[0]);
      case Opcode::load: return scaled_.contains(value->slot);
      case Opcode::cast: return is_float(value->dtype) && is_scaled(value->args[0]);
      case Opcode::mul:
        return (is_scaled(value->args[0]) && !depends(value->args[1])) ||
               (is_scaled(value->args[1]) && !depends(value->args[0]));
      case Opcode::select: {
        const Val other = value->args[2];
        const bool is_zero = other->opcode == Opcode::constant && other->number == 0;
        return is_zero && is_scaled(value->args[1]) && !depends(value->args[0]);
      }
      default: return false;
    }
  }

  bool is_under_maximum(Val power) const {
    if (power->opcode != Opcode::sub || depends(power->args[0])) return false;
    const auto& [most, guard] = without_guard(power->args[1]);
    return most->opcode == Opcode::local && maximum_ == most->slot &&
           (guard == nullptr || guard == most);
  }

  /// On a maximum, or on what was made under it.
  bool depends(Val value) const {
    const std::vector<Val> parts = loop::reachable(std::span(&value, 1));
    return std::ranges::any_of(parts, [this](Val part) {
      if (part->opcode == Opcode::local) return carried_.contains(part->slot);
      return part->opcode == Opcode::load &&
             (kept_.contains(part->slot) || scaled_.contains(part->slot));
    });
  }

  const Kernel& kernel_;
  Expr width_;
  std::optional<int32_t> maximum_;
  bool multiplies_ = false;
  std::set<int32_t> carried_;  // locals of rows
  std::set<int32_t> kept_;     // buffers that have them
  std::set<int32_t> scaled_;   // rows of scratch
};

class RowCarrier {
 public:
  RowCarrier(Kernel& kernel, const ColumnPieces& pieces, const RowBlock& block)
      : kernel_(kernel),
        pool_(*kernel.scalars),
        width_(pieces.length),
        rows_(block.rows.index),
        height_(block.height),
        is_first_(pool_.binary(Opcode::eq, pool_.index(pieces.number), pool_.index(0))) {}

  void run() {
    factor_ = scratch(height_);
    for (Stage& stage : kernel_.stages) {
      guard(stage);
      if (!reduces(stage, width_)) continue;
      if (stage.reductions[0].combiner == Combiner::max) carry_maximum(stage);
      if (stage.reductions[0].combiner == Combiner::sum) carry_sum(stage);
      if (stage.reductions[0].combiner == Combiner::dot) carry_product(stage);
    }
  }

 private:
  int32_t scratch(Expr elements) {
    kernel_.buffers.push_back({DType::f32, loop::Access::scratch, elements, true, ""});
    return static_cast<int32_t>(kernel_.buffers.size()) - 1;
  }

  /// What pieces before have left in it; of the first one `start`.
  Val before(const Store& store, double start, bool is_scaled) {
    loop::Buffer& buffer = kernel_.buffers[static_cast<size_t>(store.buffer)];
    if (buffer.access == loop::Access::write) buffer.access = loop::Access::read_write;
    Val left = pool_.load(store.buffer, DType::f32, store.index);
    if (is_scaled) left = pool_.binary(Opcode::mul, left, pool_.load(factor_, DType::f32, rows_));
    return pool_.select(is_first_, pool_.constant(DType::f32, start), left);
  }

  void carry_maximum(Stage& stage) {
    const Val old = before(stage.after[0], -HUGE_VAL, false);
    const Val now = pool_.binary(Opcode::max, old, stage.after[0].value);
    for (Store& store : stage.after) {
      store.value = now;
      maxima_.push_back(pool_.load(store.buffer, DType::f32, store.index));
    }
    const Val change = pool_.unary(Opcode::exp, pool_.binary(Opcode::sub, old, now));
    const Val same = pool_.binary(Opcode::eq, old, now);
    const Val factor = pool_.select(same, pool_.constant(DType::f32, 1), change);
    stage.after.insert(stage.after.begin(), {factor_, rows_, factor, false});  // it reads `old`
  }

  void carry_sum(Stage& stage) {
    const Val now =
        pool_.binary(Opcode::add, before(stage.after[0], 0, true), stage.after[0].value);
    for (Store& store : stage.after) store.value = now;
  }

  /// Results are made of what there is by now; those of the last piece stay.
  void carry_product(Stage& stage) {
    const loop::Axis& columns = stage.axes[0];
    const Val own = pool_.local(stage.reductions[0].first_local, DType::f32);
    Store kept{scratch(height_ * columns.extent), rows_ * columns.extent + columns.index, own,
               false};
    kept.value = pool_.binary(Opcode::add, before(kept, 0, true), own);
    replace_locals(pool_, stage.after, {{own->slot, kept.value}});
    stage.after.push_back(kept);
  }

  /// exp(x - m) is of 0 where m is -inf.
  void guard(Stage& stage) {
    loop::StageRewrite how;
    how.replace = [this](const loop::Scalar& node, std::span<const Val> args) -> Val {
      const bool is_maximum =
          node.opcode == Opcode::sub && std::ranges::find(maxima_, args[1]) != maxima_.end();
      if (!is_maximum) return nullptr;
      const Val blind = pool_.binary(Opcode::eq, args[1], pool_.constant(DType::f32, -HUGE_VAL));
      const Val most = pool_.select(blind, pool_.constant(DType::f32, 0), args[1]);
      return pool_.binary(Opcode::sub, args[0], most);
    };
    loop::rewrite(pool_, pool_, stage, how);
  }

  Kernel& kernel_;
  loop::ScalarPool& pool_;
  Expr width_;  // of a piece
  Expr rows_;
  Expr height_;
  Val is_first_;
  int32_t factor_ = 0;       // exp(m - n) of each row, in scratch
  std::vector<Val> maxima_;  // as later stages read them
};

}  // namespace

bool is_softmax_of_rows(const Kernel& kernel, Expr width) {
  return SoftmaxRows(kernel, width).run();
}

void carry_rows(Kernel& kernel, const ColumnPieces& pieces, const RowBlock& block) {
  RowCarrier(kernel, pieces, block).run();
}

}  // namespace tandem::schedule
