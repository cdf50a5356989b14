// Problem: a pool sorts terms by the age of its nodes, so the same index built in two graphs may
// print in two orders and one kernel would be compiled twice. Approach: operands of commutative
// nodes are rebuilt in the order of a key (age of their oldest symbol in the target pool, then a
// hash that ignores operand order); all nodes of the target are made by us, so its ages follow that
// order. Recursion depth is that of an index expression, which the loop nest bounds.
#include "loop/transfer.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "base/check.h"

namespace tandem::loop {
namespace {

uint64_t mixed(uint64_t hash, uint64_t value) {
  uint64_t h = (hash ^ value) * 0x9E3779B97F4A7C15ull;
  return h ^ (h >> 31);
}

constexpr uint32_t kLast = std::numeric_limits<uint32_t>::max();

bool is_commutative(sym::Kind kind) {
  return kind != sym::Kind::floor_div && kind != sym::Kind::mod;
}

sym::Expr combine(sym::Kind kind, sym::Expr a, sym::Expr b) {
  switch (kind) {
    case sym::Kind::add: return a + b;
    case sym::Kind::mul: return a * b;
    case sym::Kind::floor_div: return sym::floor_div(a, b);
    case sym::Kind::mod: return sym::mod(a, b);
    case sym::Kind::min: return sym::min(a, b);
    case sym::Kind::max: return sym::max(a, b);
    case sym::Kind::constant:
    case sym::Kind::symbol: break;
  }
  TD_CHECK(false) << "no operator";
  return a;
}

bool prints_before(sym::Expr a, sym::Expr b) {
  if (a.is_constant() || b.is_constant()) return !a.is_constant() && b.is_constant();
  return a.node()->id < b.node()->id;
}

}  // namespace

void Transfer::bind(sym::Expr from, sym::Expr to) {
  TD_CHECK(from.is_symbol()) << sym::to_string(from) << " is not a symbol";
  if (!bound_.insert_or_assign(from.node(), to).second) {
    results_.clear();
    keys_.clear();
  }
}

Transfer::Key Transfer::key_of(sym::Expr e) {
  // Constants come last, as they print.
  if (e.is_constant()) return {kLast, kLast, mixed(1, static_cast<uint64_t>(*e.constant()))};
  std::unordered_map<const sym::Node*, Key>::iterator known = keys_.find(e.node());
  if (known != keys_.end()) return known->second;
  Key key = key_of_node(e);
  keys_.emplace(e.node(), key);
  return key;
}

Transfer::Key Transfer::key_of_node(sym::Expr e) {
  if (e.is_symbol()) {
    std::unordered_map<const sym::Node*, sym::Expr>::iterator to = bound_.find(e.node());
    TD_CHECK(to != bound_.end()) << "symbol " << e.name()
                                 << " is no axis and no size of the kernel";
    uint32_t age = to->second.is_constant() ? 0 : to->second.node()->id;
    return {0, age, mixed(2, age)};
  }
  bool commutative = is_commutative(e.kind());
  Key key{0, kLast, 0};
  uint32_t operands = 0;  // a constant factor makes a tree no higher
  for (sym::Expr arg : e.args()) {
    Key operand = key_of(arg);
    if (!arg.is_constant()) key.height = std::max(key.height, operand.height);
    operands += arg.is_constant() && e.kind() == sym::Kind::mul ? 0 : 1;
    key.oldest = std::min(key.oldest, operand.oldest);
    key.hash = commutative ? key.hash + mixed(3, operand.hash) : mixed(key.hash, operand.hash);
  }
  key.height += operands > 1 ? 1 : 0;
  key.hash = mixed(key.hash, static_cast<uint64_t>(e.kind()) + 16);
  return key;
}

sym::Expr Transfer::operator()(sym::Expr e) {
  if (e.is_constant()) return e;
  std::unordered_map<const sym::Node*, sym::Expr>::iterator known =
      e.is_symbol() ? bound_.find(e.node()) : results_.find(e.node());
  TD_CHECK(!e.is_symbol() || known != bound_.end())
      << "symbol " << e.name() << " is no axis and no size of the kernel";
  if (e.is_symbol() || known != results_.end()) return known->second;
  sym::Expr result = rebuild(e);
  folded_ |= result.kind() != e.kind() || result.args().size() != e.args().size();
  results_.emplace(e.node(), result);
  return result;
}

sym::Expr Transfer::rebuild(sym::Expr e) {
  std::vector<sym::Expr> args(e.args().begin(), e.args().end());
  if (is_commutative(e.kind())) sort_as_printed(args);
  // Made and combined as a reader of the printed text would, one operand after the other: partial
  // sums and products are nodes too, and an operand may hold one of those before it.
  std::optional<sym::Expr> result;
  for (sym::Expr& arg : args) {
    arg = (*this)(arg);
    result = result ? combine(e.kind(), *result, arg) : arg;
  }
  if (!is_commutative(e.kind()) || std::is_sorted(args.begin(), args.end(), prints_before))
    return *result;
  std::sort(args.begin(), args.end(), prints_before);
  sym::Expr sorted = args[0];
  for (size_t i = 1; i < args.size(); ++i) sorted = combine(e.kind(), sorted, args[i]);
  return sorted;
}

/// What the target has already prints first, by its age there; what is new in the order of keys.
void Transfer::sort_as_printed(std::vector<sym::Expr>& args) {
  const auto is_made = [this](sym::Expr arg) {
    return !arg.is_constant() && (arg.is_symbol() || results_.contains(arg.node()));
  };
  std::sort(args.begin(), args.end(), [&](sym::Expr a, sym::Expr b) {
    if (is_made(a) != is_made(b)) return is_made(a);
    return is_made(a) ? prints_before((*this)(a), (*this)(b)) : key_of(a) < key_of(b);
  });
}

}  // namespace tandem::loop
