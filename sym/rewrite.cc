// Walks over expressions: substitution, evaluation, symbols, affine parts. Problem: expressions
// share sub-expressions, so a plain walk can be exponential in the depth. Approach: sums and
// products are flat and are walked directly; results of shared nodes are kept per walk.
#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "base/check.h"
#include "sym/linear.h"
#include "sym/sym.h"

namespace tandem::sym {
namespace {

Expr combine(Kind kind, Expr a, Expr b) {
  switch (kind) {
    case Kind::add: return a + b;
    case Kind::mul: return a * b;
    case Kind::floor_div: return floor_div(a, b);
    case Kind::mod: return mod(a, b);
    case Kind::min: return min(a, b);
    case Kind::max: return max(a, b);
    case Kind::constant:
    case Kind::symbol: break;
  }
  TD_CHECK(false) << "not an operator";
  return a;
}

class Substituter {
 public:
  explicit Substituter(const Substitution& map) {
    for (const auto& [symbol, value] : map) {
      if (!symbol.is_constant()) done_.emplace(symbol.node(), value);
    }
  }

  Expr apply(Expr e) {
    if (e.is_constant()) return e;
    auto found = done_.find(e.node());
    if (found != done_.end()) return found->second;
    if (e.is_symbol()) return e;
    const Expr result = rebuild(e);
    done_.emplace(e.node(), result);
    return result;
  }

 private:
  Expr rebuild(Expr e) {
    std::vector<Expr> args;
    args.reserve(e.args().size());
    for (const Expr& arg : e.args()) args.push_back(apply(arg));
    if (std::ranges::equal(args, e.args())) return e;
    Expr result = args[0];
    for (size_t i = 1; i < args.size(); ++i) result = combine(e.kind(), result, args[i]);
    return result;
  }

  std::unordered_map<const Node*, Expr> done_;
};

using Value = std::optional<int64_t>;

Value apply_operator(Kind kind, int64_t a, int64_t b) {
  int64_t result = 0;
  switch (kind) {
    case Kind::add: return __builtin_add_overflow(a, b, &result) ? Value() : Value(result);
    case Kind::mul: return __builtin_mul_overflow(a, b, &result) ? Value() : Value(result);
    case Kind::floor_div:
    case Kind::mod:
      // min // -1 overflows; negative divisors do not occur in sizes and strides.
      if (b <= 0) return std::nullopt;
      return kind == Kind::floor_div ? floor_quotient(a, b) : a % b + (a % b < 0 ? b : 0);
    case Kind::min: return std::min(a, b);
    case Kind::max: return std::max(a, b);
    case Kind::constant:
    case Kind::symbol: break;
  }
  return std::nullopt;
}

class Evaluator {
 public:
  explicit Evaluator(const Assignment& values) : values_(values) {}

  Value value(Expr e) {
    if (e.is_constant()) return e.constant();
    if (e.is_symbol()) return values_(e.node());
    // Sharing enters through divisions and extrema only: sums and products are flat.
    if (e.kind() == Kind::add || e.kind() == Kind::mul) return fold(e);
    auto found = done_.find(e.node());
    if (found != done_.end()) return found->second;
    const Value result = fold(e);
    done_.emplace(e.node(), result);
    return result;
  }

 private:
  Value fold(Expr e) {
    Value result = value(e.args()[0]);
    for (const Expr& arg : e.args().subspan(1)) {
      if (!result.has_value()) return std::nullopt;
      const Value next = value(arg);
      if (!next.has_value()) return std::nullopt;
      result = apply_operator(e.kind(), *result, *next);
    }
    return result;
  }

  const Assignment& values_;
  std::unordered_map<const Node*, Value> done_;
};

/// Calls visit(symbol) in order of first occurrence; visit returns false to stop. False when
/// stopped.
template <class Visit>
bool walk_symbols(Expr e, std::unordered_set<const Node*>& seen, const Visit& visit) {
  if (e.is_constant() || !seen.insert(e.node()).second) return true;
  if (e.is_symbol()) return visit(e);
  for (const Expr& arg : e.args()) {
    if (!walk_symbols(arg, seen, visit)) return false;
  }
  return true;
}

}  // namespace

Expr substitute(Expr e, const Substitution& map) { return Substituter(map).apply(e); }

std::optional<int64_t> evaluate(Expr e, const Assignment& values) {
  return Evaluator(values).value(e);
}

void collect_symbols(Expr e, std::vector<Expr>& out) {
  std::unordered_set<const Node*> seen;
  for (const Expr& known : out) seen.insert(known.node());
  walk_symbols(e, seen, [&](Expr symbol) {
    out.push_back(symbol);
    return true;
  });
}

std::vector<Expr> free_symbols(Expr e) {
  std::vector<Expr> symbols;
  collect_symbols(e, symbols);
  return symbols;
}

bool depends_on(Expr e, Expr symbol) {
  if (e.is_constant() || e.is_symbol()) return e == symbol;
  std::unordered_set<const Node*> seen;
  return !walk_symbols(e, seen, [&](Expr found) { return found != symbol; });
}

std::optional<Affine> affine_in(Expr e, Expr symbol) {
  Linear coefficient;
  Linear rest;
  if (!decompose(Linear(e), symbol, coefficient, rest)) return std::nullopt;
  const Affine result{coefficient.to_expr(), rest.to_expr()};
  if (depends_on(result.coefficient, symbol) || depends_on(result.rest, symbol))
    return std::nullopt;
  return result;
}

}  // namespace tandem::sym
