// Sums of products with integer coefficients: the form in which the simplifier and the proofs
// compute. Internal to sym/. A Linear applies no rule across terms except collecting equal ones, so
// the proofs can build differences and substitutions without ever calling back into the simplifier.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "sym/sym.h"

namespace tandem::sym {

/// Saturating interval arithmetic: kMin and kMax absorb.
Range range_sum(Range a, Range b);
Range range_product(Range a, Range b);
int64_t floor_quotient(int64_t a, int64_t b);
/// a - b * floor_quotient(a, b), whose product may leave the range where this does not.
int64_t floor_remainder(int64_t a, int64_t b);
/// Bounds of an expression of that kind over these operands.
Range range_of(Kind kind, std::span<const Expr> args);

/// coefficient * base; the base is a node without a constant factor.
struct Term {
  Expr base;
  int64_t coefficient = 1;
  Expr whole;  // the interned product where it is known, else the constant 0
};

/// Factors of a base: the base itself unless it is a product. The span refers into `base` or its
/// node.
std::span<const Expr> factors_of(const Expr& base);

class Linear {
 public:
  Linear() = default;
  explicit Linear(Expr e);
  explicit Linear(const Term& term) : terms_{term} {}
  /// coefficient * product of factors, which must be sorted by id.
  static Linear monomial(int64_t coefficient, std::vector<Expr> factors);

  void add(const Linear& other, int64_t scale = 1);
  void add_constant(int64_t value);
  Linear times(const Linear& other) const;

  /// Sorted by id of the base; coefficients are not 0.
  const std::vector<Term>& terms() const { return terms_; }
  int64_t constant() const { return constant_; }
  bool is_constant() const { return terms_.empty(); }
  bool is_zero() const { return terms_.empty() && constant_ == 0; }
  /// A single product without a constant beside it, or a constant.
  bool is_monomial() const { return terms_.empty() || (terms_.size() == 1 && constant_ == 0); }
  /// Some coefficient left 64 bits: the value means nothing.
  bool overflow() const { return overflow_; }
  Range range() const;
  /// Coefficient of a base; 0 when absent.
  int64_t coefficient_of(Expr base) const;
  /// True when every product of `part` occurs here with the same coefficient (constants not
  /// compared).
  bool contains(const Linear& part) const;

  /// The interned sum. Raises UserError on overflow.
  Expr to_expr() const;

 private:
  void add_scaled(const Term& term, int64_t scale, std::vector<Term>& out);

  std::vector<Term> terms_;
  int64_t constant_ = 0;
  bool overflow_ = false;
};

/// e = coefficient * atom + rest, the atom taken as opaque; false when a power of it occurs.
bool decompose(const Linear& e, Expr atom, Linear& coefficient, Linear& rest);

/// p >= 0 for every value of the symbols (proofs.cc).
bool proves_nonnegative(const Linear& p);
/// 0 <= e < d.
bool proves_in_block(const Linear& e, const Linear& d);

}  // namespace tandem::sym
