// Most programs serve every size. Where an operator needs a number (the length of a transform, how
// many results a split has), its error names the symbols, and these become the numbers that the
// call at hand has, which the caller guards. Symbols have no equations of their own, so those that
// stand in one are taken for each other ahead; and where an error names none, those that are of one
// size, before all become numbers.
#include "driver/hints.h"

#include <algorithm>
#include <optional>
#include <span>

#include "ops/opdef.h"
#include "sym/equations.h"

namespace tandem::driver {
namespace {

using sym::Expr;

/// Factors of a product of symbols and numbers; nothing for anything else.
std::optional<std::vector<Expr>> factors_of(Expr e) {
  std::vector<Expr> factors{e};
  if (e.kind() == sym::Kind::mul) factors.assign(e.args().begin(), e.args().end());
  const auto is_plain = [](Expr each) { return each.is_symbol() || each.is_constant(); };
  if (!std::ranges::all_of(factors, is_plain)) return std::nullopt;
  std::erase_if(factors, [](Expr each) { return each.is_constant(); });
  return factors;
}

/// The size that it has now.
std::optional<int64_t> size_of(Expr symbol, const Hints& hints) {
  const auto found = hints.sizes.find(symbol.name());
  return found == hints.sizes.end() ? std::nullopt : std::optional<int64_t>(found->second);
}

/// Symbols that are other symbols are read as these.
std::string representative(const ir::Bindings& bindings, const std::string& name) {
  const auto found = bindings.equal.find(name);
  return found == bindings.equal.end() ? name : found->second;
}

void make_equal(ir::Bindings& bindings, const std::string& a, const std::string& b) {
  const std::string from = representative(bindings, b);
  const std::string to = representative(bindings, a);
  if (from == to) return;
  for (auto& [name, other] : bindings.equal)
    if (other == from) other = to;
  bindings.equal[from] = to;
}

void tie(const std::vector<Expr>& left, std::vector<Expr> right, const Hints& hints,
         ir::Bindings& bindings) {
  std::vector<Expr> rest;
  for (const Expr& symbol : left) {
    const std::optional<int64_t> size = size_of(symbol, hints);
    const auto twin =
        std::ranges::find_if(right, [&](Expr other) { return size_of(other, hints) == size; });
    if (twin == right.end()) {
      rest.push_back(symbol);
    } else {
      make_equal(bindings, symbol.name(), twin->name());
      right.erase(twin);
    }
  }
  rest.insert(rest.end(), right.begin(), right.end());
  for (const Expr& symbol : rest) bindings.sizes[symbol.name()] = *size_of(symbol, hints);
}

/// What is equal to a number is one.
void spread_numbers(ir::Bindings& bindings) {
  for (auto& [name, other] : bindings.equal) {
    const auto one = bindings.sizes.find(name);
    if (one != bindings.sizes.end()) bindings.sizes.emplace(other, one->second);
  }
  std::erase_if(bindings.equal, [&](const auto& pair) {
    const auto number = bindings.sizes.find(pair.second);
    if (number == bindings.sizes.end()) return false;
    bindings.sizes.emplace(pair.first, number->second);
    return true;
  });
}

std::vector<sym::Equation> equations_of(sym::Pool& pool, const Hints& hints) {
  std::vector<sym::Equation> equations;
  for (const std::string& text : hints.equations) {
    std::string error;
    const std::optional<sym::Equation> equation = sym::parse_equation(pool, text, &error);
    if (!equation) throw UserError("'" + text + "' is no equation between sizes: " + error);
    equations.push_back(*equation);
  }
  return equations;
}

/// Sizes that stand in equations.
std::map<std::string, int64_t> restricted(const Hints& hints) {
  sym::Pool pool;
  std::vector<Expr> symbols;
  for (const sym::Equation& equation : equations_of(pool, hints)) {
    sym::collect_symbols(equation.left, symbols);
    sym::collect_symbols(equation.right, symbols);
  }
  std::map<std::string, int64_t> sizes;
  for (const Expr& symbol : symbols)
    if (const std::optional<int64_t> size = size_of(symbol, hints)) sizes[symbol.name()] = *size;
  return sizes;
}

/// What no number was named for may ask two sizes to be one: then those are that are the same now,
/// as torch takes sizes which are not marked. Whether any was not yet.
bool tie_alike(const Hints& hints, ir::Bindings& bindings) {
  const size_t before = bindings.equal.size();
  std::map<int64_t, std::string> first;
  for (const auto& [name, size] : hints.sizes) {
    if (bindings.sizes.contains(name)) continue;
    const auto [known, is_new] = first.emplace(size, name);
    if (!is_new) make_equal(bindings, known->second, name);
  }
  return bindings.equal.size() > before;
}

}  // namespace

ir::Bindings tied(const Hints& hints) {
  ir::Bindings bindings;
  sym::Pool pool;
  for (const sym::Equation& equation : equations_of(pool, hints)) {
    const std::optional<std::vector<Expr>> left = factors_of(equation.left);
    const std::optional<std::vector<Expr>> right = factors_of(equation.right);
    if (!left || !right) continue;
    const auto is_known = [&](Expr symbol) { return size_of(symbol, hints).has_value(); };
    if (std::ranges::all_of(*left, is_known) && std::ranges::all_of(*right, is_known))
      tie(*left, *right, hints, bindings);
  }
  spread_numbers(bindings);
  return bindings;
}

bool add_unknown(const UserError& error, const Hints& hints, ir::Bindings& bindings) {
  const auto count = [&] { return bindings.sizes.size() + bindings.floats.size(); };
  const size_t before = count();
  bool names_one = false;
  for (const Diagnostic& problem : error.problems())
    for (const std::string& name : problem.unknown) {
      names_one = true;
      if (hints.sizes.contains(name)) bindings.sizes.emplace(name, hints.sizes.at(name));
      if (hints.floats.contains(name)) bindings.floats.emplace(name, hints.floats.at(name));
    }
  if (!names_one && tie_alike(hints, bindings)) return true;
  if (!names_one) bindings.sizes.merge(restricted(hints));
  if (!names_one && count() == before)
    bindings.sizes.insert(hints.sizes.begin(), hints.sizes.end());
  spread_numbers(bindings);
  return count() > before;
}

bool serves(const ir::Bindings& bindings, const Hints& hints) {
  const auto has = [](const auto& values, const auto& pair) {
    const auto found = values.find(pair.first);
    return found != values.end() && found->second == pair.second;
  };
  const auto is_size = [&](const auto& pair) { return has(hints.sizes, pair); };
  const auto is_float = [&](const auto& pair) { return has(hints.floats, pair); };
  const auto is_equal = [&](const auto& pair) {
    const auto one = hints.sizes.find(pair.first);
    return one != hints.sizes.end() && has(hints.sizes, std::pair(pair.second, one->second));
  };
  return std::ranges::all_of(bindings.sizes, is_size) &&
         std::ranges::all_of(bindings.floats, is_float) &&
         std::ranges::all_of(bindings.equal, is_equal);
}

std::string bound_text(std::string_view text, const ir::Bindings& bindings) {
  if (bindings.empty()) return std::string(text);
  return ir::to_string(*ir::parse_module(text, ops::op_table(), bindings));
}

}  // namespace tandem::driver
