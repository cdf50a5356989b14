// A range follows from sums, products and quotients with numbers around one symbol, taken off from
// outside. A divisor is found by trying: equations with quotients by numbers repeat with the least
// common multiple of these, apart from a polynomial in the symbol; where some periods have the same
// solutions, so have all.
#include "sym/equations.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

#include "base/diagnostic.h"
#include "sym/linear.h"

namespace tandem::sym {
namespace {

constexpr int64_t kPeriods = 4;          // that are tried
constexpr int64_t kLongestPeriod = 256;  // a size that is a multiple of more is a size by itself

// --- ranges ---

int64_t ceil_quotient(int64_t a, int64_t b) {
  return floor_quotient(a, b) + (floor_remainder(a, b) == 0 ? 0 : 1);
}

/// An operation of one number on an expression.
struct Step {
  Expr inner;
  int64_t number;
};

/// Nullopt unless one operand is a number and there is one other.
std::optional<Step> step_of(Expr e) {
  if (e.args().size() != 2) return std::nullopt;
  const Expr a = e.args()[0];
  const Expr b = e.args()[1];
  if (b.is_constant() && !a.is_constant()) return Step{a, *b.constant()};
  const bool commutes = e.kind() == Kind::add || e.kind() == Kind::mul;
  if (commutes && a.is_constant() && !b.is_constant()) return Step{b, *a.constant()};
  return std::nullopt;
}

/// Where `kind` of x and the number is in `range`: where x is.
std::optional<Range> inverse(Kind kind, int64_t number, Range range) {
  if (number == INT64_MIN) return std::nullopt;  // its negative is no number
  if (kind == Kind::add) return range_sum(range, {-number, -number});
  if (number <= 0) return std::nullopt;
  if (kind == Kind::mul)
    return Range{ceil_quotient(range.lo, number), floor_quotient(range.hi, number)};
  if (kind != Kind::floor_div) return std::nullopt;
  return range_sum(range_product(range, {number, number}), {0, number - 1});
}

/// Where the symbol is, where `e` is `value`.
std::optional<Range> range_where(Expr e, int64_t value, Expr symbol) {
  Range range{value, value};
  while (!e.is_symbol()) {
    const std::optional<Step> step = step_of(e);
    if (!step) return std::nullopt;
    const std::optional<Range> inner = inverse(e.kind(), step->number, range);
    if (!inner) return std::nullopt;
    range = *inner;
    e = step->inner;
  }
  return e == symbol ? std::optional<Range>(range) : std::nullopt;
}

std::optional<Range> range_by(const Equation& equation, Expr symbol) {
  if (equation.right.constant())
    return range_where(equation.left, *equation.right.constant(), symbol);
  if (equation.left.constant())
    return range_where(equation.right, *equation.left.constant(), symbol);
  return std::nullopt;
}

// --- divisors ---

/// Collects what expressions divide by.
void collect_divisors(Expr e, std::vector<Expr>& divisors) {
  std::vector<Expr> waiting{e};
  while (!waiting.empty()) {
    const Expr next = waiting.back();
    waiting.pop_back();
    if (next.kind() == Kind::floor_div || next.kind() == Kind::mod)
      divisors.push_back(next.args()[1]);
    waiting.insert(waiting.end(), next.args().begin(), next.args().end());
  }
}

bool is_of(const Equation& equation, Expr symbol) {
  std::vector<Expr> symbols;
  collect_symbols(equation.left, symbols);
  collect_symbols(equation.right, symbols);
  return symbols == std::vector<Expr>{symbol};
}

/// Of an equation with quotients of one symbol: after how many values it repeats.
std::optional<int64_t> period_of(const Equation& equation, Expr symbol) {
  if (!is_of(equation, symbol)) return std::nullopt;
  std::vector<Expr> divisors;
  collect_divisors(equation.left, divisors);
  collect_divisors(equation.right, divisors);
  if (divisors.empty()) return std::nullopt;
  int64_t period = 1;
  for (const Expr& divisor : divisors) {
    const int64_t number = divisor.constant().value_or(kLongestPeriod + 1);
    if (number > kLongestPeriod) return std::nullopt;
    period = std::min(std::lcm(period, number), kLongestPeriod + 1);
  }
  return period;
}

bool holds(const Equation& equation, int64_t value) {
  const Assignment all = [value](const Node*) { return value; };
  const std::optional<int64_t> left = evaluate(equation.left, all);
  return left && left == evaluate(equation.right, all);
}

int64_t divisor_by(const std::vector<Equation>& equations, int64_t period) {
  std::set<int64_t> residues;
  int64_t solutions = 0;
  for (int64_t value = period; value < (kPeriods + 1) * period; ++value) {
    const auto holds_here = [value](const Equation& equation) { return holds(equation, value); };
    if (!std::ranges::all_of(equations, holds_here)) continue;
    residues.insert(value % period);
    ++solutions;
  }
  const bool repeats = solutions == kPeriods * static_cast<int64_t>(residues.size());
  if (residues.empty() || !repeats) return 1;
  int64_t divisor = period;
  for (const int64_t residue : residues) divisor = std::gcd(divisor, residue);
  return divisor;
}

int64_t divisor_of(Expr symbol, std::span<const Equation> equations) {
  std::vector<Equation> tests;
  int64_t period = 1;
  for (const Equation& equation : equations) {
    const std::optional<int64_t> own = period_of(equation, symbol);
    if (!own) continue;
    tests.push_back(equation);
    period = std::lcm(period, *own);
    if (period > kLongestPeriod) return 1;
  }
  return tests.empty() ? 1 : divisor_by(tests, period);
}

}  // namespace

std::optional<Equation> parse_equation(Pool& pool, std::string_view text, std::string* error) {
  const size_t at = text.find("==");
  if (at == std::string_view::npos) {
    *error = "no `==` in `" + std::string(text) + "`";
    return std::nullopt;
  }
  const std::optional<Expr> left = parse(pool, text.substr(0, at), error);
  const std::optional<Expr> right = left ? parse(pool, text.substr(at + 2), error) : std::nullopt;
  return right ? std::optional<Equation>({*left, *right}) : std::nullopt;
}

SizeFacts solve(Expr symbol, std::span<const Equation> equations) {
  SizeFacts facts{symbol.range(), divisor_of(symbol, equations)};
  for (const Equation& equation : equations) {
    const std::optional<Range> range = range_by(equation, symbol);
    if (!range) continue;
    facts.range = {std::max(facts.range.lo, range->lo), std::min(facts.range.hi, range->hi)};
  }
  if (facts.range.lo > facts.range.hi)
    throw UserError("no value of " + symbol.name() + " satisfies the equations between sizes");
  return facts;
}

}  // namespace tandem::sym
