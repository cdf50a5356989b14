// Problem: a tile register is loaded as a rectangle of memory, so that what a stage reads must lie
// as one. Approach: one question about a stage, asked by mapping before it marks the axes, by the
// verifier, and by code generation, which reads the strides from the answer.
#include "loop/matrix.h"

#include <algorithm>

#include "loop/stage.h"

namespace tandem::loop {
namespace {

using sym::Expr;

const Axis* lanes_axis(const Stage& stage) {
  for (const Axis& axis : stage.axes)
    if (axis.kind == AxisKind::vector) return &axis;
  return nullptr;
}

bool is_plain(Val value) { return value->opcode == Opcode::load && value->args.empty(); }

bool is_bf16_in_f32(Val value) {
  return value->opcode == Opcode::cast && value->dtype == DType::f32 &&
         value->args[0]->dtype == DType::bf16;
}

/// Elements from one position of the axis to the next; nothing where that changes.
std::optional<Expr> stride_along(Val load, Expr axis) {
  const std::optional<sym::Affine> affine = sym::affine_in(load->index, axis);
  if (!affine || sym::depends_on(affine->coefficient, axis)) return std::nullopt;
  return affine->coefficient;
}

/// A tile is read whole, up to its last column.
bool has_whole_lanes(const Kernel& kernel, Val columns, const Axis& lanes) {
  const Buffer& buffer = kernel.buffers[static_cast<size_t>(columns->slot)];
  return buffer.access == Access::scratch || lanes.extent == Expr(lanes.lanes);
}

/// Rows from one line to the next, where all lie at one distance; 0 where they do not.
int64_t pitch_of(const Stage& stage, Val rows, Expr row_stride) {
  if (stage.axes.size() < 3) return 0;
  const Axis& lines = stage.axes[stage.axes.size() - 2];
  const std::optional<int64_t> width = stage.axes.back().extent.constant();
  const std::optional<Expr> line = stride_along(rows, lines.index);
  const std::optional<int64_t> step = line ? line->constant() : std::nullopt;
  const std::optional<int64_t> stride = row_stride.constant();
  if (lines.kind == AxisKind::vector || !width || !step || !stride || *stride < 1) return 0;
  return *step % *stride == 0 && *step / *stride >= *width ? *step / *stride : 0;
}

bool has_spare_rows(const Kernel& kernel, Val rows, Expr row_stride) {
  const Buffer& buffer = kernel.buffers[static_cast<size_t>(rows->slot)];
  const std::optional<int64_t> elements = buffer.elements.constant();
  const std::optional<int64_t> stride = row_stride.constant();
  const int64_t last = rows->index.range().hi;
  return buffer.access == Access::scratch && elements && stride && last < *elements &&
         *elements - last > (kMostMatrix - 1) * *stride;
}

bool is_one_sum(const Stage& stage, Combiner combiner) {
  return stage.reductions.size() == 1 && stage.reductions[0].combiner == combiner &&
         !stage.reductions[0].scan && stage.body.empty();
}

std::string problem_of_shape(const Stage& stage) {
  if (!is_one_sum(stage, Combiner::dot4) && !multiplies_bf16(stage))
    return "it is not one sum of products of bytes or of bf16";
  const Axis* lanes = lanes_axis(stage);
  if (lanes == nullptr || stage.axes.size() < 2 || lanes == &stage.axes.back())
    return "it has no lanes before its rows";
  if (lanes->lanes != kMatrixTile && lanes->lanes != kMostMatrix)
    return "its lanes are not those of one or two tiles";
  if (stage.reduce_axes.empty()) return "it sums nothing";
  if (multiplies_bf16(stage) &&
      (stage.reduce_axes.size() < 2 || stage.reduce_axes[0].extent != Expr(2)))
    return "its first loop is not over the two numbers of a pack";
  for (const Axis& axis : stage.reduce_axes)
    if (!sym::known_le(1, axis.extent)) return "its sums may be empty";
  if (!stage.reduce_axes.back().extent.constant()) return "the length of its sums is not known";
  return "";
}

}  // namespace

bool multiplies_bf16(const Stage& stage) {
  return is_one_sum(stage, Combiner::dot) &&
         std::ranges::all_of(stage.reductions[0].inputs, is_bf16_in_f32);
}

Val before_cast(Val factor) { return factor->args[0]; }

namespace {

/// The numbers of a pack lie side by side.
bool lies_in_packs(const Stage& stage, Val value) {
  return stride_along(value, stage.reduce_axes[0].index) == Expr(1);
}

}  // namespace

MatrixFit matrix_product(const Kernel& kernel, const Stage& stage) {
  MatrixFit fit;
  fit.problem = problem_of_shape(stage);
  if (!fit.problem.empty()) return fit;
  const std::vector<Val>& inputs = stage.reductions[0].inputs;
  const Axis& lanes = *lanes_axis(stage);
  const Expr row = stage.axes.back().index;
  const Expr pack = stage.reduce_axes.back().index;
  MatrixProduct& product = fit.product;
  product.signed_rows = walks(inputs[1], row);
  product.rows = inputs[product.signed_rows ? 1 : 0];
  product.columns = inputs[product.signed_rows ? 0 : 1];
  const bool is_bf16 = multiplies_bf16(stage);
  if (is_bf16) {
    product.pack_elements = 2;
    product.rows = before_cast(product.rows);
    product.columns = before_cast(product.columns);
  }
  const bool is_apart = !walks(product.rows, lanes.index) && !walks(product.columns, row);
  if (!is_plain(product.rows) || !is_plain(product.columns) || !is_apart) {
    fit.problem = "a factor is not read as it lies";
    return fit;
  }
  const std::optional<Expr> row_stride = stride_along(product.rows, row);
  const std::optional<Expr> pack_stride = stride_along(product.columns, pack);
  const Expr next = product.pack_elements;
  const bool in_packs =
      !is_bf16 || (lies_in_packs(stage, product.rows) && lies_in_packs(stage, product.columns));
  const bool lies = in_packs && row_stride && pack_stride &&
                    stride_along(product.rows, pack) == next &&
                    stride_along(product.columns, lanes.index) == next;
  if (!lies) fit.problem = "a factor does not lie as rows of packs";
  if (!has_whole_lanes(kernel, product.columns, lanes))
    fit.problem = "the last columns would be read past their end";
  if (lies) {
    product.pitch = pitch_of(stage, product.rows, *row_stride);
    product.has_spare_rows = has_spare_rows(kernel, product.rows, *row_stride);
  }
  product.row_stride = row_stride.value_or(0);
  product.pack_stride = pack_stride.value_or(0);
  return fit;
}

bool has_lines(const Stage& stage) {
  return stage.axes.size() > 2 && stage.axes[stage.axes.size() - 2].kind == AxisKind::matrix;
}

std::string matrix_problem(const Kernel& kernel, const Stage& stage) {
  const auto marked = [](const std::vector<Axis>& axes) {
    return !axes.empty() && axes.back().kind == AxisKind::matrix;
  };
  if (!marked(stage.axes) || !marked(stage.reduce_axes))
    return "the rows and the packs of a matrix product are not both marked";
  const int rows = stage.axes.back().lanes;
  const int packs = stage.reduce_axes.back().lanes;
  if (rows != kMatrixTile && rows != kMostMatrix) return "its rows are not those of tiles";
  MatrixFit fit = matrix_product(kernel, stage);
  if (!fit.problem.empty()) return fit.problem;
  if (has_lines(stage) && (fit.product.pitch == 0 || stage.axes[stage.axes.size() - 2].lanes != 1))
    return "its lines are not rows at one distance";
  const bool divides = packs >= 1 && packs <= kMatrixTile &&
                       *stage.reduce_axes.back().extent.constant() % packs == 0;
  return divides ? "" : "its packs are not a number of whole tiles";
}

}  // namespace tandem::loop
