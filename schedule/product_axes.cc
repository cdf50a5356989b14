// Problem: a product's rows and columns are axes of its results, and are several where an image or
// a packed factor is read: blocks and tiles want one of each. Approach: neighbours become one where
// all else walks them as one; what they cost to read says whether that pays.
#include "schedule/product_axes.h"

#include "loop/matrix.h"
#include "loop/stage.h"
#include "schedule/axes.h"
#include "schedule/matrix_tile.h"

namespace tandem::schedule {

using loop::Axis;
using loop::Kernel;
using loop::Stage;
using loop::Val;
using sym::Expr;

bool is_plain_load(Val value) { return value->opcode == loop::Opcode::load && value->args.empty(); }

bool is_widened_load(Val value) {
  return value->opcode == loop::Opcode::cast && is_plain_load(value->args[0]) &&
         size_of(value->args[0]->dtype) < size_of(value->dtype);
}

bool is_read_in_place(Val left, Expr rows) {
  return is_plain_load(left) && sym::affine_in(left->index, rows);
}

namespace {

/// Elements from one term to the next; 0 where nothing says so.
int64_t term_stride(const Stage& stage, Val value) {
  const std::optional<sym::Affine> terms =
      sym::affine_in(value->index, stage.reduce_axes.back().index);
  return terms ? terms->coefficient.constant().value_or(0) : 0;
}

/// What all but the left factor read and store at.
std::vector<Expr> indices_beside_left(const Stage& stage, const Product& product) {
  std::vector<Expr> indices;
  std::vector<Val> roots{stage.reductions[0].inputs[product.right]};
  for (const loop::Store& store : stage.after) {
    indices.push_back(store.index);
    roots.push_back(store.value);
  }
  for (Val part : loop::reachable(roots)) indices.push_back(part->index);
  return indices;
}

}  // namespace

bool lies_in_panels(const Stage& stage, Val value, const Axis& columns) {
  const std::optional<int64_t> width = columns.extent.constant();
  return is_plain_load(value) && !stage.reduce_axes.empty() && width && *width > 1 &&
         runs_along(value, columns.index, columns.index) && term_stride(stage, value) == *width;
}

namespace {

/// From one point of a loop around the last one to the next, as many packs as lie between.
bool outer_terms_follow(const Stage& stage, Val value, Expr width) {
  Expr stride = width;
  for (size_t i = stage.reduce_axes.size(); --i > 0;) {
    stride = stride * stage.reduce_axes[i].extent;
    const std::optional<sym::Affine> terms =
        sym::affine_in(value->index, stage.reduce_axes[i - 1].index);
    if (!terms || terms->coefficient != stride) return false;
  }
  return true;
}

}  // namespace

/// Term t of a column, `width` of them: at t / 2 * (2 * width) + t % 2, and 2 from column to
/// column.
bool lies_in_packed_panels(const Stage& stage, Val value, const Axis& columns) {
  const Val loaded = value->opcode == loop::Opcode::cast ? loop::before_cast(value) : value;
  const std::optional<int64_t> width = columns.extent.constant();
  if (!is_plain_load(loaded) || loaded->dtype != DType::bf16 || stage.reduce_axes.empty() ||
      width.value_or(0) < 2)
    return false;
  const std::optional<sym::Affine> along = sym::affine_in(loaded->index, columns.index);
  const auto from_first = [&](int64_t term) {
    const Expr symbol = stage.reduce_axes.back().index;
    return sym::substitute(loaded->index, {{symbol, term}}) -
           sym::substitute(loaded->index, {{symbol, 0}});
  };
  return along && along->coefficient == Expr(2) && outer_terms_follow(stage, loaded, *width) &&
         from_first(1) == Expr(1) && from_first(2) == Expr(2 * *width) &&
         from_first(3) == Expr(2 * *width + 1);
}

void merge_packs(Kernel& kernel, const Product& product) {
  Stage& stage = kernel.stages[0];
  std::vector<Axis>& terms = stage.reduce_axes;
  if (!loop::multiplies_bf16(stage) || terms.size() < 2 || terms.back().extent != Expr(2)) return;
  const Val left = stage.reductions[0].inputs[product.left];
  std::vector<Expr> indices;
  for (const Val part : loop::reachable(std::span(&left, 1))) indices.push_back(part->index);
  if (walks_as_one(indices, terms[terms.size() - 2], terms.back()))
    merge_with_next(kernel, terms, terms.size() - 2);
}

void merge_short_terms(Kernel& kernel) {
  Stage& stage = kernel.stages[0];
  std::vector<Axis>& terms = stage.reduce_axes;
  if (!loop::multiplies_bf16(stage) || fills_tiles(terms)) return;
  if (!fills_tiles({{terms.empty() ? Expr(0) : terms[0].index, length_of(stage)}})) return;
  while (terms.size() > 1) merge_with_next(kernel, terms, terms.size() - 2);
}

void merge_panels(Kernel& kernel, Product& product) {
  const Val right = kernel.stages[0].reductions[0].inputs[product.right];
  const Val left = kernel.stages[0].reductions[0].inputs[product.left];
  if (product.columns == 0) return;
  const Axis& columns = kernel.outer[product.columns];
  if (!lies_in_panels(kernel.stages[0], right, columns) &&
      !lies_in_packed_panels(kernel.stages[0], right, columns))
    return;
  const size_t panels = product.columns - 1;
  std::vector<Expr> stored;
  for (const loop::Store& store : kernel.stages[0].after) stored.push_back(store.index);
  if (panels == product.rows || walks(left, kernel.outer[panels].index) ||
      !walks_as_one(stored, kernel.outer[panels], kernel.outer[product.columns]))
    return;
  merge_with_next(kernel, kernel.outer, panels);
  product.columns = panels;
  if (product.rows > panels) --product.rows;
}

void merge_panels(Kernel& kernel, Stage& stage) {
  if (stage.axes.size() != 2 || stage.reductions.size() != 1 ||
      stage.reductions[0].combiner != loop::Combiner::dot)
    return;
  const std::vector<Val>& inputs = stage.reductions[0].inputs;
  for (size_t right : {0, 1}) {
    if (!lies_in_panels(stage, inputs[right], stage.axes[1])) continue;
    const std::vector<Expr> others = indices_beside_left(stage, {0, 0, right, 1 - right});
    if (walks_as_one(others, stage.axes[0], stage.axes[1]))
      return merge_with_next(kernel, stage.axes, 0);
  }
}

void merge_rows(Kernel& kernel, Product& product, const Target& target) {
  const Val left = kernel.stages[0].reductions[0].inputs[product.left];
  const Axis& longest = kernel.outer[product.rows];
  const bool is_short = sym::known_lt(longest.extent, target.tuning.products.smallest_block);
  if (is_read_in_place(left, longest.index) && !is_short) return;
  const auto is_row = [&](size_t axis) {
    const std::vector<Val>& inputs = kernel.stages[0].reductions[0].inputs;
    return axis != product.columns && walks(inputs[product.left], kernel.outer[axis].index) &&
           !walks(inputs[product.right], kernel.outer[axis].index);
  };
  for (size_t i = 0; i + 1 < kernel.outer.size();) {
    const std::vector<Expr> others = indices_beside_left(kernel.stages[0], product);
    const bool merges = is_row(i) && is_row(i + 1) && kernel.outer[i + 1].extent != Expr(0) &&
                        walks_as_one(others, kernel.outer[i], kernel.outer[i + 1]);
    if (!merges) {
      ++i;
      continue;
    }
    merge_with_next(kernel, kernel.outer, i);
    if (product.columns > i) --product.columns;
    if (product.rows > i) --product.rows;
  }
}

}  // namespace tandem::schedule
