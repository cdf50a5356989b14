// Post-order over the scalars of a stage with an explicit stack: expressions of a fused kernel can
// be deeper than the machine's stack. Indirect symbols are followed in order of their making,
// which, other than the order of terms in an index, does not depend on what else a pool holds.
#include "loop/walk.h"

#include <algorithm>

namespace tandem::loop {

std::vector<Indirect> indirects_of(const ScalarPool& pool, sym::Expr index) {
  std::vector<Indirect> found;
  if (index.is_constant()) return found;
  for (sym::Expr symbol : sym::free_symbols(index))
    if (Val value = pool.indirect(symbol)) found.push_back({symbol, value});
  std::sort(found.begin(), found.end(), [](const Indirect& a, const Indirect& b) {
    return a.symbol.node()->id < b.symbol.node()->id;
  });
  return found;
}

std::vector<sym::Expr> extents_ahead(std::span<const Axis> nest) {
  std::vector<sym::Expr> own;
  for (const Axis& axis : nest) own.push_back(axis.index);
  std::vector<sym::Expr> found;
  for (size_t i = 1; i < nest.size(); ++i) {
    if (nest[i].extent.range().lo > 0) continue;
    const std::vector<sym::Expr> symbols = sym::free_symbols(nest[i].extent);
    if (std::ranges::find_first_of(symbols, own) == symbols.end()) found.push_back(nest[i].extent);
  }
  return found;
}

std::vector<Val> LineOrder::operands_of(Val value) const {
  if (value->opcode == Opcode::element) return value->args;
  bool indexed = value->opcode == Opcode::load || value->opcode == Opcode::index;
  size_t plain = indexed ? (value->masked ? 1 : 0) : value->args.size();
  if (plain + 1 >= value->args.size()) return value->args;
  std::vector<Val> operands(value->args.begin(), value->args.begin() + static_cast<long>(plain));
  for (const Indirect& indirect : indirects_of(*pool_, value->index))
    operands.push_back(indirect.value);
  return operands;
}

void LineOrder::visit(Val root, std::vector<Val>& lines) {
  if (!seen_.insert(root).second) return;
  stack_.push_back({root, operands_of(root)});
  while (!stack_.empty()) {
    Frame& top = stack_.back();
    if (top.next < top.operands.size()) {
      Val operand = top.operands[top.next++];
      if (seen_.insert(operand).second) stack_.push_back({operand, operands_of(operand)});
      continue;
    }
    if (!is_inline(top.value)) lines.push_back(top.value);
    stack_.pop_back();
  }
}

void LineOrder::visit_index(sym::Expr index, std::vector<Val>& lines) {
  for (const Indirect& indirect : indirects_of(*pool_, index)) visit(indirect.value, lines);
}

}  // namespace tandem::loop
