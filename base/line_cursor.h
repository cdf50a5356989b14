// Reading a text form line by line: one line is one statement, its words are taken off its front.
#pragma once

#include <cctype>
#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/diagnostic.h"

namespace tandem {

inline bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

/// One line and a place in it.
class LineCursor {
 public:
  /// `room`: who reads it, for errors.
  LineCursor(std::string_view text, int line, std::string_view room)
      : text_(text), room_(room), line_(line) {}

  bool done() {
    skip();
    return at_ == text_.size();
  }
  bool looks_at(std::string_view token) {
    skip();
    return text_.substr(at_).starts_with(token);
  }
  bool eat(std::string_view token) {
    if (!looks_at(token)) return false;
    size_t end = at_ + token.size();
    bool splits_word = is_word(token.back()) && end < text_.size() && is_word(text_[end]);
    if (splits_word) return false;
    at_ = end;
    return true;
  }
  void expect(std::string_view token) {
    if (!eat(token)) fail("expected `" + std::string(token) + "`");
  }
  void expect_end() {
    if (!done()) fail("unexpected text");
  }
  /// `more`: what may stand in it beside letters, digits and `_`.
  std::string_view word(std::string_view more = "") {
    skip();
    size_t begin = at_;
    while (at_ < text_.size() &&
           (is_word(text_[at_]) || more.find(text_[at_]) != std::string_view::npos))
      ++at_;
    if (at_ == begin) fail("expected a name");
    return text_.substr(begin, at_ - begin);
  }
  int64_t integer() {
    skip();
    int64_t value = 0;
    std::from_chars_result end = std::from_chars(begin(), text_.data() + text_.size(), value);
    if (end.ec != std::errc()) fail("expected a number");
    at_ += static_cast<size_t>(end.ptr - begin());
    return value;
  }
  /// A number of a buffer, local, value or error: `letter` directly before it.
  int32_t numbered(char letter);
  bool at_numbered(char letter);
  /// Text up to the `]` that closes an open `[`.
  std::string_view bracketed();
  std::string_view until(std::string_view token);
  std::string_view rest();
  std::string quoted();
  [[noreturn]] void fail(std::string_view what) const {
    throw UserError("[" + std::string(room_) + "] line " + std::to_string(line_) + ": " +
                    std::string(what) + " at `" + std::string(text_.substr(at_)) + "`");
  }

 private:
  void skip() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t')) ++at_;
  }
  const char* begin() const { return text_.data() + at_; }

  std::string_view text_;
  std::string_view room_;
  int line_;
  size_t at_ = 0;
};

/// The line without its comment: from the first `;` outside quotes.
std::string_view without_comment(std::string_view line);
/// What stands between the commas outside of parentheses; of blanks nothing.
std::vector<std::string_view> parts_of(std::string_view list);
/// In quotes, as `LineCursor::quoted` reads it.
std::string quoted(std::string_view text);

}  // namespace tandem
