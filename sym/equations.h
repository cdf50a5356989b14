// What equations between sizes say of one of them: a narrower range, and a number that it is a
// multiple of. `(s0 + 319)//320 == 1` says s0 <= 320; `s0//2//2*4 == s0` says that 4 divides s0.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "sym/sym.h"

namespace tandem::sym {

struct Equation {
  Expr left;
  Expr right;
};

/// `left == right`. On malformed text returns nullopt and sets *error.
std::optional<Equation> parse_equation(Pool& pool, std::string_view text, std::string* error);

struct SizeFacts {
  Range range;
  int64_t divisor = 1;
};

/// Begins with the range that the symbol has. Equations of which nothing follows for it change
/// nothing. Raises UserError where they leave no value.
SizeFacts solve(Expr symbol, std::span<const Equation> equations);

}  // namespace tandem::sym
