// Expressions as steps. Problem: the same few index expressions have values at millions of points.
// Approach: each distinct node gets a register and each operator of it a step, operands first; a
// run is one pass over the steps.
#include "sym/steps.h"

#include <algorithm>

#include "sym/linear.h"

namespace tandem::sym {

namespace {

/// In its caller, which runs it at every point.
inline std::optional<int64_t> apply(Kind kind, int64_t a, int64_t b) {
  using Value = std::optional<int64_t>;
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

}  // namespace

std::optional<int64_t> apply_operator(Kind kind, int64_t a, int64_t b) { return apply(kind, a, b); }

Steps::Steps(Expr e) : symbols_(free_symbols(e)) {
  for (const Expr& symbol : symbols_) places_.emplace(symbol.node(), add_register(0));
  whole_ = place(e);
}

size_t Steps::add_register(int64_t value) {
  registers_.push_back(value);
  return registers_.size() - 1;
}

/// The register of a sub-expression, its steps written where it is new.
size_t Steps::place(Expr e) {
  if (e.is_constant()) return add_register(*e.constant());
  const auto known = places_.find(e.node());
  if (known != places_.end()) return known->second;
  size_t result = place(e.args()[0]);
  for (const Expr& arg : e.args().subspan(1)) {
    const size_t right = place(arg);
    steps_.push_back({e.kind(), result, right, add_register(0)});
    result = steps_.back().to;
  }
  places_.emplace(e.node(), result);
  return result;
}

std::optional<int64_t> Steps::run() {
  for (const Step& step : steps_) {
    const std::optional<int64_t> value =
        apply(step.kind, registers_[step.left], registers_[step.right]);
    if (!value.has_value()) return std::nullopt;
    registers_[step.to] = *value;
  }
  return registers_[whole_];
}

}  // namespace tandem::sym
