// Mapping of a product of a few rows with a matrix whose memory runs along the terms:
//   C[i, j] = sum over k of A[i, k] B[j, k]
// A copy of B in panels, as products of many rows have it, takes as long as all the rest, and the
// library is slow for so few. Here each row of B is read once, as it lies, by lanes along its terms
// that stay in registers for all rows of A; what each pair of rows comes to is the sum of its
// lanes. These sums go to scratch, a block of columns a task, and the epilogue follows with lanes
// along the columns. Rows of A are read again for each row of B, from the first-level cache: where
// it does not hold them the sums are taken in parts.
#include <algorithm>
#include <bit>

#include "loop/matrix.h"
#include "schedule/axes.h"
#include "schedule/map.h"
#include "schedule/matrix_tile.h"
#include "schedule/product_axes.h"
#include "schedule/product_blocks.h"
#include "schedule/scratch_sums.h"

namespace tandem::schedule {
namespace {

using loop::Axis;
using loop::AxisKind;
using loop::Kernel;
using loop::Stage;
using loop::Val;
using sym::Expr;

Val load_of(Val factor) { return is_widened_load(factor) ? factor->args[0] : factor; }

bool lies_along(Val factor, Expr term, Expr own) {
  return is_plain_load(load_of(factor)) && runs_along(load_of(factor), term, own);
}

/// Registers of lanes along the terms: several, whose additions do not wait for one another, as far
/// as the sums of all rows leave room for what is loaded.
int registers_of_terms(int64_t rows, const Target& target) {
  const int64_t room = target.isa == Isa::avx512 ? 24 : 12;
  const unsigned each = static_cast<unsigned>(std::max<int64_t>(1, room / rows));
  return static_cast<int>(std::min(4U, std::bit_floor(each)));
}

/// Terms of a part, a whole number of steps: of all rows they take three quarters of the
/// first-level cache.
int64_t terms_of_part(int64_t rows, int64_t terms, int64_t bytes, int64_t step,
                      const Target& target) {
  const int64_t parts = ceil_div(rows * terms * bytes * 4, target.l1_bytes * 3);
  return std::min(terms, ceil_div(ceil_div(terms, parts), step) * step);
}

/// The part's number, in front of all axes of the stage.
void cut_terms(Kernel& kernel, Stage& stage, int64_t length) {
  sym::Pool& symbols = kernel.scalars->symbols();
  Axis& terms = stage.reduce_axes[0];
  const Expr count = sym::ceil_div(terms.extent, length);
  const Axis number{symbols.index("y", count), count};
  const Axis inner{symbols.index("r", length),
                   sym::known_divisible(terms.extent, length)
                       ? Expr(length)
                       : sym::min(length, terms.extent - number.index * length)};
  loop::substitute(kernel, stage, {{terms.index, number.index * length + inner.index}});
  terms = inner;
  stage.axes.insert(stage.axes.begin(), number);
}

/// Bytes from a piece of a row to the one that is read so much later.
int64_t rows_ahead(int64_t piece, int64_t row, const Target& target) {
  const int64_t ahead = target.tuning.loops.ahead;
  return piece == row ? ahead : ceil_div(ahead, piece) * row;
}

/// A matrix that no second-level cache holds is asked for ahead.
void ask_ahead(Kernel& kernel, Stage& stage, int32_t matrix, int64_t ahead) {
  kernel.buffers[static_cast<size_t>(matrix)].far = true;
  stage.reduce_axes[0].ahead = ahead;
  stage.reduce_axes[0].streams = true;
}

Misfit misfit_of(const Kernel& kernel, const Product& product, const Target& target) {
  const Stage& stage = kernel.stages[0];
  const loop::Reduction& sum = stage.reductions[0];
  const std::optional<int64_t> rows = kernel.outer[product.rows].extent.constant();
  if (kernel.outer.size() != 2 || sum.combiner != loop::Combiner::dot) return "it has a batch";
  if (!rows || *rows < 2 || *rows > target.tuning.products.most_dot_rows)
    return "it has one row, or many";
  if (!is_float(sum.inputs[0]->dtype) || stage.reduce_axes.size() != 1)
    return "its sums are not of floats over one axis";
  if (length_of(stage).constant().value_or(0) == 0) return "nobody knows its terms, or none are";
  const Expr term = stage.reduce_axes[0].index;
  for (const size_t factor : {product.left, product.right}) {
    const size_t own = factor == product.left ? product.rows : product.columns;
    if (!lies_along(sum.inputs[factor], term, kernel.outer[own].index))
      return "memory does not run along its terms";
  }
  return nullptr;
}

}  // namespace

Misfit map_dots(Kernel& kernel, const Target& target) {
  const std::optional<Product> product = find_product(kernel);
  if (!product) return "it is no sum of products over two axes of their own";
  if (Misfit misfit = misfit_of(kernel, *product, target)) return misfit;
  Stage& stage = kernel.stages[0];
  const std::vector<Val>& factors = stage.reductions[0].inputs;
  const int64_t height = *kernel.outer[product->rows].extent.constant();
  const int32_t matrix = load_of(factors[product->right])->slot;
  const bool is_far = is_streamed(kernel, *product, target);
  if (comes_in_bf16_words(stage, target)) sum_packs(kernel, stage);
  const int64_t width = target.tuning.products.dot_columns;
  Axis rows = take_block(kernel, product->rows, height, {&stage});
  const Axis columns = take_block(kernel, product->columns, width, {&stage});
  all_tasks(kernel.outer);
  Stage finish = split_epilogue(kernel, stage, {rows, columns, height, width}, target);
  rows.kind = AxisKind::unroll;
  rows.lanes = static_cast<int>(height);
  stage.axes = {columns, rows};
  const int64_t terms = *stage.reduce_axes[0].extent.constant();
  const int64_t bytes = size_of(loop::reachable(std::vector{factors[0]})[0]->dtype);
  const int lanes = target.lanes() * registers_of_terms(height, target);
  const int64_t part = terms_of_part(height, terms, bytes, lanes, target);
  std::vector<Stage> stages;
  if (part < terms) {
    stages.push_back(add_up_sums(kernel, stage, rows, columns, target));
    cut_terms(kernel, stage, part);
  }
  stage.reduce_axes[0].kind = AxisKind::vector;
  stage.reduce_axes[0].lanes = lanes;
  if (is_far) ask_ahead(kernel, stage, matrix, rows_ahead(part * bytes, terms * bytes, target));
  stages.push_back(std::move(stage));
  stages.push_back(std::move(finish));
  kernel.stages = std::move(stages);
  return nullptr;
}

}  // namespace tandem::schedule
