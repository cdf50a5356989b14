// Walks over expressions: substitution, evaluation, symbols, affine parts. Problem: expressions
// share sub-expressions, so a plain walk can be exponential in the depth. Approach: sums and
// products are flat and are walked directly; results of shared nodes are kept per walk.
#include <algorithm>
#include <span>
#include <unordered_map>
#include <unordered_set>

#include "base/check.h"
#include "sym/linear.h"
#include "sym/steps.h"
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

/// What became of nodes; mostly they are few.
class Results {
 public:
  std::optional<Expr> find(const Node* node) const {
    for (const auto& [known, result] : few_)
      if (known == node) return result;
    const auto found = many_.find(node);
    return found == many_.end() ? std::nullopt : std::optional(found->second);
  }
  /// The first result of a node stays.
  void add(const Node* node, Expr result) {
    if (few_.size() < kFew)
      few_.emplace_back(node, result);
    else
      many_.emplace(node, result);
  }
  void reserve(size_t count) { few_.reserve(std::min(count, kFew)); }

 private:
  static constexpr size_t kFew = 16;  // which it is faster to look through
  std::vector<std::pair<const Node*, Expr>> few_;
  std::unordered_map<const Node*, Expr> many_;  // behind the first ones
};

class Substituter {
 public:
  explicit Substituter(const Substitution& map) {
    done_.reserve(map.size() + 4);
    for (const auto& [symbol, value] : map) {
      if (symbol.is_constant()) continue;
      done_.add(symbol.node(), value);
      replaced_ |= symbol.node()->symbols;
    }
  }

  Expr apply(Expr e) {
    if (e.is_constant() || (e.node()->symbols & replaced_) == 0) return e;
    if (const std::optional<Expr> known = done_.find(e.node())) return *known;
    if (e.is_symbol()) return e;
    const Expr result = rebuild(e);
    done_.add(e.node(), result);
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

  Results done_;
  uint64_t replaced_ = 0;  // as Node::symbols
};

using Value = std::optional<int64_t>;

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

/// Symbols in order of first occurrence; mostly they are few, and so are the nodes that are shared.
class SymbolWalk {
 public:
  explicit SymbolWalk(std::vector<Expr>& symbols) : symbols_(symbols) {
    for (size_t i = kFew; i < symbols.size(); ++i) many_.insert(symbols[i].node());
  }

  void visit(Expr e) {
    if (e.is_constant()) return;
    if (e.is_symbol()) return void(add(e, symbols_));
    // Sums and products are flat: their operands are other nodes each time.
    const bool is_shared = e.kind() != Kind::add && e.kind() != Kind::mul;
    if (is_shared && !add(e, seen_)) return;
    for (const Expr& arg : e.args()) visit(arg);
  }

 private:
  static constexpr size_t kFew = 16;  // which it is faster to look through

  bool add(Expr e, std::vector<Expr>& to) {
    const std::span<const Expr> few = std::span(to).first(std::min(to.size(), kFew));
    if (std::ranges::find(few, e) != few.end()) return false;
    if (to.size() >= kFew && !many_.insert(e.node()).second) return false;
    to.push_back(e);
    return true;
  }

  std::vector<Expr>& symbols_;
  std::vector<Expr> seen_;
  std::unordered_set<const Node*> many_;  // of both, behind the first ones
};

}  // namespace

Expr substitute(Expr e, const Substitution& map) {
  return e.is_constant() ? e : Substituter(map).apply(e);
}

std::optional<int64_t> evaluate(Expr e, const Assignment& values) {
  return Evaluator(values).value(e);
}

void collect_symbols(Expr e, std::vector<Expr>& out) { SymbolWalk(out).visit(e); }

std::vector<Expr> free_symbols(Expr e) {
  std::vector<Expr> symbols;
  collect_symbols(e, symbols);
  return symbols;
}

bool depends_on(Expr e, Expr symbol) {
  if (e.is_constant() || e.is_symbol()) return e == symbol;
  if (symbol.is_constant() || (e.node()->symbols & symbol.node()->symbols) == 0) return false;
  const std::vector<Expr> symbols = free_symbols(e);
  return std::ranges::find(symbols, symbol) != symbols.end();
}

std::optional<Affine> affine_in(Expr e, Expr symbol) {
  if (!depends_on(e, symbol)) return Affine{0, e};
  Linear coefficient;
  Linear rest;
  if (!decompose(Linear(e), symbol, coefficient, rest)) return std::nullopt;
  const Affine result{coefficient.to_expr(), rest.to_expr()};
  if (depends_on(result.coefficient, symbol) || depends_on(result.rest, symbol))
    return std::nullopt;
  return result;
}

}  // namespace tandem::sym
