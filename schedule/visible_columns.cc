// Problem: a causal mask hides half of the scores after they were computed. Approach: where every
// later load of a product's result stands in the first branch of a select that compares row and
// column, columns behind the last one that the block's last row sees are never asked for, and need
// not be computed. What the loads find there is thrown away by the select, so no bit changes. The
// same holds of the sums themselves where the product's own epilogue is a loop of its own.
#include <algorithm>
#include <unordered_set>

#include "schedule/axes.h"
#include "schedule/product_terms.h"
#include "schedule/visible_columns.h"

namespace tandem::schedule {
namespace {

using loop::Opcode;
using loop::Stage;
using loop::Val;
using sym::Expr;

/// high - low of a comparison that holds where low <= high.
std::optional<Expr> slack_of(Val condition) {
  if (condition->args.size() != 2) return std::nullopt;
  Val a = condition->args[0];
  Val b = condition->args[1];
  if (a->opcode != Opcode::index || b->opcode != Opcode::index) return std::nullopt;
  switch (condition->opcode) {
    case Opcode::ge: return a->index - b->index;
    case Opcode::gt: return a->index - b->index - 1;
    case Opcode::le: return b->index - a->index;
    case Opcode::lt: return b->index - a->index - 1;
    default: return std::nullopt;
  }
}

/// The results of one product in a block of rows, as later stages read them (`opcode` load, the
/// number of a buffer) or its own epilogue does (local).
class Reader {
 public:
  Reader(Opcode opcode, int32_t slot, Expr pitch, const loop::Axis& rows, Expr height)
      : opcode_(opcode), slot_(slot), pitch_(pitch), rows_(rows), height_(height) {}

  bool visit_epilogue(const Stage& stage) {
    std::vector<Val> stack;
    for (const loop::Store& store : stage.after) stack.push_back(store.value);
    return walk(stack, stage.axes[0].index);
  }

  /// False when some column may be read behind `end()`.
  bool visit(const Stage& stage) {
    std::optional<Expr> column;
    for (Val value : loop::scalars_of(stage)) {
      if (!is_result(value)) continue;
      Expr at = value->index - rows_.index * pitch_;
      if (!at.is_symbol() || (column && *column != at)) return false;
      column = at;
    }
    if (!column) return true;
    std::vector<Val> stack = loop::roots_of(stage);
    return walk(stack, *column);
  }

  std::optional<Expr> end() const { return end_; }

 private:
  bool is_result(Val value) const { return value->opcode == opcode_ && value->slot == slot_; }

  bool walk(std::vector<Val>& stack, Expr column) {
    std::unordered_set<Val> seen;
    while (!stack.empty()) {
      Val value = stack.back();
      stack.pop_back();
      if (!seen.insert(value).second) continue;
      if (is_result(value)) return false;
      bool hides = value->opcode == Opcode::select && hides_behind(value->args[0], column);
      if (hides)
        stack.push_back(value->args[2]);
      else
        stack.insert(stack.end(), value->args.begin(), value->args.end());
    }
    return true;
  }

  /// Whether the condition is false from some column on, the same one in all selects.
  bool hides_behind(Val condition, Expr column) {
    const std::optional<Expr> end = hidden_from(condition, column, rows_, height_);
    if (!end || (end_ && *end_ != *end)) return false;
    end_ = end;
    return true;
  }

  Opcode opcode_;
  int32_t slot_;
  Expr pitch_;
  const loop::Axis& rows_;
  Expr height_;
  std::optional<Expr> end_;
};

}  // namespace

std::optional<Expr> hidden_from(Val condition, Expr column, const loop::Axis& rows, Expr height) {
  const std::optional<Expr> slack = slack_of(condition);
  const std::optional<sym::Affine> in_column =
      slack ? sym::affine_in(*slack, column) : std::nullopt;
  if (!in_column || in_column->coefficient != Expr(-1)) return std::nullopt;
  const std::optional<sym::Affine> in_row = sym::affine_in(in_column->rest, rows.index);
  if (!in_row || !sym::known_le(0, in_row->coefficient)) return std::nullopt;
  return in_row->coefficient * (height - 1) + in_row->rest + 1;
}

Expr columns_before(Expr end, Expr width, int64_t fewest) {
  if (sym::known_le(0, end)) return sym::min(width, end);
  const Expr piece = kPieceOfTerms;
  const bool in_pieces = sym::known_divisible(end, piece) && sym::known_divisible(width, piece);
  const Expr unit = in_pieces ? piece : Expr(1);
  const Expr count = sym::max(fewest, sym::floor_div(end, unit));
  return sym::min(sym::floor_div(width, unit), count) * unit;
}

Expr pitch_of(const Stage& product, const loop::Axis& rows) {
  const std::optional<sym::Affine> affine = sym::affine_in(product.after[0].index, rows.index);
  return affine ? affine->coefficient : Expr(0);
}

std::optional<Expr> visible_columns(const loop::Kernel& kernel, size_t product,
                                    const loop::Axis& rows, Expr height) {
  const std::vector<loop::Store>& stores = kernel.stages[product].after;
  if (stores.size() != 1) return std::nullopt;
  int32_t slot = stores[0].buffer;
  if (kernel.buffers[static_cast<size_t>(slot)].access != loop::Access::scratch)
    return std::nullopt;
  Reader reader(Opcode::load, slot, pitch_of(kernel.stages[product], rows), rows, height);
  for (size_t i = product + 1; i < kernel.stages.size(); ++i)
    if (!reader.visit(kernel.stages[i])) return std::nullopt;
  return reader.end();
}

std::optional<Expr> visible_sums(const Stage& stage, const loop::Axis& rows, Expr height) {
  Reader reader(Opcode::local, stage.reductions[0].first_local, 0, rows, height);
  return reader.visit_epilogue(stage) ? reader.end() : std::nullopt;
}

}  // namespace tandem::schedule
