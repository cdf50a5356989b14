// Mapping of kernels that choose by an axis. Problem: what is stacked, or made in blocks, is stored
// along an axis of a few points, and each point asks in its loop which of the values is its own,
// and computes all of them for the choice. Approach: the axis goes; the loop stores every case,
// each without a question, and what the cases read in common is read once.
#include <algorithm>
#include <span>

#include "loop/stage.h"
#include "schedule/axes.h"
#include "schedule/map.h"

namespace tandem::schedule {
namespace {

using loop::Axis;
using loop::Kernel;
using loop::Stage;
using loop::Val;
using sym::Expr;

constexpr int64_t kMostCases = 4;  // of an axis: sides of a tile

/// Chooses by comparing the axis itself with a number. A place beside an image is no case.
bool chooses_by(Val value, Expr axis) {
  if (value->opcode != loop::Opcode::select) return false;
  const Val asked = value->args[0];
  if (asked->dtype != DType::boolean || asked->args.size() != 2) return false;
  const auto is_axis = [&](Val side) {
    return side->opcode == loop::Opcode::index && side->index == axis;
  };
  const auto is_number = [](Val side) { return side->opcode == loop::Opcode::constant; };
  return std::ranges::any_of(asked->args, is_axis) && std::ranges::any_of(asked->args, is_number);
}

/// Side by side are few values, which have a mapping of their own.
bool lies_side_by_side(const Stage& stage, const Axis& axis) {
  return std::ranges::any_of(stage.body, [&](const loop::Store& store) {
    const std::optional<sym::Affine> along = sym::affine_in(store.index, axis.index);
    return along && along->coefficient == Expr(1);
  });
}

bool has_cases(const Kernel& kernel, const Axis& axis) {
  const std::optional<int64_t> count = axis.extent.constant();
  if (!count || *count < 2 || *count > kMostCases) return false;
  if (lies_side_by_side(kernel.stages[0], axis)) return false;
  return std::ranges::any_of(loop::scalars_of(kernel.stages[0]),
                             [&](Val value) { return chooses_by(value, axis.index); });
}

/// Every store of the stage at each point of the axis.
void store_all(Kernel& kernel, const Axis& axis) {
  Stage& stage = kernel.stages[0];
  const Stage whole = std::move(stage);
  stage = whole;
  stage.body.clear();
  for (int64_t point = 0; point < *axis.extent.constant(); ++point) {
    Stage one = whole;
    loop::substitute(kernel, one, {{axis.index, Expr(point)}});
    stage.body.insert(stage.body.end(), one.body.begin(), one.body.end());
  }
}

int64_t count_loads(std::span<const Val> roots) {
  return std::ranges::count(loop::reachable(roots), loop::Opcode::load, &loop::Scalar::opcode);
}

bool share_loads(const Stage& stage) {
  std::vector<Val> values;
  int64_t apart = 0;
  for (const loop::Store& store : stage.body) {
    values.push_back(store.value);
    apart += count_loads(std::span(&values.back(), 1));
  }
  return count_loads(values) < apart;
}

}  // namespace

Misfit map_cases(Kernel& kernel, const Target& target) {
  if (!has_points_only(kernel)) return "it is not pointwise";
  if (writes_what_it_reads(kernel)) return "it reads what it writes";
  bool found = false;
  for (size_t i = kernel.outer.size(); i-- > 0;) {
    const Axis axis = kernel.outer[i];
    if (!has_cases(kernel, axis)) continue;
    if (kernel.outer.size() == 1) return "it has no other axis";
    found = true;
    kernel.outer.erase(kernel.outer.begin() + static_cast<std::ptrdiff_t>(i));
    store_all(kernel, axis);
  }
  if (!found) return "no axis of a few points chooses between values";
  if (!share_loads(kernel.stages[0])) return "its cases read nothing in common";
  return map_tiles(kernel, target) == nullptr ? nullptr : map_points(kernel, target);
}

}  // namespace tandem::schedule
