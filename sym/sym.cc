// The pool of symbolic expressions. Problem: every index of every loop nest is an expression, so
// building one must cost about as much as a hash lookup and comparing two must cost nothing.
// Approach: nodes are interned in an open-addressing table keyed by kind and operands (operands are
// already interned, so the key is a few words), ranges are computed once when a node is made, and
// the results of divisions, which are the dear operation, are remembered.
#include "sym/sym.h"

#include <algorithm>

#include "base/arena.h"
#include "base/check.h"
#include "sym/linear.h"

namespace tandem::sym {
namespace {

uint64_t mix(uint64_t seed, uint64_t value) {
  uint64_t h = (seed ^ value) * 0x9E3779B97F4A7C15ull;
  return h ^ (h >> 29);
}

uint64_t hash_of(Kind kind, std::span<const Expr> args) {
  uint64_t h = mix(0x51ED270B, static_cast<uint64_t>(kind));
  for (const Expr& arg : args) h = mix(h, arg.hash());
  return h;
}

struct Operation {
  Kind kind;
  Expr a;
  Expr b;
  bool operator==(const Operation&) const = default;
};

struct OperationHash {
  size_t operator()(const Operation& op) const {
    return mix(mix(static_cast<uint64_t>(op.kind), op.a.hash()), op.b.hash());
  }
};

}  // namespace

Kind Expr::kind() const { return node_ == nullptr ? Kind::constant : node_->kind; }

std::span<const Expr> Expr::args() const {
  return node_ == nullptr ? std::span<const Expr>() : std::span<const Expr>(node_->args);
}

const std::string& Expr::name() const {
  TD_CHECK(is_symbol());
  return node_->name;
}

Range Expr::range() const {
  if (node_ != nullptr) return node_->range;
  const int64_t value = std::clamp(value_, Range::kMin, Range::kMax);
  return {value, value};
}

size_t Expr::hash() const {
  if (node_ == nullptr) return mix(0x2545F491, static_cast<uint64_t>(value_));
  return mix(0x6C62272E, node_->id);
}

struct Pool::Impl {
  struct Slot {
    uint64_t hash = 0;
    const Node* node = nullptr;
  };

  Node* make_node(Pool* pool, Kind kind) {
    Node* node = nodes.make();
    node->kind = kind;
    node->id = static_cast<uint32_t>(nodes.size() - 1);
    node->pool = pool;
    return node;
  }

  Node* make_symbol(Pool* pool, std::string name, Range range) {
    Node* node = make_node(pool, Kind::symbol);
    node->range = range;
    node->symbols = uint64_t{1} << (symbols.size() % 64);
    symbols.emplace(name, node);
    node->name = std::move(name);
    return node;
  }

  /// The slot that holds such a node, or the empty one where it belongs.
  Slot& find(uint64_t hash, Kind kind, std::span<const Expr> args) {
    const size_t mask = table.size() - 1;
    for (size_t at = hash & mask;; at = (at + 1) & mask) {
      Slot& slot = table[at];
      if (slot.node == nullptr) return slot;
      if (slot.hash == hash && slot.node->kind == kind &&
          std::ranges::equal(slot.node->args, args)) {
        return slot;
      }
    }
  }

  void grow() {
    std::vector<Slot> old(table.size() * 2);
    old.swap(table);
    const size_t mask = table.size() - 1;
    for (const Slot& slot : old) {
      if (slot.node == nullptr) continue;
      size_t at = slot.hash & mask;
      while (table[at].node != nullptr) at = (at + 1) & mask;
      table[at] = slot;
    }
  }

  Arena<Node> nodes;
  std::vector<Slot> table = std::vector<Slot>(256);
  size_t used = 0;
  std::unordered_map<std::string, Node*> symbols;
  std::unordered_map<std::string, Expr> bound;
  std::unordered_map<std::string, int> next_suffix;
  std::unordered_map<Operation, Expr, OperationHash> results;
};

Pool::Pool() : impl_(std::make_unique<Impl>()) {}
Pool::~Pool() = default;

size_t Pool::size() const { return impl_->nodes.size(); }

void Pool::bind(std::string_view name, Expr value) {
  TD_CHECK(!impl_->symbols.contains(std::string(name))) << name << " is in use";
  impl_->bound[std::string(name)] = value;
}

Expr Pool::symbol(std::string_view name, Range range) {
  if (!impl_->bound.empty()) {
    const auto bound = impl_->bound.find(std::string(name));
    if (bound != impl_->bound.end())
      return bound->second.is_symbol() ? symbol(bound->second.name(), range) : bound->second;
  }
  auto found = impl_->symbols.find(std::string(name));
  if (found == impl_->symbols.end()) {
    return Expr(impl_->make_symbol(this, std::string(name), range));
  }
  Range& known = found->second->range;
  known = {std::max(known.lo, range.lo), std::min(known.hi, range.hi)};
  return Expr(found->second);
}

Expr extent_of(Expr index) { return index.node()->extent.value_or(Expr(index.range().hi + 1)); }

Expr Pool::index(std::string_view name, Expr extent) {
  std::string unique(name);
  while (impl_->symbols.contains(unique)) {
    unique = std::string(name) + std::to_string(++impl_->next_suffix[std::string(name)]);
  }
  // An empty loop gets the range of one iteration: its body never runs, so any range holds.
  const int64_t last = extent.range().hi;
  const Range range{0, last == Range::kMax ? last : std::max<int64_t>(last - 1, 0)};
  Node* node = impl_->make_symbol(this, std::move(unique), range);
  if (!extent.is_constant()) node->extent = extent;
  return Expr(node);
}

std::optional<Expr> Pool::find_symbol(std::string_view name) const {
  auto found = impl_->symbols.find(std::string(name));
  if (found == impl_->symbols.end()) return std::nullopt;
  return Expr(found->second);
}

Expr Pool::intern(Kind kind, std::vector<Expr> args) {
  TD_CHECK(args.size() >= 2) << "an operator node has two operands at least";
  const uint64_t hash = hash_of(kind, args);
  Impl::Slot& slot = impl_->find(hash, kind, args);
  if (slot.node != nullptr) return Expr(slot.node);
  for (const Expr& arg : args) {
    TD_CHECK(arg.is_constant() || arg.node()->pool == this) << "operands of two pools";
  }
  Node* node = impl_->make_node(this, kind);
  node->range = range_of(kind, args);
  for (const Expr& arg : args) node->symbols |= arg.is_constant() ? 0 : arg.node()->symbols;
  node->args = std::move(args);
  slot = {hash, node};
  if (++impl_->used * 2 > impl_->table.size()) impl_->grow();
  return Expr(node);
}

std::optional<Expr> Pool::recall(Kind kind, Expr a, Expr b) const {
  auto found = impl_->results.find({kind, a, b});
  if (found == impl_->results.end()) return std::nullopt;
  return found->second;
}

void Pool::remember(Kind kind, Expr a, Expr b, Expr result) {
  impl_->results.emplace(Operation{kind, a, b}, result);
}

}  // namespace tandem::sym
