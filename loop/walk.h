// The order in which the scalars of a stage are written down: shared by printer, canonical form and
// interpreter, so that equal kernels meet their expressions in the same order everywhere.
#pragma once

#include <span>
#include <unordered_set>
#include <vector>

#include "loop/kernel.h"

namespace tandem::loop {

/// Constants and plain indices stand inside the line that uses them; everything else has a line.
inline bool is_inline(Val value) {
  return value->opcode == Opcode::constant || value->opcode == Opcode::index;
}

/// An indirect symbol of an index expression and the scalar behind it.
struct Indirect {
  sym::Expr symbol;
  Val value;
};

/// Those of an expression, in order of their making.
std::vector<Indirect> indirects_of(const ScalarPool& pool, sym::Expr index);

/// Extents of the axes behind the nest's first that may be 0 and are known before the nest begins.
/// Where one is not positive the nest has no points, and none of its loops need run: the outer ones
/// of f32[2**62, 0] would never end.
std::vector<sym::Expr> extents_ahead(std::span<const Axis> nest);

/// Collects lines, each scalar once: operands before users, first operand first.
class LineOrder {
 public:
  explicit LineOrder(const ScalarPool& pool) : pool_(&pool) {}

  /// Appends to `lines` the scalars that `root` needs and that were not visited yet, `root` last.
  void visit(Val root, std::vector<Val>& lines);
  /// The same for the scalars behind the indirect symbols of an index.
  void visit_index(sym::Expr index, std::vector<Val>& lines);
  /// Forgets what was visited: a new stage writes its lines again.
  void clear() { seen_.clear(); }

 private:
  struct Frame {
    Val value;
    std::vector<Val> operands;
    size_t next = 0;
  };
  std::vector<Val> operands_of(Val value) const;

  const ScalarPool* pool_;
  std::unordered_set<Val> seen_;
  std::vector<Frame> stack_;
};

}  // namespace tandem::loop
