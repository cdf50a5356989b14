// Words of the text form, with the line each stands on.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tandem::ir {

struct Token {
  enum class Kind : unsigned char { name, value, number, string, symbol, end };
  Kind kind = Kind::end;
  std::string_view text;  // of a value without its %, of a string without its quotes
  int line = 1;
  size_t offset = 0;
};

/// Splits text; `;` starts a comment to the end of the line. Throws UserError on a character that
/// starts no word.
std::vector<Token> tokenize(std::string_view text);

}  // namespace tandem::ir
