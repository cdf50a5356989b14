// Words of the text form, with the line each stands on.
#pragma once

#include <algorithm>
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

/// Where a parser stands among the words, and what it may ask of the next ones.
class TokenReader {
 public:
  explicit TokenReader(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

 protected:
  using Kind = Token::Kind;

  const Token& peek(size_t ahead = 0) const {
    return tokens_[std::min(at_ + ahead, tokens_.size() - 1)];
  }
  const Token& next() {
    const Token& token = peek();
    if (token.kind != Kind::end) ++at_;
    return token;
  }
  bool at(std::string_view text) const {
    return (peek().kind == Kind::symbol || peek().kind == Kind::name) && peek().text == text;
  }
  bool accept(std::string_view text) {
    if (!at(text)) return false;
    ++at_;
    return true;
  }
  /// Throws UserError at the line of the next word.
  [[noreturn]] void fail(const std::string& what) const;
  void expect(std::string_view text);
  std::string_view expect(Kind kind, std::string_view what);

  std::vector<Token> tokens_;
  size_t at_ = 0;
};

}  // namespace tandem::ir
