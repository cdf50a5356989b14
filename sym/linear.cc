// Arithmetic on sums of products. Problem: indices are added and multiplied millions of times while
// loop nests are built, and equal polynomials must come out as the same node. Approach: terms are
// kept sorted by the id of their coefficient-free base, so a sum is a merge and like terms meet;
// products expand fully, up to a cap beyond which a factor stays an opaque sum.
#include "sym/linear.h"

#include <algorithm>
#include <array>

#include "base/check.h"
#include "base/diagnostic.h"

namespace tandem::sym {
namespace {

constexpr size_t kMaxExpandedTerms = 256;

int64_t saturate(__int128 value) {
  if (value >= Range::kMax) return Range::kMax;
  if (value <= -static_cast<__int128>(Range::kMax)) return Range::kMin;
  return static_cast<int64_t>(value);
}

bool by_id(const Expr& a, const Expr& b) { return a.node()->id < b.node()->id; }

Expr base_from_factors(std::vector<Expr> factors) {
  TD_CHECK(!factors.empty());
  if (factors.size() == 1) return factors[0];
  Pool* pool = factors[0].node()->pool;
  return pool->intern(Kind::mul, std::move(factors));
}

Term term_of(Expr e) {
  if (e.kind() != Kind::mul || !e.args()[0].is_constant()) return {e, 1, e};
  std::span<const Expr> factors = e.args().subspan(1);
  return {base_from_factors({factors.begin(), factors.end()}), *e.args()[0].constant(), e};
}

Expr expr_of(const Term& term) {
  if (term.whole.node() != nullptr) return term.whole;
  if (term.coefficient == 1) return term.base;
  std::span<const Expr> factors = factors_of(term.base);
  std::vector<Expr> args;
  args.reserve(factors.size() + 1);
  args.emplace_back(term.coefficient);
  args.insert(args.end(), factors.begin(), factors.end());
  return term.base.node()->pool->intern(Kind::mul, std::move(args));
}

Expr merged_base(const Expr& a, const Expr& b) {
  std::span<const Expr> left = factors_of(a);
  std::span<const Expr> right = factors_of(b);
  std::vector<Expr> factors(left.size() + right.size());
  std::merge(left.begin(), left.end(), right.begin(), right.end(), factors.begin(), by_id);
  return base_from_factors(std::move(factors));
}

Range range_of_quotient(Range a, Range b) {
  const int64_t low = std::max<int64_t>(b.lo, 1);
  const int64_t high = std::max<int64_t>(b.hi, low);
  Range result;
  if (a.lo != Range::kMin) result.lo = floor_quotient(a.lo, a.lo < 0 ? low : high);
  if (a.hi != Range::kMax) result.hi = floor_quotient(a.hi, a.hi < 0 ? high : low);
  return result;
}

Range range_of_remainder(Range a, Range b) {
  Range result{0, b.hi == Range::kMax ? Range::kMax : std::max<int64_t>(b.hi - 1, 0)};
  if (a.lo >= 0) result.hi = std::min(result.hi, a.hi);
  return result;
}

}  // namespace

int64_t floor_quotient(int64_t a, int64_t b) {
  const int64_t quotient = a / b;
  return quotient - (a % b != 0 && (a < 0) != (b < 0));
}

int64_t floor_remainder(int64_t a, int64_t b) {
  const int64_t rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

Range range_sum(Range a, Range b) {
  Range result;
  if (a.lo != Range::kMin && b.lo != Range::kMin) result.lo = saturate(__int128{a.lo} + b.lo);
  if (a.hi != Range::kMax && b.hi != Range::kMax) result.hi = saturate(__int128{a.hi} + b.hi);
  return result;
}

Range range_product(Range a, Range b) {
  const std::array<__int128, 4> corners = {__int128{a.lo} * b.lo, __int128{a.lo} * b.hi,
                                           __int128{a.hi} * b.lo, __int128{a.hi} * b.hi};
  return {saturate(*std::min_element(corners.begin(), corners.end())),
          saturate(*std::max_element(corners.begin(), corners.end()))};
}

Range range_of(Kind kind, std::span<const Expr> args) {
  Range result = args[0].range();
  if (kind == Kind::floor_div) return range_of_quotient(result, args[1].range());
  if (kind == Kind::mod) return range_of_remainder(result, args[1].range());
  for (const Expr& arg : args.subspan(1)) {
    const Range next = arg.range();
    if (kind == Kind::add) result = range_sum(result, next);
    if (kind == Kind::mul) result = range_product(result, next);
    if (kind == Kind::min) result = {std::min(result.lo, next.lo), std::min(result.hi, next.hi)};
    if (kind == Kind::max) result = {std::max(result.lo, next.lo), std::max(result.hi, next.hi)};
  }
  return result;
}

std::span<const Expr> factors_of(const Expr& base) {
  if (base.kind() == Kind::mul) return base.args();
  return {&base, 1};
}

Linear::Linear(Expr e) {
  if (e.is_constant()) {
    constant_ = *e.constant();
    return;
  }
  if (e.kind() != Kind::add) {
    terms_.push_back(term_of(e));
    return;
  }
  terms_.reserve(e.args().size());
  for (const Expr& arg : e.args()) {
    if (arg.is_constant()) {
      constant_ = *arg.constant();
    } else {
      terms_.push_back(term_of(arg));
    }
  }
}

Linear Linear::monomial(int64_t coefficient, std::vector<Expr> factors) {
  Linear result;
  if (factors.empty()) {
    result.constant_ = coefficient;
  } else if (coefficient != 0) {
    result.terms_.push_back({base_from_factors(std::move(factors)), coefficient, {}});
  }
  return result;
}

void Linear::add_scaled(const Term& term, int64_t scale, std::vector<Term>& out) {
  Term scaled = term;
  if (scale != 1) {
    overflow_ |= __builtin_mul_overflow(term.coefficient, scale, &scaled.coefficient);
    scaled.whole = Expr();
  }
  if (scaled.coefficient != 0) out.push_back(scaled);
}

void Linear::add(const Linear& other, int64_t scale) {
  std::vector<Term> merged;
  merged.reserve(terms_.size() + other.terms_.size());
  size_t left = 0;
  for (const Term& term : other.terms_) {
    const uint32_t id = term.base.node()->id;
    while (left < terms_.size() && terms_[left].base.node()->id < id) {
      merged.push_back(terms_[left++]);
    }
    if (left == terms_.size() || terms_[left].base != term.base) {
      add_scaled(term, scale, merged);
      continue;
    }
    int64_t product = 0;
    Term total{term.base, 0, {}};
    overflow_ |= __builtin_mul_overflow(term.coefficient, scale, &product);
    overflow_ |= __builtin_add_overflow(terms_[left++].coefficient, product, &total.coefficient);
    if (total.coefficient != 0) merged.push_back(total);
  }
  merged.insert(merged.end(), terms_.begin() + static_cast<std::ptrdiff_t>(left), terms_.end());
  terms_ = std::move(merged);
  int64_t value = 0;
  overflow_ |= other.overflow_ || __builtin_mul_overflow(other.constant_, scale, &value);
  add_constant(value);
}

void Linear::add_constant(int64_t value) {
  overflow_ |= __builtin_add_overflow(constant_, value, &constant_);
}

Linear Linear::times(const Linear& other) const {
  Linear result;
  if (is_constant() || other.is_constant()) {
    result.add(is_constant() ? other : *this, is_constant() ? constant_ : other.constant_);
    result.overflow_ |= overflow_ || other.overflow_;
    return result;
  }
  if (terms_.size() > 1 && other.terms_.size() > 1 &&
      terms_.size() * other.terms_.size() > kMaxExpandedTerms) {
    return Linear(Term{merged_base(to_expr(), other.to_expr()), 1, {}});
  }
  result.overflow_ = overflow_ || other.overflow_;
  for (const Term& a : terms_) {
    for (const Term& b : other.terms_) {
      Term product{merged_base(a.base, b.base), 0, {}};
      const bool wraps = __builtin_mul_overflow(a.coefficient, b.coefficient, &product.coefficient);
      result.add(Linear(product));
      result.overflow_ |= wraps;
    }
  }
  Linear left_terms = *this;
  left_terms.constant_ = 0;
  result.add(left_terms, other.constant_);
  result.add(other, constant_);
  return result;
}

Range Linear::range() const {
  Range result{saturate(constant_), saturate(constant_)};
  for (const Term& term : terms_) {
    const Range scale{term.coefficient, term.coefficient};
    result = range_sum(result, range_product(term.base.range(), scale));
  }
  return result;
}

int64_t Linear::coefficient_of(Expr base) const {
  for (const Term& term : terms_) {
    if (term.base == base) return term.coefficient;
  }
  return 0;
}

bool Linear::contains(const Linear& part) const {
  for (const Term& term : part.terms_) {
    if (coefficient_of(term.base) != term.coefficient) return false;
  }
  return true;
}

Expr Linear::to_expr() const {
  if (overflow_) throw UserError("[sym] size arithmetic leaves the range of 64-bit integers");
  if (terms_.empty()) return constant_;
  if (terms_.size() == 1 && constant_ == 0) return expr_of(terms_[0]);
  std::vector<Expr> args;
  args.reserve(terms_.size() + 1);
  for (const Term& term : terms_) args.push_back(expr_of(term));
  if (constant_ != 0) args.emplace_back(constant_);
  return terms_[0].base.node()->pool->intern(Kind::add, std::move(args));
}

bool decompose(const Linear& e, Expr atom, Linear& coefficient, Linear& rest) {
  rest.add_constant(e.constant());
  for (const Term& term : e.terms()) {
    std::span<const Expr> factors = factors_of(term.base);
    const std::ptrdiff_t power = std::count(factors.begin(), factors.end(), atom);
    if (power > 1) return false;
    if (power == 0) {
      rest.add(Linear(term));
      continue;
    }
    std::vector<Expr> others;
    std::copy_if(factors.begin(), factors.end(), std::back_inserter(others),
                 [&](const Expr& factor) { return factor != atom; });
    coefficient.add(Linear::monomial(term.coefficient, std::move(others)));
  }
  return true;
}

}  // namespace tandem::sym
