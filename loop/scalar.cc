// Interning and the few folds that every lowering profits from: constants, identities that hold for
// all values (x*1, select of equal arms, cast to the same type). x*0 and x-x stay: NaN and
// infinity.
#include "loop/scalar.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "base/check.h"

namespace tandem::loop {
namespace {

constexpr std::array<std::string_view, 47> kNames = {
    "constant", "index",  "load",    "local",     "neg",    "abs",  "sqrt",    "exp",
    "expm1",    "log",    "log1p",   "log2",      "sin",    "cos",  "tanh",    "lgamma",
    "erf",      "ceil",   "floor",   "round",     "trunc",  "not",  "bit_not", "add",
    "sub",      "mul",    "div",     "floor_div", "fmod",   "pow",  "min",     "max",
    "bit_and",  "bit_or", "bit_xor", "shl",       "shr",    "eq",   "ne",      "lt",
    "le",       "gt",     "ge",      "fma",       "select", "cast", "bitcast"};
constexpr std::array<std::string_view, 4> kLastNames = {"philox", "check", "element", "pack"};

bool is_compare(Opcode opcode) { return opcode >= Opcode::eq && opcode <= Opcode::ge; }

void mix(size_t& hash, size_t value) {
  hash = (hash ^ value) * 0x9E3779B97F4A7C15ull + (hash >> 29);
}

bool is_constant(Val value) { return value->opcode == Opcode::constant; }

bool is_number(Val value, double number) {
  if (!is_constant(value)) return false;
  return is_float(value->dtype) ? value->number == number
                                : static_cast<double>(value->integer) == number;
}

int64_t wrap(DType dtype, int64_t value) {
  switch (dtype) {
    case DType::boolean: return value != 0;
    case DType::i8: return static_cast<int8_t>(value);
    case DType::u8: return static_cast<uint8_t>(value);
    case DType::i16: return static_cast<int16_t>(value);
    case DType::i32: return static_cast<int32_t>(value);
    default: return value;
  }
}

/// Outcome of comparing index expressions where it follows from ranges: most pad and cat masks
/// vanish here.
std::optional<bool> prove(Opcode opcode, Val a, Val b) {
  const std::optional<sym::Expr> left = position_of(a);
  const std::optional<sym::Expr> right = position_of(b);
  if (!left || !right) return std::nullopt;
  sym::Expr x = *left;
  sym::Expr y = *right;
  if (opcode == Opcode::eq || opcode == Opcode::ne) {
    if (sym::known_eq(x, y)) return opcode == Opcode::eq;
    if (sym::known_ne(x, y)) return opcode == Opcode::ne;
    return std::nullopt;
  }
  if (opcode == Opcode::gt || opcode == Opcode::ge) std::swap(x, y);
  bool strict = opcode == Opcode::lt || opcode == Opcode::gt;
  if (strict ? sym::known_lt(x, y) : sym::known_le(x, y)) return true;
  if (strict ? sym::known_le(y, x) : sym::known_lt(y, x)) return false;
  return std::nullopt;
}

/// What must not be left out, though nobody needs its value.
bool has_check(Val value) {
  return std::ranges::any_of(reachable(std::span(&value, 1)),
                             [](Val part) { return part->opcode == Opcode::check; });
}

}  // namespace

std::optional<sym::Expr> position_of(Val value) {
  if (value->dtype != DType::i64) return std::nullopt;
  if (value->opcode == Opcode::constant) return sym::Expr(value->integer);
  return value->opcode == Opcode::index ? std::optional(value->index) : std::nullopt;
}

std::string_view name_of(Opcode opcode) {
  size_t number = static_cast<size_t>(opcode);
  return number < kNames.size() ? kNames[number] : kLastNames[number - kNames.size()];
}

std::optional<Opcode> opcode_from_name(std::string_view name) {
  for (size_t i = 0; i < kNames.size() + kLastNames.size(); ++i)
    if (name_of(static_cast<Opcode>(i)) == name) return static_cast<Opcode>(i);
  return std::nullopt;
}

bool is_transcendental(Opcode opcode) {
  return (opcode >= Opcode::exp && opcode <= Opcode::erf) || opcode == Opcode::pow ||
         opcode == Opcode::philox || opcode == Opcode::fmod;
}

size_t ScalarPool::Hash::operator()(const Scalar* node) const {
  size_t hash = static_cast<size_t>(node->opcode) * 16 + static_cast<size_t>(node->dtype);
  mix(hash, static_cast<size_t>(node->slot));
  mix(hash, static_cast<size_t>(node->integer));
  mix(hash, std::bit_cast<uint64_t>(node->number));
  mix(hash, node->index.hash());
  for (sym::Expr at : node->at) mix(hash, at.hash());
  for (Val arg : node->args) mix(hash, arg->id);
  return hash;
}

bool ScalarPool::Equal::operator()(const Scalar* a, const Scalar* b) const {
  return a->opcode == b->opcode && a->dtype == b->dtype && a->slot == b->slot &&
         a->masked == b->masked && a->integer == b->integer &&
         std::bit_cast<uint64_t>(a->number) == std::bit_cast<uint64_t>(b->number) &&
         a->index == b->index && a->at == b->at && a->args == b->args;
}

Val ScalarPool::intern(Scalar node) {
  std::unordered_map<const Scalar*, Val, Hash, Equal>::iterator it = interned_.find(&node);
  if (it != interned_.end()) return it->second;
  node.id = static_cast<uint32_t>(nodes_.size());
  nodes_.push_back(std::move(node));
  interned_.emplace(&nodes_.back(), &nodes_.back());
  return &nodes_.back();
}

Val ScalarPool::constant(DType dtype, double value) {
  if (!is_float(dtype))
    return integer(dtype, dtype == DType::boolean ? value != 0 : static_cast<int64_t>(value));
  Scalar node(Opcode::constant, dtype);
  node.number = dtype == DType::f64 ? value : static_cast<double>(static_cast<float>(value));
  return intern(std::move(node));
}

Val ScalarPool::integer(DType dtype, int64_t value) {
  if (is_float(dtype)) return constant(dtype, static_cast<double>(value));
  Scalar node(Opcode::constant, dtype);
  node.integer = wrap(dtype, value);
  return intern(std::move(node));
}

Val ScalarPool::index(sym::Expr value) {
  if (value.constant()) return integer(DType::i64, *value.constant());
  if (Val bound = value.is_symbol() ? indirect(value) : nullptr) return bound;
  Scalar node(Opcode::index, DType::i64);
  node.index = value;
  add_indirects(node);
  return intern(std::move(node));
}

Val ScalarPool::load(int32_t buffer, DType dtype, sym::Expr index, Val mask) {
  Scalar node(Opcode::load, dtype);
  node.slot = buffer;
  node.index = index;
  if (mask != nullptr && !is_number(mask, 1)) {
    node.masked = true;
    node.args.push_back(mask);
  }
  add_indirects(node);
  return intern(std::move(node));
}

Val ScalarPool::element(int32_t tensor, DType dtype, std::vector<sym::Expr> at, Val mask) {
  Scalar node(Opcode::element, dtype);
  node.slot = tensor;
  node.at = std::move(at);
  if (mask != nullptr && !is_number(mask, 1)) {
    node.masked = true;
    node.args.push_back(mask);
  }
  add_indirects(node);
  return intern(std::move(node));
}

Val ScalarPool::local(int32_t number, DType dtype) {
  Scalar node(Opcode::local, dtype);
  node.slot = number;
  return intern(std::move(node));
}

Val ScalarPool::unary(Opcode opcode, Val x) {
  if (opcode == Opcode::logical_not && is_constant(x))
    return integer(DType::boolean, x->integer == 0);
  if (opcode == Opcode::neg && is_constant(x) && is_float(x->dtype))
    return constant(x->dtype, -x->number);
  if (opcode == Opcode::neg && is_constant(x)) return integer(x->dtype, -x->integer);
  bool rounds = opcode >= Opcode::ceil && opcode <= Opcode::trunc;
  if (rounds && !is_float(x->dtype)) return x;
  Scalar node(opcode, x->dtype);
  node.args = {x};
  return intern(std::move(node));
}

Val ScalarPool::fold(Opcode opcode, DType dtype, Val a, Val b) {
  bool floats = is_float(a->dtype);
  switch (opcode) {
    case Opcode::add:
      // x + 0 changes -0 to +0 for floats, so only -0 is neutral there; integers fold.
      if (!floats && is_number(b, 0)) return a;
      if (!floats && is_number(a, 0)) return b;
      break;
    case Opcode::sub:
      if (is_number(b, 0) && !(floats && std::signbit(b->number))) return a;
      break;
    case Opcode::mul:
      if (is_number(b, 1)) return a;
      if (is_number(a, 1)) return b;
      break;
    case Opcode::div:
      if (is_number(b, 1)) return a;
      break;
    case Opcode::bit_and:
      if (dtype == DType::boolean && is_number(a, 1)) return b;
      if (dtype == DType::boolean && is_number(b, 1)) return a;
      if (dtype == DType::boolean && is_number(a, 0) && !has_check(b)) return a;
      if (dtype == DType::boolean && is_number(b, 0) && !has_check(a)) return b;
      break;
    case Opcode::bit_or:
      if (dtype == DType::boolean && is_number(a, 0)) return b;
      if (dtype == DType::boolean && is_number(b, 0)) return a;
      if (dtype == DType::boolean && is_number(a, 1) && !has_check(b)) return a;
      if (dtype == DType::boolean && is_number(b, 1) && !has_check(a)) return b;
      break;
    default: break;
  }
  return nullptr;
}

Val ScalarPool::binary(Opcode opcode, Val a, Val b) {
  TD_CHECK(a->dtype == b->dtype) << name_of(opcode) << " of " << name_of(a->dtype) << " and "
                                 << name_of(b->dtype);
  DType dtype = is_compare(opcode) ? DType::boolean : a->dtype;
  if (Val folded = fold(opcode, dtype, a, b)) return folded;
  if (is_compare(opcode))
    if (std::optional<bool> truth = prove(opcode, a, b)) return integer(DType::boolean, *truth);
  Scalar node(opcode, dtype);
  node.args = {a, b};
  return intern(std::move(node));
}

Val ScalarPool::fma(Val a, Val b, Val c) {
  TD_CHECK(a->dtype == b->dtype && b->dtype == c->dtype) << "fma of different types";
  Scalar node(Opcode::fma, a->dtype);
  node.args = {a, b, c};
  return intern(std::move(node));
}

Val ScalarPool::select(Val cond, Val a, Val b) {
  TD_CHECK(a->dtype == b->dtype) << "select of " << name_of(a->dtype) << " and "
                                 << name_of(b->dtype);
  // select(c, select(c, x, _), y) = select(c, x, y), and the same of the other arm.
  const auto is_same = [&](Val arm) {
    return arm->opcode == Opcode::select && arm->args[0] == cond;
  };
  if (is_same(a) && !has_check(a->args[2])) a = a->args[1];
  if (is_same(b) && !has_check(b->args[1])) b = b->args[2];
  if (a == b) return a;
  if (is_constant(cond)) return cond->integer != 0 ? a : b;
  Scalar node(Opcode::select, a->dtype);
  node.args = {cond, a, b};
  return intern(std::move(node));
}

Val ScalarPool::cast(Val x, DType dtype) {
  if (x->dtype == dtype) return x;
  if (is_constant(x) && size_of(dtype) > 2) {
    if (!is_float(x->dtype))
      return is_float(dtype) ? constant(dtype, static_cast<double>(x->integer))
                             : integer(dtype, x->integer);
    if (is_float(dtype)) return constant(dtype, x->number);
  }
  // Widening a 16-bit float and rounding it back is exact.
  bool exact_round_trip = x->opcode == Opcode::cast && x->args[0]->dtype == dtype &&
                          is_float(dtype) && is_float(x->dtype) &&
                          size_of(dtype) < size_of(x->dtype);
  if (exact_round_trip) return x->args[0];
  Scalar node(Opcode::cast, dtype);
  node.args = {x};
  return intern(std::move(node));
}

Val ScalarPool::bitcast(Val x, DType dtype) {
  TD_CHECK(size_of(x->dtype) == size_of(dtype)) << "bitcast to another size";
  if (x->dtype == dtype) return x;
  Scalar node(Opcode::bitcast, dtype);
  node.args = {x};
  return intern(std::move(node));
}

Val ScalarPool::philox(Val seed, Val stream, Val element) {
  Scalar node(Opcode::philox, DType::i32);
  node.args = {seed, stream, element};
  return intern(std::move(node));
}

Val ScalarPool::check(Val cond, Val value, int32_t error) {
  const auto holds = [](Val part) { return is_number(part, 1); };
  const bool is_either = cond->opcode == Opcode::bit_or && std::ranges::any_of(cond->args, holds);
  if (holds(cond) || is_either) return value;
  Scalar node(Opcode::check, value->dtype);
  node.slot = error;
  node.args = {cond, value};
  return intern(std::move(node));
}

Val ScalarPool::pack(std::vector<Val> parts) {
  const int64_t bytes = size_of(parts[0]->dtype);
  TD_CHECK(bytes * static_cast<int64_t>(parts.size()) == 4 && !is_float(parts[0]->dtype))
      << "packed parts do not fill 32 bits";
  if (std::ranges::all_of(parts, is_constant)) {
    const int64_t mask = (int64_t{1} << (8 * bytes)) - 1;
    int64_t bits = 0;
    for (size_t i = parts.size(); i-- > 0;)
      bits = (bits << (8 * bytes)) | (parts[i]->integer & mask);
    return integer(DType::i32, static_cast<int32_t>(bits));
  }
  Scalar node(Opcode::pack, DType::i32);
  node.args = std::move(parts);
  return intern(std::move(node));
}

sym::Expr ScalarPool::as_index(Val value, sym::Expr extent, std::string_view name) {
  TD_CHECK(value->dtype == DType::i64) << "an index must be i64";
  if (is_constant(value)) return value->integer;
  if (value->opcode == Opcode::index) return value->index;
  std::unordered_map<Val, sym::Expr>::iterator it = symbol_of_.find(value);
  if (it != symbol_of_.end()) return it->second;
  sym::Expr symbol = symbols_->index(name, extent);
  symbol_of_.emplace(value, symbol);
  indirects_.emplace(symbol, value);
  return symbol;
}

Val ScalarPool::indirect(sym::Expr symbol) const {
  std::unordered_map<sym::Expr, Val, sym::ExprHash>::const_iterator it = indirects_.find(symbol);
  return it == indirects_.end() ? nullptr : it->second;
}

void ScalarPool::add_indirects(Scalar& node) const {
  if (indirects_.empty()) return;
  std::vector<sym::Expr> indices = node.at;
  indices.push_back(node.index);
  for (sym::Expr index : indices)
    for (sym::Expr symbol : sym::free_symbols(index))
      if (Val value = indirect(symbol)) node.args.push_back(value);
}

Val ScalarPool::rebuild(const Scalar& node, std::vector<Val> args, sym::Expr index) {
  switch (node.opcode) {
    case Opcode::constant:
      return is_float(node.dtype) ? constant(node.dtype, node.number)
                                  : integer(node.dtype, node.integer);
    case Opcode::index: return this->index(index);
    case Opcode::load: return load(node.slot, node.dtype, index, node.masked ? args[0] : nullptr);
    case Opcode::element:
      return element(node.slot, node.dtype, node.at, node.masked ? args[0] : nullptr);
    case Opcode::local: return local(node.slot, node.dtype);
    case Opcode::fma: return fma(args[0], args[1], args[2]);
    case Opcode::select: return select(args[0], args[1], args[2]);
    case Opcode::cast: return cast(args[0], node.dtype);
    case Opcode::bitcast: return bitcast(args[0], node.dtype);
    case Opcode::philox: return philox(args[0], args[1], args[2]);
    case Opcode::check: return check(args[0], args[1], node.slot);
    case Opcode::pack: return pack(std::move(args));
    default:
      return args.size() == 1 ? unary(node.opcode, args[0]) : binary(node.opcode, args[0], args[1]);
  }
}

// From the youngest down: whoever reads a value has had its turn when the value's comes, so the
// same value stands on top several times in a row, and no set is needed.
std::vector<Val> reachable(std::span<const Val> roots) {
  const auto older = [](Val a, Val b) { return a->id != b->id ? a->id < b->id : a < b; };
  std::vector<Val> heap(roots.begin(), roots.end());
  std::ranges::make_heap(heap, older);
  std::vector<Val> found;
  while (!heap.empty()) {
    std::ranges::pop_heap(heap, older);
    const Val value = heap.back();
    heap.pop_back();
    if (!found.empty() && found.back() == value) continue;
    found.push_back(value);
    for (Val arg : value->args) {
      heap.push_back(arg);
      std::ranges::push_heap(heap, older);
    }
  }
  std::ranges::reverse(found);
  return found;
}

namespace {

/// Bound of an indirect symbol in the rewritten pool.
sym::Expr extent_of(sym::Expr symbol, const Rewrite& how) {
  sym::Expr extent = sym::extent_of(symbol);
  return how.map_index ? how.map_index(extent) : extent;
}

/// What became of values of one pool, in the order of their ids.
class Copies {
 public:
  explicit Copies(std::span<const Val> roots) : values_(reachable(roots)) {
    made_.reserve(values_.size());
  }
  const std::vector<Val>& values() const { return values_; }
  /// Of the next one.
  void add(Val made) { made_.push_back(made); }
  Val at(Val value) const {
    const auto found = std::ranges::lower_bound(values_, value->id, {}, &Scalar::id);
    return made_.at(static_cast<size_t>(found - values_.begin()));
  }

 private:
  std::vector<Val> values_, made_;
};

}  // namespace

std::vector<Val> rewrite(ScalarPool& to, const ScalarPool& from, std::span<const Val> roots,
                         const Rewrite& how) {
  Copies mapped(roots);
  const auto mapped_index = [&](sym::Expr index) {
    sym::Substitution here;  // indirect symbols of `from` to those of `to`
    for (sym::Expr symbol : sym::free_symbols(index))
      if (Val old = from.indirect(symbol))
        here.emplace_back(symbol, to.as_index(mapped.at(old), extent_of(symbol, how)));
    if (how.map_index) index = how.map_index(index);
    return here.empty() ? index : sym::substitute(index, here);
  };
  const auto copied = [&](Val value, std::vector<Val> args) {
    Scalar copy = *value;
    if (value->opcode == Opcode::load || value->opcode == Opcode::index)
      copy.index = mapped_index(copy.index);
    for (sym::Expr& at : copy.at) at = mapped_index(at);
    if (how.adjust) how.adjust(copy);
    if (value->opcode == Opcode::element && how.element)
      if (Val replaced = how.element(copy, args)) return replaced;
    return to.rebuild(copy, std::move(args), copy.index);
  };
  for (Val value : mapped.values()) {
    std::vector<Val> args;
    args.reserve(value->args.size());
    for (Val arg : value->args) args.push_back(mapped.at(arg));
    Val result = how.replace ? how.replace(*value, args) : nullptr;
    mapped.add(result != nullptr ? result : copied(value, std::move(args)));
  }
  std::vector<Val> results;
  for (Val root : roots) results.push_back(mapped.at(root));
  return results;
}

std::vector<Val> substituted(ScalarPool& pool, std::span<const Val> values,
                             const sym::Substitution& map) {
  Rewrite how;
  how.map_index = [&](sym::Expr e) { return sym::substitute(e, map); };
  return rewrite(pool, pool, values, how);
}

Val substituted(ScalarPool& pool, Val value, const sym::Substitution& map) {
  return substituted(pool, std::span<const Val>(&value, 1), map)[0];
}

}  // namespace tandem::loop
