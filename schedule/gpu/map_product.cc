// Products: a block of 256 threads owns a tile of rows x columns. Step by step along the sum it
// copies a panel of each factor to shared memory, whatever their layout and whatever has to be
// computed for them, and every thread adds the products of its rows and columns to sums in its
// registers; they are 16 apart, so that neighbouring threads read and store neighbours. The steps
// are a loop of the whole block: a stage that runs at the first step clears the sums, one that runs
// at the last step stores what is made of them. Each sum is one chain of fused multiply-adds in
// the order of its terms, so bits do not depend on tiles.
#include <algorithm>
#include <bit>

#include "schedule/gpu/blocks.h"
#include "schedule/gpu/map.h"

namespace tandem::schedule::gpu {
namespace {

using loop::Axis;
using loop::AxisKind;
using loop::Kernel;
using loop::Space;
using loop::Stage;
using loop::Val;
using sym::Expr;

constexpr int kLanes = Tuning::Fixed::kProductLanes;

/// Rows and columns of one thread.
struct ThreadTile {
  int64_t rows = 1;
  int64_t columns = 1;
};

ThreadTile choose_tile(const Kernel& kernel, const Product& product, const Target& target) {
  const Tuning::Blocks& tuning = target.tuning.blocks;
  const Expr rows = kernel.outer[product.rows].extent;
  const Expr columns = kernel.outer[product.columns].extent;
  const int64_t most = std::min(tuning.product_side / kLanes, tuning.thread_side);
  const auto needed = [&](Expr extent) {
    return std::min<int64_t>(most, lanes_along(sym::ceil_div(extent, kLanes), most));
  };
  ThreadTile tile{needed(rows), needed(columns)};
  int64_t others = 1;
  for (size_t i = 0; i < kernel.outer.size(); ++i)
    if (i != product.rows && i != product.columns)
      others *= std::max<int64_t>(1, kernel.outer[i].extent.constant().value_or(1));
  const auto blocks = [&] {
    return others * ceil_div(rows.constant().value_or(INT32_MAX), tile.rows * kLanes) *
           ceil_div(columns.constant().value_or(INT32_MAX), tile.columns * kLanes);
  };
  while (blocks() < target.gpu.multiprocessors && tile.rows * tile.columns > 1)
    (tile.rows >= tile.columns ? tile.rows : tile.columns) /= 2;
  return tile;
}

/// One factor: the side of the tile that it walks, and where its panel lies.
struct Factor {
  Axis side;
  int64_t width = 0;  // of the tile along that side
  bool runs_along_sum = false;
  int64_t step = 0;  // between the panel's rows; each holds one term of every sum
  int32_t panel = 0;

  Expr place(Expr term, Expr at) const { return term * step + at; }
};

class ProductMapper {
 public:
  ProductMapper(Kernel& kernel, const Product& product, const Target& target)
      : kernel_(kernel),
        stage_(kernel.stages[0]),
        pool_(*kernel.scalars),
        tuning_(target.tuning.blocks),
        product_(product),
        tile_(choose_tile(kernel, product, target)),
        length_(length_of(stage_)),
        steps_(sym::max(sym::ceil_div(length_, tuning_.product_depth), 1)) {}

  std::vector<Stage> run() {
    const std::vector<Val> inputs = stage_.reductions[0].inputs;
    const Expr last = stage_.reduce_axes.empty() ? Expr(0) : stage_.reduce_axes.back().index;
    const bool left_along = runs_along(inputs[product_.left], last, row_axis());
    const bool right_along = runs_along(inputs[product_.right], last, column_axis());
    rows_.side = take_block(kernel_, product_.rows, tile_.rows * kLanes, {&stage_});
    columns_.side = take_block(kernel_, product_.columns, tile_.columns * kLanes, {&stage_});
    for (Axis& axis : kernel_.outer) axis.kind = AxisKind::block;
    if (steps_ != Expr(1)) {
      step_ = symbols().index("x", steps_);
      kernel_.outer.push_back({step_, steps_});
    }
    add_panel(rows_, tile_.rows, left_along);
    add_panel(columns_, tile_.columns, right_along);
    sums_ = add_scratch(kernel_, dtype(), tile_.rows * tile_.columns, Space::registers);
    std::vector<Stage> stages;
    stages.push_back(clear());
    stages.push_back(fill(rows_, stage_.reductions[0].inputs[product_.left]));
    stages.push_back(fill(columns_, stage_.reductions[0].inputs[product_.right]));
    stages.push_back(multiply());
    stages.push_back(finish());
    return stages;
  }

 private:
  sym::Pool& symbols() { return pool_.symbols(); }
  DType dtype() const { return stage_.reductions[0].inputs[0]->dtype; }
  Expr row_axis() const { return kernel_.outer[product_.rows].index; }
  Expr column_axis() const { return kernel_.outer[product_.columns].index; }

  Axis new_axis(std::string_view name, Expr extent) {
    return {symbols().index(name, extent), extent};
  }

  /// A panel that is filled along the sum has longer rows: four elements more spread a column over
  /// the banks, and keep rows aligned.
  void add_panel(Factor& factor, int64_t points, bool along) {
    factor.width = points * kLanes;
    factor.runs_along_sum = along;
    factor.step = factor.width + (along ? 4 : 0);
    factor.panel =
        add_scratch(kernel_, dtype(), tuning_.product_depth * factor.step, Space::shared);
  }

  /// Terms of this step.
  Axis terms() {
    const Expr depth = tuning_.product_depth;
    const bool whole = sym::known_divisible(length_, depth) && sym::known_le(depth, length_);
    return {symbols().index("y", depth), whole ? depth : sym::min(depth, length_ - step_ * depth)};
  }

  /// Where the reduce axes stand at a term of the whole sum.
  sym::Substitution at_term(Expr term) const {
    sym::Substitution map;
    for (size_t i = stage_.reduce_axes.size(); i-- > 0;) {
      const Axis& axis = stage_.reduce_axes[i];
      map.emplace_back(axis.index, i == 0 ? term : sym::mod(term, axis.extent));
      term = sym::floor_div(term, axis.extent);
    }
    return map;
  }

  /// Neighbouring threads along memory.
  Stage fill(const Factor& factor, Val value) {
    Axis at = {symbols().index("y", factor.side.extent), factor.side.extent};
    Axis term = terms();
    sym::Substitution map = at_term(step_ * tuning_.product_depth + term.index);
    map.emplace_back(factor.side.index, at.index);
    Stage stage;
    stage.body = {{factor.panel, factor.place(term.index, at.index),
                   loop::substituted(pool_, value, map), false}};
    const int inner =
        static_cast<int>(factor.runs_along_sum ? tuning_.product_depth : factor.width);
    const int outer =
        std::min(kLanes * kLanes / inner,
                 static_cast<int>(factor.runs_along_sum ? factor.width : tuning_.product_depth));
    spread(factor.runs_along_sum ? term : at, inner);
    spread(factor.runs_along_sum ? at : term, outer);
    stage.axes = factor.runs_along_sum ? std::vector{at, term} : std::vector{term, at};
    return stage;
  }

  /// The axes of every stage that works on sums: threads of rows and columns, then what stands
  /// between, then the rows and columns of one thread.
  struct SumAxes {
    Axis row_thread;
    Axis column_thread;
    Axis row;
    Axis column;
    Expr row_at() const { return row.index * kLanes + row_thread.index; }
    Expr column_at() const { return column.index * kLanes + column_thread.index; }
  };

  SumAxes sum_axes() {
    SumAxes axes{new_axis("y", kLanes), new_axis("y", kLanes), new_axis("y", tile_.rows),
                 new_axis("y", tile_.columns)};
    spread(axes.row_thread, kLanes);
    spread(axes.column_thread, kLanes);
    unroll(axes.row, tile_.rows);
    unroll(axes.column, tile_.columns);
    return axes;
  }

  static void unroll(Axis& axis, int64_t points) {
    axis.kind = AxisKind::unroll;
    axis.lanes = static_cast<int>(points);
  }

  static std::vector<Axis> nest(const SumAxes& axes, std::optional<Axis> between) {
    std::vector<Axis> all = {axes.row_thread, axes.column_thread};
    if (between) all.push_back(*between);
    all.push_back(axes.row);
    all.push_back(axes.column);
    return all;
  }

  Expr sum_at(const SumAxes& axes) const {
    return axes.row.index * tile_.columns + axes.column.index;
  }

  /// An axis of one point at one step and of none at the others.
  std::optional<Axis> only_if(Expr extent) {
    if (steps_ == Expr(1)) return std::nullopt;
    return Axis{symbols().index("y", 1), extent};
  }

  Stage clear() {
    const SumAxes axes = sum_axes();
    Stage stage;
    stage.axes = nest(axes, only_if(sym::max(1 - step_, 0)));
    stage.body = {{sums_, sum_at(axes), pool_.constant(dtype(), 0), false}};
    return stage;
  }

  Stage multiply() {
    const SumAxes axes = sum_axes();
    const Axis term = terms();
    const Val left = pool_.load(rows_.panel, dtype(), rows_.place(term.index, axes.row_at()));
    const Val right =
        pool_.load(columns_.panel, dtype(), columns_.place(term.index, axes.column_at()));
    const Val sum = pool_.load(sums_, dtype(), sum_at(axes));
    Stage stage;
    stage.axes = nest(axes, term);
    stage.body = {{sums_, sum_at(axes), pool_.fma(left, right, sum), false}};
    return stage;
  }

  Stage finish() {
    SumAxes axes = sum_axes();
    cut(axes.row, axes.row_thread, rows_);
    cut(axes.column, axes.column_thread, columns_);
    Stage stage;
    stage.body = std::move(stage_.after);
    const int32_t local = stage_.reductions[0].first_local;
    replace_locals(pool_, stage.body, {{local, pool_.load(sums_, dtype(), sum_at(axes))}});
    loop::substitute(kernel_, stage,
                     {{rows_.side.index, axes.row_at()}, {columns_.side.index, axes.column_at()}});
    stage.axes = nest(axes, only_if(sym::max(step_ - (steps_ - 2), 0)));
    return stage;
  }

  /// Points of a thread that lie inside of the block's part.
  static void cut(Axis& points, const Axis& thread, const Factor& factor) {
    if (factor.side.extent == Expr(factor.width)) return;
    points.extent = sym::ceil_div(factor.side.extent - thread.index, kLanes);
  }

  Kernel& kernel_;
  Stage stage_;
  loop::ScalarPool& pool_;
  const Tuning::Blocks& tuning_;
  Product product_;
  ThreadTile tile_;
  Expr length_;
  Expr steps_;
  Expr step_ = 0;  // number of the step along the sum
  Factor rows_;
  Factor columns_;
  int32_t sums_ = 0;
};

}  // namespace

Misfit map_product(Kernel& kernel, const Target& target) {
  const std::optional<Product> product = find_product(kernel);
  if (!product) return "it is no sum of products over two axes of their own";
  if (!owns_its_stores(kernel)) return "several of its sums are stored to one place";
  const int fewest = static_cast<int>(target.tuning.products.fewest_rows);
  if (!long_enough(kernel.outer[product->rows], fewest) ||
      !long_enough(kernel.outer[product->columns], fewest))
    return "it has few rows, or few columns";
  if (length_of(kernel.stages[0]) == Expr(0)) return "its sums have no terms";
  kernel.stages = ProductMapper(kernel, *product, target).run();
  kernel.locals = 0;
  finish_blocks(kernel, target);
  return nullptr;
}

}  // namespace tandem::schedule::gpu
