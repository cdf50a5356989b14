// Problem: models write masks as arithmetic over positions (arange, diff, cumsum, indexing by
// aranges). Taken as data, each is a tensor that is computed, stored and read, and nobody sees that
// a mask is causal. Approach: an op's own definition is run over what is known of its operands, so
// that no op needs a rule of its own; what comes out is simplified by equations that hold at every
// position. Formulas stay short, so a long chain of them costs what it is long.
#include "ops/positional.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "base/check.h"
#include "ops/elements.h"

namespace tandem::ops {
namespace {

using loop::Opcode;
using loop::Scalar;
using loop::ScalarPool;
using loop::Val;
using sym::Expr;

// --- arithmetic of positions

bool is_position(Val value) { return loop::position_of(value).has_value(); }

/// No size of a tensor in memory is larger.
constexpr double kLongest = 0x1p48;
/// Indices are computed as if nothing overflowed; behind this it might, and an i64 wraps.
constexpr double kFarthest = 0x1p60;
constexpr int kDeepest = 6;

double magnitude(Expr e, int depth = 0);

double magnitude_of_operation(Expr e, int depth) {
  const bool is_product = e.kind() == sym::Kind::mul;
  const bool is_sum = e.kind() == sym::Kind::add;
  double all = is_product ? 1 : 0;
  for (Expr arg : e.args()) {
    const double one = magnitude(arg, depth + 1);
    all = is_product ? all * one : is_sum ? all + one : std::max(all, one);
  }
  return all;
}

/// At least the largest absolute value on the way to it.
double magnitude(Expr e, int depth) {
  if (e.is_constant()) return std::abs(static_cast<double>(*e.constant()));
  if (depth > kDeepest) return std::numeric_limits<double>::infinity();
  if (!e.is_symbol()) return magnitude_of_operation(e, depth);
  const sym::Range range = e.range();
  const double least = std::abs(static_cast<double>(range.lo));
  return std::min(kLongest, std::max(least, static_cast<double>(range.hi)));
}

std::optional<Expr> computed(Opcode opcode, std::span<const Val> args) {
  const Expr a = *loop::position_of(args[0]);
  if (opcode == Opcode::neg) return -a;
  const Expr b = *loop::position_of(args[1]);
  if (opcode == Opcode::add) return a + b;
  if (opcode == Opcode::sub) return a - b;
  const bool is_scaled = opcode == Opcode::mul && (a.is_constant() || b.is_constant());
  return is_scaled ? std::optional<Expr>(a * b) : std::nullopt;
}

/// Integer arithmetic over indices is an index, where it cannot overflow.
Val as_index(ScalarPool& pool, Opcode opcode, std::span<const Val> args) {
  constexpr std::array kOpcodes{Opcode::neg, Opcode::add, Opcode::sub, Opcode::mul};
  if (std::ranges::find(kOpcodes, opcode) == kOpcodes.end()) return nullptr;
  if (!std::ranges::all_of(args, is_position)) return nullptr;
  double largest = opcode == Opcode::mul ? 1 : 0;
  for (Val arg : args) {
    const double one = magnitude(*loop::position_of(arg));
    largest = opcode == Opcode::mul ? largest * one : largest + one;
  }
  if (!(largest < kFarthest)) return nullptr;
  const std::optional<Expr> e = computed(opcode, args);
  return e ? pool.index(*e) : nullptr;
}

// --- choices

/// Of integers, where the one fails exactly where the other holds.
Opcode opposite(Opcode opcode) {
  switch (opcode) {
    case Opcode::eq: return Opcode::ne;
    case Opcode::ne: return Opcode::eq;
    case Opcode::lt: return Opcode::ge;
    case Opcode::ge: return Opcode::lt;
    case Opcode::le: return Opcode::gt;
    case Opcode::gt: return Opcode::le;
    default: return opcode;
  }
}

bool is_opposite(Val a, Val b) {
  return a->opcode != b->opcode && a->opcode == opposite(b->opcode) && a->args == b->args &&
         !is_float(a->args[0]->dtype);
}

/// The only value of its left side, a symbol, where a comparison of indices fails; nothing where
/// there are several.
std::optional<Expr> only_failure(Val compare) {
  if (compare->args.size() != 2 || !std::ranges::all_of(compare->args, is_position))
    return std::nullopt;
  const Expr x = *loop::position_of(compare->args[0]);
  const Expr y = *loop::position_of(compare->args[1]);
  if (!x.is_symbol() || sym::depends_on(y, x)) return std::nullopt;
  const auto if_known = [](bool known, Expr e) { return known ? std::optional(e) : std::nullopt; };
  switch (compare->opcode) {
    case Opcode::ne: return y;
    case Opcode::ge: return if_known(sym::known_le(y - 1, x), y - 1);
    case Opcode::gt: return if_known(sym::known_le(y, x), y);
    case Opcode::le: return if_known(sym::known_le(x, y + 1), y + 1);
    case Opcode::lt: return if_known(sym::known_le(x, y), y);
    default: return std::nullopt;
  }
}

/// Where the condition fails, which is where x = e, both arms are the same number.
bool agree_at_failure(Val cond, Val a, Val b) {
  const std::optional<Expr> x = loop::position_of(a);
  const std::optional<Expr> y = loop::position_of(b);
  if (!x || !y) return false;
  const std::optional<Expr> e = only_failure(cond);
  if (!e) return false;
  const sym::Substitution there{{*loop::position_of(cond->args[0]), *e}};
  return sym::known_eq(sym::substitute(*x, there), sym::substitute(*y, there));
}

/// select(c, select(c, a, d), b) = select(c, a, b)
/// select(c, a, select(not c, b, d)) = select(c, a, b)
/// select(c, a, b) = a where b = a wherever c fails
Val chosen(ScalarPool& pool, Val cond, Val a, Val b) {
  if (a->opcode == Opcode::select && cond == a->args[0]) a = a->args[1];
  if (b->opcode == Opcode::select && is_opposite(cond, b->args[0])) b = b->args[1];
  return agree_at_failure(cond, a, b) ? a : pool.select(cond, a, b);
}

Val simplified(ScalarPool& pool, Val value) {
  loop::Rewrite how;
  how.replace = [&pool](const Scalar& node, std::span<const Val> args) -> Val {
    if (node.opcode == Opcode::select) return chosen(pool, args[0], args[1], args[2]);
    return node.dtype == DType::i64 ? as_index(pool, node.opcode, args) : nullptr;
  };
  return loop::rewrite(pool, pool, std::span(&value, 1), how)[0];
}

// --- what a formula may hold

/// Scalars of one formula; masks of transformers have ten.
constexpr size_t kLongestFormula = 64;

bool is_short(Val value) {
  const std::vector<Val> parts = loop::reachable(std::span(&value, 1));
  const auto fails = [](Val part) { return part->opcode == Opcode::check; };
  return parts.size() <= kLongestFormula && std::ranges::none_of(parts, fails);
}

bool is_integer(const ir::Value* value) {
  return value->type.is_tensor() &&
         (is_int(value->type.dtype) || value->type.dtype == DType::boolean);
}

}  // namespace

bool PositionalValues::follows(const ir::Node& node) const {
  const OpDef& def = def_of(node);
  if (def.lower == nullptr || def.random || def.opaque || node.op->mutates()) return false;
  if (!std::ranges::all_of(node.results, is_integer)) return false;
  bool known = true;
  ir::for_each_operand(node.args,
                       [&](const ir::Value* operand) { known &= of(operand) != nullptr; });
  return known;
}

Index PositionalValues::axes_of(const ir::Sizes& sizes) {
  Index axes;
  for (Expr size : sizes) axes.push_back(pool_.symbols().index("p", size));
  return axes;
}

/// A running sum of c is c * (i + 1); of c over n positions, c * n.
Val PositionalValues::summed(const Definition& def, const Index& axes) {
  if (def.combiner != loop::Combiner::sum || def.finish || def.reduce_sizes.size() != 1)
    return nullptr;
  const Index point = axes_of(def.reduce_sizes);
  const Val each = simplified(pool_, def.input(axes, point)[0]);
  if (each->opcode != Opcode::constant || each->dtype != DType::i64) return nullptr;
  const bool is_scan = def.kind == Definition::Kind::scan;
  const Expr count =
      is_scan ? axes[static_cast<size_t>(def.reduced_dims[0])] + 1 : def.reduce_sizes[0];
  const std::array<Val, 2> factors{each, pool_.index(count)};
  return as_index(pool_, Opcode::mul, factors);
}

void PositionalValues::visit(const ir::Node& node) {
  if (!follows(node)) return;
  const Definition def = def_of(node).lower(*this, node.call());
  for (size_t i = 0; i < node.results.size(); ++i) {
    const Index axes = axes_of(node.results[i]->type.sizes);
    Val value = nullptr;
    if (def.kind == Definition::Kind::map) value = def.map(i, axes);
    if (def.kind == Definition::Kind::reduce || def.kind == Definition::Kind::scan)
      value = summed(def, axes);
    if (value != nullptr) learn(node.results[i], {axes, value});
  }
}

void PositionalValues::learn(const ir::Value* value, Formula formula) {
  formula.value = simplified(pool_, pool_.cast(formula.value, value->type.dtype));
  if (is_short(formula.value)) known_[value->id] = std::move(formula);
}

const PositionalValues::Formula* PositionalValues::of(const ir::Value* value) const {
  const auto found = known_.find(value->id);
  return found == known_.end() ? nullptr : &found->second;
}

Val PositionalValues::load(const ir::Value* tensor, const Index& index, Val mask) {
  const Formula& formula = *of(tensor);
  sym::Substitution at;
  for (size_t i = 0; i < index.size(); ++i)
    if (formula.axes[i].is_symbol()) at.emplace_back(formula.axes[i], index[i]);
  const Val there =
      pool_.cast(loop::substituted(pool_, formula.value, at), compute_type(tensor->type.dtype));
  return mask == nullptr ? there : pool_.select(mask, there, pool_.integer(there->dtype, 0));
}

Val PositionalValues::scalar(const ir::Arg& arg, DType dtype) {
  const Val number = number_of(pool_, arg, dtype);
  TD_CHECK(number != nullptr) << "a scalar argument is " << ir::to_string(arg);
  return number;
}

Val PositionalValues::launch_number(int64_t number) {
  TD_CHECK(false) << "a number of one call, " << number << ", in an op that draws none";
  return nullptr;
}

std::optional<int64_t> constant_of(const PositionalValues::Formula& formula) {
  if (formula.value->opcode != Opcode::constant) return std::nullopt;
  return formula.value->integer;
}

std::optional<Ramp> ramp_of(const PositionalValues::Formula& formula) {
  const std::optional<Expr> e = loop::position_of(formula.value);
  if (!e) return std::nullopt;
  std::optional<Ramp> found;
  for (size_t i = 0; i < formula.axes.size(); ++i) {
    if (!formula.axes[i].is_symbol() || !sym::depends_on(*e, formula.axes[i])) continue;
    const std::optional<sym::Affine> affine = sym::affine_in(*e, formula.axes[i]);
    if (found || !affine || !affine->coefficient.is_constant()) return std::nullopt;
    found = Ramp{static_cast<int64_t>(i), affine->rest, *affine->coefficient.constant()};
  }
  return found;
}

}  // namespace tandem::ops
