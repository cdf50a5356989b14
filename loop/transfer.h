// Copies index expressions from one symbol pool into another.
#pragma once

#include <unordered_map>

#include "sym/sym.h"

namespace tandem::loop {

/// Rebuilds expressions over bound symbols. Terms are visited in an order that depends on structure
/// and on the bound symbols only, so equal expressions of different pools arrive equal.
class Transfer {
 public:
  /// Says what a symbol becomes. Binding one again forgets the expressions seen so far.
  void bind(sym::Expr from, sym::Expr to);
  /// Every symbol of `e` must be bound.
  sym::Expr operator()(sym::Expr e);
  /// Whether something arrived simpler than it was: then expressions were met that the copy lacks.
  bool folded() const { return folded_; }

 private:
  /// Place in canonical order: fewest factors first (what prints first must be made first), then
  /// the one with the oldest target symbol, then by structural hash.
  struct Key {
    uint32_t height = 0;
    uint32_t oldest = 0;
    uint64_t hash = 0;
    auto operator<=>(const Key&) const = default;
  };
  Key key_of(sym::Expr e);
  Key key_of_node(sym::Expr e);
  sym::Expr rebuild(sym::Expr e);
  void sort_as_printed(std::vector<sym::Expr>& args);

  std::unordered_map<const sym::Node*, sym::Expr> bound_;
  std::unordered_map<const sym::Node*, sym::Expr> results_;
  std::unordered_map<const sym::Node*, Key> keys_;
  bool folded_ = false;
};

}  // namespace tandem::loop
