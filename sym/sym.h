// Symbolic integers: sizes, strides and indices as hash-consed expressions with ranges.
//
// An Expr is a value of 16 bytes: either a constant (no pool needed) or a pointer to an immutable
// node of a Pool. Equal expressions of one pool are equal pointers, so equality of indices is
// equality of Exprs. All arithmetic is over mathematical integers held in i64; the simplifier
// assumes no overflow.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace tandem::sym {

class Pool;
struct Node;

enum class Kind : uint8_t {
  constant,
  symbol,
  add,        // sum of terms: args in canonical order, at most one constant, last
  mul,        // product of factors: at most one constant, first
  floor_div,  // rounds toward minus infinity; divisor positive; x // 0 is never built
  mod,        // a - b * (a // b): in [0, b) for positive b
  min,
  max,
};

/// Inclusive bounds. Unbounded ends are kMin / kMax.
struct Range {
  static constexpr int64_t kMin = std::numeric_limits<int64_t>::min() / 4;
  static constexpr int64_t kMax = std::numeric_limits<int64_t>::max() / 4;
  int64_t lo = kMin;
  int64_t hi = kMax;
  bool operator==(const Range&) const = default;
};

class Expr {
 public:
  Expr() = default;
  // Sizes read as numbers.
  Expr(int64_t value) : value_(value) {}  // NOLINT(google-explicit-constructor)
  Expr(int value) : value_(value) {}      // NOLINT(google-explicit-constructor)
  explicit Expr(const Node* node) : node_(node) {}

  bool is_constant() const { return node_ == nullptr; }
  /// The value, where it is a constant.
  std::optional<int64_t> constant() const {
    return node_ == nullptr ? std::optional<int64_t>(value_) : std::nullopt;
  }
  /// Kind::constant for constants.
  Kind kind() const;
  const Node* node() const { return node_; }
  /// Operands; empty for constants and symbols.
  std::span<const Expr> args() const;
  bool is_symbol() const { return kind() == Kind::symbol; }
  /// Name of a symbol.
  const std::string& name() const;
  /// Bounds that follow from the ranges of the symbols.
  Range range() const;
  size_t hash() const;
  bool operator==(const Expr& other) const {
    return node_ == other.node_ && value_ == other.value_;
  }

 private:
  const Node* node_ = nullptr;
  int64_t value_ = 0;
};

struct Node {
  Kind kind;
  uint32_t id;  // creation order in the pool: gives every expression a stable place in sorted lists
  std::string name;
  std::vector<Expr> args;
  Range range;
  /// One bit for each symbol in it, which a few others may share: what has none of a symbol's bits
  /// does not depend on it.
  uint64_t symbols = 0;
  /// For a symbol used as a loop index: one past its largest value, when that is symbolic (index <
  /// extent).
  std::optional<Expr> extent;
  Pool* pool;
};

/// One past the largest value of a loop index made by Pool::index.
Expr extent_of(Expr index);

Expr operator+(Expr a, Expr b);
Expr operator-(Expr a, Expr b);
Expr operator-(Expr a);
Expr operator*(Expr a, Expr b);
/// Floor division; b must be known positive or become so at run time (sizes and strides are).
Expr floor_div(Expr a, Expr b);
Expr ceil_div(Expr a, Expr b);
Expr mod(Expr a, Expr b);
Expr min(Expr a, Expr b);
Expr max(Expr a, Expr b);
Expr product(std::span<const Expr> factors);

/// Owns nodes. Not thread-safe. Lives as long as the Module (sizes) or Kernel (indices) that uses
/// it.
class Pool {
 public:
  Pool();
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  /// The symbol of that name; made with `range` when new. A second call narrows the range (only
  /// before use).
  Expr symbol(std::string_view name, Range range = {});
  /// From here on the name is this number, or this other symbol. Before it is read for the first
  /// time.
  void bind(std::string_view name, Expr value);
  /// A new loop index in [0, extent); the name gets a number when taken.
  Expr index(std::string_view name, Expr extent);
  std::optional<Expr> find_symbol(std::string_view name) const;

  /// Interns a node that is already in canonical form (used by the simplifier).
  Expr intern(Kind kind, std::vector<Expr> args);
  /// Number of distinct nodes.
  size_t size() const;

  /// Divisions done before: the simplifier asks here first, because loop nests repeat them.
  std::optional<Expr> recall(Kind kind, Expr a, Expr b) const;
  void remember(Kind kind, Expr a, Expr b, Expr result);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Proofs: true only when it follows from ranges and extents; false means "not known".
bool known_lt(Expr a, Expr b);
bool known_le(Expr a, Expr b);
bool known_eq(Expr a, Expr b);
bool known_ne(Expr a, Expr b);
/// True when d divides e for every value of the symbols.
bool known_divisible(Expr e, Expr d);
/// The remainders by `divisor`, 1 to 63, that e may have: bit i says whether i is one. All of them
/// where its symbols have too many values to try each, or where e may be negative.
uint64_t possible_remainders(Expr e, int64_t divisor);

/// Replaces symbols; the result is simplified again.
using Substitution = std::vector<std::pair<Expr, Expr>>;
Expr substitute(Expr e, const Substitution& map);

/// Value under an assignment of every symbol; nullopt when one is missing or a divisor is 0.
using Assignment = std::function<std::optional<int64_t>(const Node* symbol)>;
std::optional<int64_t> evaluate(Expr e, const Assignment& values);

/// Distinct symbols in order of first occurrence.
std::vector<Expr> free_symbols(Expr e);
void collect_symbols(Expr e, std::vector<Expr>& out);
bool depends_on(Expr e, Expr symbol);

/// e = coefficient * symbol + rest with neither depending on the symbol; nullopt when e is not
/// affine in it.
struct Affine {
  Expr coefficient;
  Expr rest;
};
std::optional<Affine> affine_in(Expr e, Expr symbol);

/// Text that parses back: `s0*4 + 3`, `(s0 + 1)//2`, `s0 % 4`, `min(s0, 8)`.
std::string to_string(Expr e);
/// Parses; a new name becomes a symbol of `pool`. On malformed text returns nullopt and sets
/// *error.
std::optional<Expr> parse(Pool& pool, std::string_view text, std::string* error);

struct ExprHash {
  size_t operator()(const Expr& e) const { return e.hash(); }
};

/// A condition on symbols that compiled code relies on, and the reason a reader sees when it fails.
struct Guard {
  enum class Relation : uint8_t { eq, ne, lt, le } relation;
  Expr left;
  Expr right;
  std::string reason;
  std::string to_string() const;  // `s0 <= 4096`
};

}  // namespace tandem::sym
