// What can be known of an expression without its values. Problem: bounds of indices with symbolic
// extents (i*B + j < A*B for i < A, j < B) are not intervals of numbers. Approach: a claim becomes
// "this polynomial is >= 0". Bounded atoms are eliminated one by one, latest made first, each
// replaced by the bound that makes the polynomial smallest (index: 0 or extent - 1; x // d: x/d
// from above or (x - d + 1)/d from below, after multiplying by d); this needs the sign of the
// atom's coefficient, which is a smaller claim of the same sort. What remains is judged by
// intervals, or by shifting sizes to start at 0 and looking for negative coefficients. A step
// budget bounds the search; running out means "not known".
#include <algorithm>

#include "sym/linear.h"
#include "sym/sym.h"

namespace tandem::sym {
namespace {

constexpr int kStepBudget = 96;

Linear negated(const Linear& p) {
  Linear result;
  result.add(p, -1);
  return result;
}

Linear plus(Linear a, int64_t constant) {
  a.add_constant(constant);
  return a;
}

class Prover {
 public:
  bool nonnegative(const Linear& p);

 private:
  /// p = coefficient * atom + rest, and the sign of the coefficient is known.
  struct Step {
    Expr atom;
    Linear coefficient;
    Linear rest;
    bool rising;  // coefficient >= 0: p is smallest where the atom is smallest
  };
  std::optional<bool> sign(const Linear& coefficient);
  bool eliminate(const Step& step);
  bool eliminate_symbol(const Step& step);
  bool eliminate_quotient(const Step& step);
  bool eliminate_remainder(const Step& step);
  bool eliminate_extremum(const Step& step);
  bool holds_with(const Step& step, const Linear& value);

  int steps_ = kStepBudget;
};

bool is_bounded(Expr atom) {
  return !atom.is_symbol() || atom.node()->extent.has_value() || atom.range().hi != Range::kMax;
}

/// Bounded factors, latest made first: an atom is made after everything that its bounds mention.
std::vector<Expr> bounded_atoms(const Linear& p) {
  std::vector<Expr> atoms;
  for (const Term& term : p.terms()) {
    for (const Expr& factor : factors_of(term.base)) {
      if (is_bounded(factor)) atoms.push_back(factor);
    }
  }
  std::sort(atoms.begin(), atoms.end(),
            [](const Expr& a, const Expr& b) { return a.node()->id > b.node()->id; });
  atoms.erase(std::unique(atoms.begin(), atoms.end()), atoms.end());
  return atoms;
}

/// Rewrites p in variables that start at 0 and looks for a negative coefficient.
bool nonnegative_when_shifted(const Linear& p) {
  Linear shifted;
  shifted.add_constant(p.constant());
  for (const Term& term : p.terms()) {
    Linear product{Expr(term.coefficient)};
    for (const Expr& factor : factors_of(term.base)) {
      const int64_t low = factor.range().lo;
      if (low == Range::kMin) return false;
      product = product.times(plus(Linear(factor), low));
    }
    shifted.add(product);
  }
  return !shifted.overflow() && shifted.constant() >= 0 &&
         std::ranges::all_of(shifted.terms(), [](const Term& t) { return t.coefficient > 0; });
}

bool Prover::nonnegative(const Linear& p) {
  if (p.overflow()) return false;
  if (p.range().lo >= 0) return true;
  if (p.is_constant() || --steps_ < 0) return false;
  for (const Expr& atom : bounded_atoms(p)) {
    Step step{atom, {}, {}, false};
    if (!decompose(p, atom, step.coefficient, step.rest)) continue;
    const std::optional<bool> rising = sign(step.coefficient);
    if (!rising.has_value()) continue;
    step.rising = *rising;
    return eliminate(step);
  }
  return nonnegative_when_shifted(p);
}

std::optional<bool> Prover::sign(const Linear& coefficient) {
  if (coefficient.is_constant()) return coefficient.constant() >= 0;
  if (nonnegative(coefficient)) return true;
  if (nonnegative(negated(coefficient))) return false;
  return std::nullopt;
}

bool Prover::holds_with(const Step& step, const Linear& value) {
  Linear p = step.coefficient.times(value);
  p.add(step.rest);
  return nonnegative(p);
}

bool Prover::eliminate(const Step& step) {
  switch (step.atom.kind()) {
    case Kind::symbol: return eliminate_symbol(step);
    case Kind::floor_div:
      if (eliminate_quotient(step)) return true;
      break;
    case Kind::mod: return eliminate_remainder(step);
    case Kind::min:
    case Kind::max:
      if (eliminate_extremum(step)) return true;
      break;
    case Kind::constant:
    case Kind::add:
    case Kind::mul: break;
  }
  const int64_t bound = step.rising ? step.atom.range().lo : step.atom.range().hi;
  if (bound == Range::kMin || bound == Range::kMax) return false;
  return holds_with(step, Linear(Expr(bound)));
}

bool Prover::eliminate_symbol(const Step& step) {
  const Range range = step.atom.range();
  if (step.rising) return range.lo != Range::kMin && holds_with(step, Linear(Expr(range.lo)));
  const std::optional<Expr>& extent = step.atom.node()->extent;
  if (extent.has_value() && holds_with(step, plus(Linear(*extent), -1))) return true;
  return range.hi != Range::kMax && holds_with(step, Linear(Expr(range.hi)));
}

// With q = z // d: z - d + 1 <= d*q <= z. As p is an integer, d*p >= -(d - 1) already gives p >= 0.
bool Prover::eliminate_quotient(const Step& step) {
  const Linear divisor(step.atom.args()[1]);
  Linear bound(step.atom.args()[0]);
  if (step.rising) bound.add(plus(divisor, -1), -1);
  Linear p = step.rest.times(divisor);
  p.add(step.coefficient.times(bound));
  p.add(plus(divisor, -1));
  return nonnegative(p);
}

bool Prover::eliminate_remainder(const Step& step) {
  if (step.rising) return holds_with(step, Linear());
  const Linear dividend(step.atom.args()[0]);
  if (holds_with(step, plus(Linear(step.atom.args()[1]), -1))) return true;
  return dividend.range().lo >= 0 && holds_with(step, dividend);
}

// Where the extremum lies on the safe side of each operand one operand that works is enough.
bool Prover::eliminate_extremum(const Step& step) {
  const bool one_is_enough = (step.atom.kind() == Kind::min) != step.rising;
  for (const Expr& arg : step.atom.args()) {
    if (holds_with(step, Linear(arg)) == one_is_enough) return one_is_enough;
  }
  return !one_is_enough;
}

Linear difference(Expr a, Expr b) {
  Linear result(a);
  result.add(Linear(b), -1);
  return result;
}

}  // namespace

bool proves_nonnegative(const Linear& p) { return Prover().nonnegative(p); }

bool proves_in_block(const Linear& e, const Linear& d) {
  const Range range = e.range();
  const Range limit = d.range();
  if (range.hi < 0) return false;
  if (range.lo >= 0 && range.hi != Range::kMax && range.hi < limit.lo) return true;
  if (limit.hi != Range::kMax && range.lo != Range::kMin && range.lo >= limit.hi) return false;
  Linear room = d;
  room.add(e, -1);
  room.add_constant(-1);
  return proves_nonnegative(e) && proves_nonnegative(room);
}

bool known_le(Expr a, Expr b) {
  if (a == b) return true;
  if (a.is_constant() && b.is_constant()) return *a.constant() <= *b.constant();
  if (a.range().hi <= b.range().lo) return true;
  if (a.range().lo > b.range().hi) return false;
  return proves_nonnegative(difference(b, a));
}

bool known_lt(Expr a, Expr b) {
  if (a == b) return false;
  if (a.is_constant() && b.is_constant()) return *a.constant() < *b.constant();
  if (a.range().hi < b.range().lo) return true;
  if (a.range().lo >= b.range().hi) return false;
  return proves_nonnegative(plus(difference(b, a), -1));
}

bool known_eq(Expr a, Expr b) {
  if (a == b) return true;
  const Range left = a.range();
  const Range right = b.range();
  if (left.hi < right.lo || right.hi < left.lo) return false;
  return a - b == Expr(0) || (known_le(a, b) && known_le(b, a));
}

bool known_ne(Expr a, Expr b) {
  if (a == b) return false;
  return known_lt(a, b) || known_lt(b, a);
}

bool known_divisible(Expr e, Expr d) {
  const std::optional<int64_t> constant = d.constant();
  if (constant.has_value() && *constant <= 0) return *constant < 0 && known_divisible(e, -d);
  return mod(e, d) == Expr(0);
}

}  // namespace tandem::sym
