// Facts about combiners.
#include "loop/kernel.h"

#include <limits>

namespace tandem::loop {

std::string_view name_of(StageKind kind) {
  switch (kind) {
    case StageKind::loops: return "";
    case StageKind::footprint: return "footprint";
    case StageKind::gather: return "gather";
  }
  return "";
}

std::string_view name_of(Combiner combiner) {
  switch (combiner) {
    case Combiner::sum: return "sum";
    case Combiner::dot: return "dot";
    case Combiner::dot4: return "dot4";
    case Combiner::dot4_saturating: return "dot4_saturating";
    case Combiner::dot_bf16: return "dot_bf16";
    case Combiner::dot2: return "dot2";
    case Combiner::prod: return "prod";
    case Combiner::min: return "min";
    case Combiner::max: return "max";
    case Combiner::argmin: return "argmin";
    case Combiner::argmax: return "argmax";
    case Combiner::logaddexp: return "logaddexp";
    case Combiner::any: return "any";
    case Combiner::all: return "all";
  }
  return "sum";
}

std::string_view assignment_of(Combiner combiner) {
  if (combiner == Combiner::sum) return "+=";
  if (combiner == Combiner::prod) return "*=";
  if (combiner == Combiner::min) return "min=";
  return combiner == Combiner::max ? "max=" : "";
}

namespace {

/// A loop of a few steps, as a small window's, costs more to end than it gains; one of a block that
/// is all there is gains nothing.
bool is_worth_blocks(const Stage& stage) {
  constexpr int64_t kFewSteps = 16;
  const Axis& last = stage.reduce_axes.back();
  const std::optional<int64_t> extent = last.extent.constant();
  if (!extent) return true;
  const bool has_lanes = last.kind == AxisKind::vector || last.kind == AxisKind::thread;
  const int64_t steps = *extent / (has_lanes ? last.lanes : 1);
  return steps > (stage.reduce_axes.size() == 1 ? kSumBlock : kFewSteps);
}

}  // namespace

bool sums_in_blocks(const Reduction& reduction) {
  return reduction.combiner == Combiner::sum && reduction.inputs[0]->dtype == DType::f32;
}

bool sums_in_blocks(const Stage& stage) {
  const bool is_tile = !stage.axes.empty() && stage.axes.back().kind == AxisKind::unroll;
  if (stage.reduce_axes.empty() || is_tile || !is_worth_blocks(stage)) return false;
  bool sums = false;
  for (const Reduction& reduction : stage.reductions) {
    if (reduction.scan) return false;
    sums = sums || sums_in_blocks(reduction);
  }
  return sums;
}

int results(Combiner combiner) {
  return combiner == Combiner::argmin || combiner == Combiner::argmax ? 2 : 1;
}

bool multiplies(Combiner combiner) {
  return combiner == Combiner::dot || multiplies_bytes(combiner) || combiner == Combiner::dot2 ||
         combiner == Combiner::dot_bf16;
}

bool multiplies_bytes(Combiner combiner) {
  return combiner == Combiner::dot4 || combiner == Combiner::dot4_saturating;
}

int arity(Combiner combiner) { return multiplies(combiner) ? 2 : results(combiner); }

namespace {

/// Lowest (or highest) value of a type: infinities for floats.
Val extreme(ScalarPool& pool, DType dtype, bool lowest) {
  if (is_float(dtype))
    return pool.constant(dtype, lowest ? -std::numeric_limits<double>::infinity()
                                       : std::numeric_limits<double>::infinity());
  if (dtype == DType::boolean) return pool.integer(dtype, lowest ? 0 : 1);
  int bits = static_cast<int>(size_of(dtype)) * 8;
  if (!is_signed(dtype)) return pool.integer(dtype, lowest ? 0 : (int64_t{1} << bits) - 1);
  int64_t low = bits == 64 ? std::numeric_limits<int64_t>::min() : -(int64_t{1} << (bits - 1));
  return pool.integer(dtype, lowest ? low : -(low + 1));
}

}  // namespace

Val identity_of(ScalarPool& pool, Combiner combiner, DType dtype) {
  switch (combiner) {
    case Combiner::sum:
    case Combiner::dot:
    case Combiner::dot4:
    case Combiner::dot4_saturating:
    case Combiner::dot2:
    case Combiner::dot_bf16: return pool.constant(dtype, 0);
    case Combiner::prod: return pool.constant(dtype, 1);
    case Combiner::min:
    case Combiner::argmin: return extreme(pool, dtype, false);
    case Combiner::max:
    case Combiner::logaddexp:
    case Combiner::argmax: return extreme(pool, dtype, true);
    case Combiner::any: return pool.integer(DType::boolean, 0);
    case Combiner::all: return pool.integer(DType::boolean, 1);
  }
  return nullptr;
}

sym::Expr Kernel::tasks() const {
  sym::Expr count = 1;
  for (const Axis& axis : outer)
    if (is_parallel(axis)) count = count * axis.extent;
  return count;
}

}  // namespace tandem::loop
