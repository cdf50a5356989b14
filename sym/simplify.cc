// Canonical forms of the operators. Problem: linearising and delinearising indices (i*B + j, then
// // B and % B) must cancel whatever way the loops were split, also when B is a symbol. Approach:
// sums of products are expanded (linear.h). A division takes out exactly the part that the divisor
// divides and proves that the rest lies in one block [0, d), or else divides out a common factor g:
// (g*y + r) // (g*d) = y // d and (g*y + r) % (g*d) = g*(y % d) + r for 0 <= r < g. Sums put
// quotient and remainder of one division together again.
#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "sym/linear.h"
#include "sym/sym.h"

namespace tandem::sym {
namespace {

constexpr int kMaxRounds = 16;

Linear scaled(const Linear& a, int64_t scale) {
  Linear result;
  result.add(a, scale);
  return result;
}

Linear sum(Linear a, const Linear& b, int64_t scale = 1) {
  a.add(b, scale);
  return a;
}

/// Removes each factor of `part` once from `whole` (both sorted by id); false when one is missing.
bool remove_factors(std::vector<Expr>& whole, std::span<const Expr> part) {
  for (const Expr& factor : part) {
    auto found = std::find(whole.begin(), whole.end(), factor);
    if (found == whole.end()) return false;
    whole.erase(found);
  }
  return true;
}

/// A divisor that is a single product: coefficient and sorted factors.
struct Monomial {
  int64_t coefficient = 1;
  std::vector<Expr> factors;

  Linear linear() const { return Linear::monomial(coefficient, factors); }
  bool operator==(const Monomial&) const = default;
};

Monomial monomial_of(const Linear& e) {
  if (e.is_constant()) return {e.constant(), {}};
  std::span<const Expr> factors = factors_of(e.terms()[0].base);
  return {e.terms()[0].coefficient, {factors.begin(), factors.end()}};
}

std::optional<Linear> divide_exactly(const Term& term, const Monomial& d) {
  const bool leaves_range = term.coefficient == INT64_MIN && d.coefficient == -1;
  if (leaves_range || term.coefficient % d.coefficient != 0) return std::nullopt;
  std::span<const Expr> factors = factors_of(term.base);
  std::vector<Expr> left(factors.begin(), factors.end());
  if (!remove_factors(left, d.factors)) return std::nullopt;
  return Linear::monomial(term.coefficient / d.coefficient, std::move(left));
}

/// e = quotient * d + rest.
struct Split {
  Linear quotient;
  Linear rest;
};

Split split_by_monomial(const Linear& e, const Monomial& d) {
  Split split;
  for (const Term& term : e.terms()) {
    if (std::optional<Linear> exact = divide_exactly(term, d)) {
      split.quotient.add(*exact);
    } else {
      split.rest.add(Linear(term));
    }
  }
  const int64_t whole = d.factors.empty() ? floor_quotient(e.constant(), d.coefficient) : 0;
  split.quotient.add_constant(whole);
  split.rest.add_constant(d.factors.empty() ? floor_remainder(e.constant(), d.coefficient)
                                            : e.constant());
  return split;
}

size_t size_of_sum(const Linear& e) { return e.terms().size() + (e.constant() != 0); }

const Term& leading_term(const Linear& d) {
  return *std::max_element(d.terms().begin(), d.terms().end(), [](const Term& a, const Term& b) {
    return factors_of(a.base).size() < factors_of(b.base).size();
  });
}

/// One step of long division; false when no term is divisible by the leading term or `may_grow` is
/// unset and the rest would not get shorter.
bool divide_step(Split& split, const Linear& d, const Monomial& lead, bool may_grow) {
  for (const Term& term : split.rest.terms()) {
    const std::optional<Linear> step = divide_exactly(term, lead);
    if (!step.has_value()) continue;
    Linear next = sum(split.rest, step->times(d), -1);
    if (!may_grow && size_of_sum(next) >= size_of_sum(split.rest)) continue;
    split.quotient.add(*step);
    split.rest = std::move(next);
    return true;
  }
  return false;
}

// An exact quotient is taken however it is reached. Otherwise steps must make the rest shorter: a
// longer rest is less likely to be provably within [0, d).
Split split_by_sum(const Linear& e, const Linear& d) {
  const Monomial lead = monomial_of(Linear(leading_term(d)));
  Split exact{{}, e};
  for (int i = 0; i < kMaxRounds && divide_step(exact, d, lead, true); ++i) {
    if (exact.rest.is_zero()) return exact;
  }
  Split split{{}, e};
  while (divide_step(split, d, lead, false)) {
  }
  return split;
}

Split split_by(const Linear& e, const Linear& d) {
  return d.is_monomial() ? split_by_monomial(e, monomial_of(d)) : split_by_sum(e, d);
}

/// The quotient when every value of e lies in one block [q*d, (q + 1)*d).
std::optional<int64_t> quotient_of_block(const Linear& e, const Linear& d) {
  const Range range = e.range();
  if (d.is_constant() && range.lo != Range::kMin && range.hi != Range::kMax) {
    const int64_t first = floor_quotient(range.lo, d.constant());
    if (first == floor_quotient(range.hi, d.constant())) return first;
  }
  if (proves_in_block(e, d)) return 0;
  if (range.hi < 0 && proves_in_block(sum(e, d), d)) return -1;
  return std::nullopt;
}

/// e = factor * inner + outer with 0 <= outer < factor, and d = factor * divisor.
struct Common {
  Linear factor;
  Linear inner;
  Linear outer;
  Linear divisor;
};

/// A common factor, the greatest but where the lowest number has no positive counterpart.
int64_t common_divisor(int64_t a, int64_t b) {
  return a == INT64_MIN || b == INT64_MIN ? 1 : std::gcd(a, b);
}

Monomial common_monomial(const Term& term, const Monomial& d) {
  Monomial common{common_divisor(term.coefficient, d.coefficient), {}};
  std::vector<Expr> left = d.factors;
  for (const Expr& factor : factors_of(term.base)) {
    if (remove_factors(left, std::span<const Expr>(&factor, 1))) common.factors.push_back(factor);
  }
  return common;
}

/// Common factors of d and single terms of e, largest first.
std::vector<Monomial> common_candidates(const Linear& e, const Monomial& d) {
  std::vector<Monomial> candidates;
  for (const Term& term : e.terms()) {
    Monomial common = common_monomial(term, d);
    const bool trivial = common.coefficient == 1 && common.factors.empty();
    if (trivial || std::ranges::find(candidates, common) != candidates.end()) continue;
    candidates.push_back(std::move(common));
  }
  std::ranges::stable_sort(candidates, [](const Monomial& a, const Monomial& b) {
    if (a.factors.size() != b.factors.size()) return a.factors.size() > b.factors.size();
    return a.coefficient > b.coefficient;
  });
  return candidates;
}

/// A size's symbol without a range may be negative, and so may what it leaves of a divisor.
bool may_divide(Expr b) { return !b.is_constant() || *b.constant() > 0; }

std::optional<Common> common_factor(const Linear& e, const Linear& d) {
  if (!d.is_monomial()) return std::nullopt;
  const Monomial whole = monomial_of(d);
  for (const Monomial& g : common_candidates(e, whole)) {
    const Linear factor = g.linear();
    Split split = split_by_monomial(e, g);
    if (!split.rest.is_zero() && !proves_in_block(split.rest, factor)) continue;
    Split divisor = split_by_monomial(d, g);
    if (!may_divide(divisor.quotient.to_expr())) continue;
    return Common{factor, std::move(split.quotient), std::move(split.rest),
                  std::move(divisor.quotient)};
  }
  return std::nullopt;
}

Expr sum_with_rules(Linear e);

Pool* pool_of(Expr a, Expr b) { return a.is_constant() ? b.node()->pool : a.node()->pool; }

/// (a // b + c) // d = (a + b c) // (b d) for constants b, c: sizes of one convolution after
/// another.
std::optional<Expr> quotient_plus_constant(Expr dividend, Expr divisor) {
  const std::span<const Expr> terms = dividend.args();
  if (dividend.kind() != Kind::add || terms.size() != 2 || !terms[1].constant())
    return std::nullopt;
  if (terms[0].kind() != Kind::floor_div || !terms[0].args()[1].constant()) return std::nullopt;
  const Expr inner = terms[0].args()[1];
  return floor_div(terms[0].args()[0] + inner * terms[1], inner * divisor);
}

/// rest // d where nothing can be taken out of rest.
Expr quotient_of_rest(const Linear& rest, const Linear& d) {
  if (rest.is_zero()) return 0;
  if (std::optional<int64_t> block = quotient_of_block(rest, d)) return *block;
  if (std::optional<Common> common = common_factor(rest, d)) {
    return floor_div(sum_with_rules(common->inner), common->divisor.to_expr());
  }
  const Expr dividend = sum_with_rules(rest);
  const Expr divisor = d.to_expr();
  if (dividend.kind() == Kind::floor_div) {
    return floor_div(dividend.args()[0], dividend.args()[1] * divisor);
  }
  if (std::optional<Expr> merged = quotient_plus_constant(dividend, divisor)) return *merged;
  if (dividend.kind() == Kind::mod) {
    const Split inner = split_by(Linear(dividend.args()[1]), d);
    if (inner.rest.is_zero() && may_divide(inner.quotient.to_expr())) {
      return mod(floor_div(dividend.args()[0], divisor), inner.quotient.to_expr());
    }
  }
  return pool_of(dividend, divisor)->intern(Kind::floor_div, {dividend, divisor});
}

/// c*(x % m) is congruent to c*x modulo d when d divides c*m. True when such a term was replaced.
bool drop_inner_mod(Linear& e, const Linear& d) {
  for (const Term& term : e.terms()) {
    for (const Expr& factor : factors_of(term.base)) {
      Linear others;
      Linear none;
      if (factor.kind() != Kind::mod || !decompose(Linear(term), factor, others, none)) continue;
      if (!split_by(others.times(Linear(factor.args()[1])), d).rest.is_zero()) continue;
      Linear replaced = sum(e, Linear(term), -1);
      replaced.add(others.times(Linear(factor.args()[0])));
      e = std::move(replaced);
      return true;
    }
  }
  return false;
}

Expr remainder_of_rest(const Linear& rest, const Linear& d);

Expr remainder(const Linear& e, const Linear& d) {
  return remainder_of_rest(split_by(e, d).rest, d);
}

Expr remainder_of_rest(const Linear& rest, const Linear& d) {
  if (rest.is_zero()) return 0;
  if (std::optional<int64_t> block = quotient_of_block(rest, d)) {
    return sum_with_rules(sum(rest, d, -*block));
  }
  Linear simpler = rest;
  if (drop_inner_mod(simpler, d)) return remainder(simpler, d);
  if (std::optional<Common> common = common_factor(rest, d)) {
    const Expr inner = mod(sum_with_rules(common->inner), common->divisor.to_expr());
    return sum_with_rules(sum(common->factor.times(Linear(inner)), common->outer));
  }
  const Expr dividend = sum_with_rules(rest);
  const Expr divisor = d.to_expr();
  return pool_of(dividend, divisor)->intern(Kind::mod, {dividend, divisor});
}

/// e with the term and `part` replaced by `value`, if all of `part` is there.
bool replace(Linear& e, const Linear& term, const Linear& part, const Linear& value) {
  if (part.is_constant() || !e.contains(part)) return false;
  e = sum(sum(sum(std::move(e), term, -1), part, -1), value);
  return true;
}

// c*(y % d) + c*d*(y // d) = c*y, and c*a*((x // a) % d) + c*(x % a) = c*(x % (a*d)).
bool join_remainder(Linear& e, const Linear& term, const Linear& c, Expr remainder_node) {
  const Expr y = remainder_node.args()[0];
  const Expr d = remainder_node.args()[1];
  const Linear quotient(floor_div(y, d));
  const Linear dividend(y);
  if (replace(e, term, c.times(Linear(d)).times(quotient), c.times(dividend))) return true;
  if (y.kind() != Kind::floor_div) return false;
  const Linear a(y.args()[1]);
  const Split outer = split_by(c, a);
  if (!outer.rest.is_zero()) return false;
  const Linear low(mod(y.args()[0], y.args()[1]));
  if (!e.contains(outer.quotient.times(low))) return false;
  const Linear joined(mod(y.args()[0], y.args()[1] * d));
  return replace(e, term, outer.quotient.times(low), outer.quotient.times(joined));
}

// c*d*(z // d) + c*(z % d) = c*z where the remainder was made from another dividend than z, and
// c*d*(z // d) - c*z = -c*(z % d).
bool join_quotient(Linear& e, const Linear& term, const Linear& factor, Expr quotient_node) {
  const Expr z = quotient_node.args()[0];
  const Split c = split_by(factor, Linear(quotient_node.args()[1]));
  if (!c.rest.is_zero()) return false;
  const Linear low(mod(z, quotient_node.args()[1]));
  const Linear dividend = c.quotient.times(Linear(z));
  if (replace(e, term, c.quotient.times(low), dividend)) return true;
  const Linear negative = scaled(dividend, -1);
  return replace(e, term, negative, scaled(c.quotient.times(low), -1));
}

bool join_one(Linear& e) {
  for (const Term& term : e.terms()) {
    for (const Expr& factor : factors_of(term.base)) {
      const bool is_mod = factor.kind() == Kind::mod;
      if (!is_mod && factor.kind() != Kind::floor_div) continue;
      const Linear whole(term);
      Linear others;
      Linear none;
      if (!decompose(whole, factor, others, none)) continue;
      if (is_mod && join_remainder(e, whole, others, factor)) return true;
      if (!is_mod && join_quotient(e, whole, others, factor)) return true;
    }
  }
  return false;
}

Expr sum_with_rules(Linear e) {
  for (int round = 0; round < kMaxRounds && e.terms().size() > 1; ++round) {
    if (!join_one(e)) break;
  }
  return e.to_expr();
}

void check_divisor(Expr b) { TD_CHECK(may_divide(b)) << "division by " << *b.constant(); }

Expr divide(Expr a, Expr b) {
  const Linear divisor(b);
  const Split split = split_by(Linear(a), divisor);
  return sum_with_rules(sum(split.quotient, Linear(quotient_of_rest(split.rest, divisor))));
}

/// Adds x to the operands of a min or max unless another one makes it superfluous.
void add_operand(Kind kind, Expr x, std::vector<Expr>& operands) {
  const auto wins = [kind](Expr a, Expr b) {
    return kind == Kind::min ? known_le(a, b) : known_le(b, a);
  };
  if (std::ranges::any_of(operands, [&](Expr other) { return wins(other, x); })) return;
  std::erase_if(operands, [&](Expr other) { return wins(x, other); });
  operands.push_back(x);
}

bool before(Expr a, Expr b) {
  if (a.is_constant() || b.is_constant()) return !a.is_constant();
  return a.node()->id < b.node()->id;
}

Expr extremum(Kind kind, Expr a, Expr b) {
  std::vector<Expr> operands;
  for (const Expr& side : {a, b}) {
    if (side.kind() != kind) {
      add_operand(kind, side, operands);
      continue;
    }
    for (const Expr& operand : side.args()) add_operand(kind, operand, operands);
  }
  if (operands.size() == 1) return operands[0];
  std::ranges::sort(operands, before);
  return pool_of(operands[0], operands[0])->intern(kind, std::move(operands));
}

}  // namespace

Expr operator+(Expr a, Expr b) {
  if (a == Expr(0)) return b;
  if (b == Expr(0)) return a;
  return sum_with_rules(sum(Linear(a), Linear(b)));
}

Expr operator-(Expr a, Expr b) {
  if (b == Expr(0)) return a;
  if (a == b) return 0;
  return sum_with_rules(sum(Linear(a), Linear(b), -1));
}

Expr operator-(Expr a) { return scaled(Linear(a), -1).to_expr(); }

Expr operator*(Expr a, Expr b) {
  if (a == Expr(1)) return b;
  if (b == Expr(1)) return a;
  if (a == Expr(0) || b == Expr(0)) return 0;
  return sum_with_rules(Linear(a).times(Linear(b)));
}

Expr product(std::span<const Expr> factors) {
  Expr result = 1;
  for (const Expr& factor : factors) result = result * factor;
  return result;
}

Expr floor_div(Expr a, Expr b) {
  check_divisor(b);
  if (b == Expr(1) || a == Expr(0)) return a;
  if (a == b) return 1;
  if (a.is_constant() && b.is_constant()) return floor_quotient(*a.constant(), *b.constant());
  Pool* pool = pool_of(a, b);
  if (std::optional<Expr> known = pool->recall(Kind::floor_div, a, b)) return *known;
  const Expr result = divide(a, b);
  pool->remember(Kind::floor_div, a, b, result);
  return result;
}

Expr mod(Expr a, Expr b) {
  check_divisor(b);
  if (b == Expr(1) || a == Expr(0) || a == b) return 0;
  if (a.is_constant() && b.is_constant()) {
    return floor_remainder(*a.constant(), *b.constant());
  }
  Pool* pool = pool_of(a, b);
  if (std::optional<Expr> known = pool->recall(Kind::mod, a, b)) return *known;
  const Expr result = remainder(Linear(a), Linear(b));
  pool->remember(Kind::mod, a, b, result);
  return result;
}

Expr ceil_div(Expr a, Expr b) {
  check_divisor(b);
  return known_divisible(a, b) ? floor_div(a, b) : floor_div(a + b - 1, b);
}

Expr min(Expr a, Expr b) { return extremum(Kind::min, a, b); }

Expr max(Expr a, Expr b) { return extremum(Kind::max, a, b); }

}  // namespace tandem::sym
