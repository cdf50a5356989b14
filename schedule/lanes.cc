// Which axis lanes should run along: the one that most accesses walk with stride 1. Index values
// cost nothing along any axis, so only addresses count.
#include <algorithm>

#include "schedule/axes.h"

namespace tandem::schedule {

using loop::Axis;
using loop::AxisKind;
using loop::Stage;
using loop::Val;
using sym::Expr;

int lane_score(const std::vector<Expr>& indices, Expr axis) {
  int score = 0;
  for (Expr e : indices) {
    if (!sym::depends_on(e, axis)) {
      score += 1;
      continue;
    }
    std::optional<sym::Affine> affine = sym::affine_in(e, axis);
    score += affine && affine->coefficient == Expr(1) ? 3 : -4;
  }
  return score;
}

std::vector<Expr> loaded_addresses(const Stage& stage) {
  std::vector<Expr> found;
  for (Val value : loop::scalars_of(stage))
    if (value->opcode == loop::Opcode::load) found.push_back(value->index);
  return found;
}

std::vector<Expr> addresses(const Stage& stage) {
  std::vector<Expr> found = loaded_addresses(stage);
  // Twice: a scattered store costs more than a gathered load.
  loop::for_each_store(
      stage, [&](const loop::Store& store) { found.insert(found.end(), 2, store.index); });
  return found;
}

int best_axis(const std::vector<Axis>& axes, const std::vector<Expr>& indices, int* best_score) {
  int best = -1;
  for (size_t i = 0; i < axes.size(); ++i) {
    int score = lane_score(indices, axes[i].index);
    bool last_wins_ties = best < 0 || score >= *best_score;
    if (!last_wins_ties) continue;
    best = static_cast<int>(i);
    *best_score = score;
  }
  return best;
}

void move_last(std::vector<Axis>& axes, int number) {
  std::rotate(axes.begin() + number, axes.begin() + number + 1, axes.end());
}

void all_tasks(std::vector<Axis>& axes) {
  for (Axis& axis : axes) axis.kind = AxisKind::task;
}

bool long_enough(const Axis& axis, int lanes) {
  std::optional<int64_t> extent = axis.extent.constant();
  return !extent || *extent >= lanes;
}

}  // namespace tandem::schedule
