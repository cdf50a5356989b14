// Problem: a chain of products owns blocks of rows, whose scores, weights and gradients are
// matrices of a block: of 8192 columns two megabytes each, five of them, which every stage fetches
// from behind the second-level cache, and what is summed over all rows is read and written whole
// for each block. Approach: where a row is made column by column (its maximum and sum are saved, or
// not asked for), pieces of columns pass one after the other, and all blocks of rows pass under
// each: scratch is as wide as a piece, and what blocks of rows are summed into stays in cache until
// its piece is done. Products that sum along the row add a piece to what the ones before have left.
// Where rows have a softmax and nothing is summed over them, a block of rows passes all pieces, and
// carries on what it has (running_softmax.cc).
#include "schedule/column_pieces.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "loop/stage.h"
#include "schedule/axes.h"
#include "schedule/product_terms.h"
#include "schedule/running_softmax.h"

namespace tandem::schedule {
namespace {

using loop::Axis;
using loop::Kernel;
using loop::Opcode;
using loop::Stage;
using loop::Val;
using sym::Expr;

class ColumnCutter {
 public:
  ColumnCutter(Kernel& kernel, Expr width) : kernel_(kernel), width_(width) {}

  /// Rows of scratch are written and read at the column in hand alone.
  bool fits() const {
    return std::ranges::all_of(kernel_.stages, [this](const Stage& stage) { return fits(stage); });
  }

  /// What is summed along a row is stored as it is, where nothing else of the kernel reads it.
  bool sums_alone() const {
    return std::ranges::all_of(kernel_.stages, [this](const Stage& stage) {
      return !reduces(stage, width_) || adds_up(stage);
    });
  }

  /// `adds`: sums along a row to what is there.
  ColumnPieces cut(int64_t piece, bool adds) {
    sym::Pool& symbols = kernel_.scalars->symbols();
    const Expr count = sym::ceil_div(width_, piece);
    const Axis pieces{symbols.index("x", count), count};
    const bool is_even = sym::known_divisible(width_, piece);
    const Expr length = is_even ? piece : sym::min(piece, width_ - pieces.index * piece);
    for (Stage& stage : kernel_.stages) {
      if (adds && reduces(stage, width_)) add_up(stage, pieces);
      cut(stage, pieces, piece, length);
    }
    for (loop::Buffer& buffer : kernel_.buffers)
      if (buffer.access == loop::Access::scratch && buffer.elements == width_)
        buffer.elements = piece;
    kernel_.outer.insert(kernel_.outer.end() - 1, pieces);
    return {pieces.index, length, piece, !adds};
  }

 private:
  bool is_row(int32_t slot) const {
    const loop::Buffer& buffer = kernel_.buffers[static_cast<size_t>(slot)];
    return buffer.access == loop::Access::scratch && buffer.elements == width_;
  }

  std::vector<const Axis*> axes_of(const Stage& stage) const {
    std::vector<const Axis*> found;
    for (const std::vector<Axis>* axes : {&stage.axes, &stage.reduce_axes})
      for (const Axis& axis : *axes)
        if (axis.extent == width_) found.push_back(&axis);
    return found;
  }

  bool fits(const Stage& stage) const {
    const std::vector<const Axis*> axes = axes_of(stage);
    if (axes.size() > 1 || (axes.empty() && stage.kind == loop::StageKind::gather)) return false;
    const auto is_in_hand = [&](int32_t slot, Expr index) {
      return !is_row(slot) || (!axes.empty() && index == axes[0]->index);
    };
    for (Val value : loop::scalars_of(stage))
      if (value->opcode == Opcode::load && !is_in_hand(value->slot, value->index)) return false;
    bool all = true;
    loop::for_each_store(
        stage, [&](const loop::Store& store) { all &= is_in_hand(store.buffer, store.index); });
    return all;
  }

  bool adds_up(const Stage& stage) const {
    const bool is_sum = stage.reductions.size() == 1 && stage.body.empty() &&
                        stage.after.size() == 1 &&
                        stage.reductions[0].combiner == loop::Combiner::dot;
    if (!is_sum) return false;
    const loop::Store& store = stage.after[0];
    return store.value->opcode == Opcode::local &&
           store.value->slot == stage.reductions[0].first_local &&
           kernel_.buffers[static_cast<size_t>(store.buffer)].access == loop::Access::write &&
           stores_to(store.buffer) == 1;
  }

  int64_t stores_to(int32_t slot) const {
    int64_t count = 0;
    for (const Stage& stage : kernel_.stages)
      loop::for_each_store(
          stage, [&](const loop::Store& store) { count += store.buffer == slot ? 1 : 0; });
    return count;
  }

  void cut(Stage& stage, const Axis& pieces, int64_t piece, Expr length) {
    const Expr first = pieces.index * piece;
    for (std::vector<Axis>* axes : {&stage.axes, &stage.reduce_axes})
      for (Axis& axis : *axes) {
        if (axis.extent != width_) continue;
        const Axis own{kernel_.scalars->symbols().index(axes == &stage.axes ? "y" : "r", piece),
                       length, axis.kind};
        loop::StageRewrite how;
        how.map_index = [&](Expr e) {
          return sym::substitute(e, {{axis.index, first + own.index}});
        };
        how.place = [&](int32_t& slot, Expr& index) {
          if (is_row(slot)) index = index - first;
        };
        loop::rewrite(*kernel_.scalars, *kernel_.scalars, stage, how);
        axis = own;
      }
  }

  void add_up(Stage& stage, const Axis& pieces) {
    loop::ScalarPool& pool = *kernel_.scalars;
    loop::Store& store = stage.after[0];
    const Val is_first = pool.binary(Opcode::eq, pool.index(pieces.index), pool.index(0));
    const Val before = pool.load(store.buffer, store.value->dtype, store.index);
    const Val sum = pool.binary(Opcode::add, before, store.value);
    store.value = pool.select(is_first, store.value, sum);
    kernel_.buffers[static_cast<size_t>(store.buffer)].access = loop::Access::read_write;
  }

  Kernel& kernel_;
  Expr width_;
};

/// Of the widest rows of scratch.
std::optional<int64_t> width_of(const Kernel& kernel) {
  int64_t width = 0;
  for (const loop::Buffer& buffer : kernel.buffers) {
    if (buffer.access != loop::Access::scratch) continue;
    if (!buffer.elements.constant()) return std::nullopt;
    width = std::max(width, *buffer.elements.constant());
  }
  return width;
}

constexpr int64_t kGranule = 64;  // of lanes

/// Pieces of one length where there are such, else about equal ones.
int64_t even_piece(int64_t width, int64_t most) {
  for (int64_t piece = most; 2 * piece >= most; piece -= kGranule)
    if (width % piece == 0) return piece;
  return ceil_div(ceil_div(width, ceil_div(width, most)), kGranule) * kGranule;
}

}  // namespace

// Five matrices of a block of rows are at hand together, and panels of its factors.
int64_t longest_piece(const Target& target) {
  const int64_t bytes = target.tuning.chains.most_rows * size_of(DType::f32);
  return std::max<int64_t>(target.l2_bytes / 8 / bytes / kGranule, 4) * kGranule;
}

bool are_cut(Expr columns, const Target& target) {
  return columns.is_constant() && *columns.constant() > 2 * longest_piece(target);
}

std::optional<ColumnPieces> take_pieces(Kernel& kernel, const Target& target) {
  const std::optional<int64_t> width = width_of(kernel);
  if (!width || !are_cut(*width, target)) return std::nullopt;
  const int64_t piece = even_piece(*width, longest_piece(target));
  // Instructions for packs of bf16 want sums whose length is known.
  if (*width % piece != 0 && sums_packs(kernel, target)) return std::nullopt;
  ColumnCutter cutter(kernel, *width);
  if (!cutter.fits()) return std::nullopt;
  const bool adds = gathers(kernel);
  if (adds ? !cutter.sums_alone() : !is_softmax_of_rows(kernel, *width)) return std::nullopt;
  return cutter.cut(piece, adds);
}

}  // namespace tandem::schedule
