// An expression as steps over registers, for what is evaluated at every point of a loop nest: there
// a walk over shared nodes, with a table of what it has seen, takes most of the time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "sym/sym.h"

namespace tandem::sym {

class Steps {
 public:
  explicit Steps(Expr e);
  /// Its symbols, in order of first occurrence.
  const std::vector<Expr>& symbols() const { return symbols_; }
  /// The value of symbols()[i] in the runs that follow.
  void set(size_t i, int64_t value) { registers_[i] = value; }
  /// As `evaluate`: nullopt on overflow and on a divisor <= 0.
  std::optional<int64_t> run();

 private:
  struct Step {
    Kind kind;
    size_t left;
    size_t right;
    size_t to;
  };

  size_t place(Expr e);
  size_t add_register(int64_t value);

  std::vector<Expr> symbols_;
  std::vector<Step> steps_;
  std::vector<int64_t> registers_;  // symbols first
  std::unordered_map<const Node*, size_t> places_;
  size_t whole_ = 0;  // the register of the expression
};

/// One step of a walk or a run; nullopt on overflow and on a divisor <= 0.
std::optional<int64_t> apply_operator(Kind kind, int64_t a, int64_t b);

}  // namespace tandem::sym
