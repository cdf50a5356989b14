// Mapping of kernels that read around an end. Problem: a rotated operand is addressed by
// (i + c) % n, which is no stride, so all of its lanes are gathered, though memory runs along them
// but at one place. Approach: the loop is cut there. Each piece is a stage of its own, in which the
// remainder is i + c, or i + c - n.
#include <set>

#include "schedule/axes.h"
#include "schedule/map.h"

namespace tandem::schedule {
namespace {

using loop::Axis;
using loop::Kernel;
using loop::Stage;
using sym::Expr;

/// Adds the point of the axis at which a remainder in the index begins again.
void add_wraps(Expr index, const Axis& axis, std::set<int64_t>& points) {
  if (!sym::depends_on(index, axis.index)) return;
  for (Expr arg : index.args()) add_wraps(arg, axis, points);  // as deep as an address is
  if (index.kind() != sym::Kind::mod) return;
  const std::optional<int64_t> size = index.args()[1].constant();
  const std::optional<sym::Affine> walk = sym::affine_in(index.args()[0], axis.index);
  const std::optional<int64_t> start = walk ? walk->rest.constant() : std::nullopt;
  if (!size || !start || walk->coefficient != Expr(1)) return;
  const int64_t extent = *axis.extent.constant();
  if (extent <= *size && *start > 0 && *size - *start > 0 && *size - *start < extent)
    points.insert(*size - *start);
}

/// The stage at the points of its last axis from `begin` to `end`, with axes of its own.
Stage piece_of(Kernel& kernel, const Stage& whole, int64_t begin, int64_t end) {
  Stage piece = whole;
  sym::Substitution map;
  for (Axis& axis : piece.axes) {
    const bool is_last = &axis == &piece.axes.back();
    const Expr old = axis.index;
    if (is_last) axis.extent = Expr(end - begin);
    axis.index = kernel.scalars->symbols().index("y", axis.extent);
    map.emplace_back(old, axis.index + (is_last ? begin : 0));
  }
  loop::substitute(kernel, piece, map);
  return piece;
}

}  // namespace

Misfit map_pieces(Kernel& kernel, const Target& target) {
  if (!has_points_only(kernel) || kernel.outer.empty()) return "it is not pointwise";
  move_lanes_last(kernel);
  const Axis lanes = kernel.outer.back();
  if (lanes.extent.constant().value_or(INT64_MAX) > target.tuning.points.block)
    return "its rows are long, or of unknown length";
  std::set<int64_t> points;
  for (Expr index : loop::index_expressions(kernel, kernel.stages[0]))
    add_wraps(index, lanes, points);
  if (points.empty()) return "no operand wraps around along its lanes";
  if (static_cast<int64_t>(points.size()) >= target.tuning.points.pieces)
    return "operands wrap around at many places";
  if (writes_what_it_reads(kernel)) return "it reads what it writes";
  map_points(kernel, target);  // the last axis is in the task as it was
  const Stage whole = std::move(kernel.stages[0]);
  kernel.stages.clear();
  points.insert({0, *lanes.extent.constant()});
  for (auto end = std::next(points.begin()); end != points.end(); ++end) {
    Stage& piece = kernel.stages.emplace_back(piece_of(kernel, whole, *std::prev(end), *end));
    make_vector(piece.axes.back(), piece, target, false);
  }
  return nullptr;
}

}  // namespace tandem::schedule
