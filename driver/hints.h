// What a caller knows of the calls to come, and what of it a program was compiled for.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/diagnostic.h"
#include "ir/text.h"

namespace tandem::driver {

/// Nothing here is part of a program until it has to be: see `ir::Bindings`.
struct Hints {
  std::map<std::string, int64_t> sizes;  // of symbols, in the call at hand
  std::map<std::string, double> floats;  // of inputs and numbers that the text names
  std::vector<std::string> equations;    // `s0*s1 == s2*s3`: they hold in all calls
};

/// Of equations between products: a symbol is the one of the other side that has the same size now,
/// and what is left of such an equation are numbers. Other equations, and those of symbols without
/// a size, say nothing.
ir::Bindings tied(const Hints& hints);

/// Adds what the error says is unknown. Where it names nothing: that sizes are one which are equal
/// now; then numbers of those that stand in equations, and then of all, as what is refused of sizes
/// that nobody knows (a layout without gaps) may pass of numbers. False where there is nothing to
/// add.
bool add_unknown(const UserError& error, const Hints& hints, ir::Bindings& bindings);

/// A program with these bindings serves the call at hand.
bool serves(const ir::Bindings& bindings, const Hints& hints);

/// The text with the bindings in it.
std::string bound_text(std::string_view text, const ir::Bindings& bindings);

}  // namespace tandem::driver
