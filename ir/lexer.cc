// Names may hold dots (aten.add.Tensor), values start with %, numbers are what strtod reads.
#include "ir/lexer.h"

#include <fmt/format.h>

#include <cctype>

#include "base/diagnostic.h"

namespace tandem::ir {
namespace {

bool is_name_char(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.' || c == '$' ||
         c == ':';
}

class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(text) {}

  std::vector<Token> run() {
    std::vector<Token> tokens;
    do {
      skip();
      tokens.push_back(next());
    } while (tokens.back().kind != Token::Kind::end);
    return tokens;
  }

 private:
  void skip() {
    while (at_ < text_.size()) {
      if (text_[at_] == '\n') ++line_;
      if (text_[at_] == ';') {
        while (at_ < text_.size() && text_[at_] != '\n') ++at_;
      } else if (std::isspace(static_cast<unsigned char>(text_[at_]))) {
        ++at_;
      } else {
        return;
      }
    }
  }

  Token make(Token::Kind kind, size_t start, size_t end) const {
    return {kind, text_.substr(start, end - start), line_, start};
  }

  size_t end_of_name(size_t i) const {
    while (i < text_.size() && is_name_char(text_[i])) ++i;
    while (i > at_ && text_[i - 1] == ':') --i;  // the colon of `%x: f32[2]`
    return i;
  }

  Token number() {
    size_t start = at_;
    while (at_ < text_.size()) {
      char c = text_[at_];
      bool exponent_sign =
          (c == '+' || c == '-') && (text_[at_ - 1] == 'e' || text_[at_ - 1] == 'E');
      if (!std::isalnum(static_cast<unsigned char>(c)) && c != '.' && !exponent_sign) break;
      ++at_;
    }
    return make(Token::Kind::number, start, at_);
  }

  Token string() {
    size_t start = ++at_;
    while (at_ < text_.size() && text_[at_] != '"' && text_[at_] != '\n') ++at_;
    if (at_ == text_.size() || text_[at_] != '"') fail("string without an end");
    return make(Token::Kind::string, start, at_++);
  }

  Token next() {
    if (at_ >= text_.size()) return make(Token::Kind::end, at_, at_);
    char c = text_[at_];
    size_t start = at_;
    if (c == '"') return string();
    if (std::isdigit(static_cast<unsigned char>(c))) return number();
    if (c == '%' && at_ + 1 < text_.size() && is_name_char(text_[at_ + 1])) {
      at_ = end_of_name(at_ + 1);
      return make(Token::Kind::value, start + 1, at_);
    }
    if (is_name_char(c) && c != ':' && c != '.') {
      at_ = end_of_name(at_);
      return make(Token::Kind::name, start, at_);
    }
    size_t length = text_.substr(at_, 2) == "//" || text_.substr(at_, 2) == "->" ? 2 : 1;
    if (length == 1 && std::string_view("(){}[],=:@+-*%").find(c) == std::string_view::npos)
      fail(c > ' ' && c <= '~' ? fmt::format("unexpected '{}'", c)
                               : fmt::format("unexpected byte {}", static_cast<unsigned char>(c)));
    at_ += length;
    return make(Token::Kind::symbol, start, at_);
  }

  [[noreturn]] void fail(const std::string& what) const {
    throw UserError(what, fmt::format("line {}", line_));
  }

  std::string_view text_;
  size_t at_ = 0;
  int line_ = 1;
};

}  // namespace

std::vector<Token> tokenize(std::string_view text) { return Lexer(text).run(); }

void TokenReader::fail(const std::string& what) const {
  throw UserError(what, fmt::format("line {}", peek().line));
}

void TokenReader::expect(std::string_view text) {
  if (!accept(text)) fail(fmt::format("expected '{}', found '{}'", text, peek().text));
}

std::string_view TokenReader::expect(Kind kind, std::string_view what) {
  if (peek().kind != kind) fail(fmt::format("expected {}, found '{}'", what, peek().text));
  return next().text;
}

}  // namespace tandem::ir
