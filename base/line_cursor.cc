// One line and a place in it: words, numbers, brackets and quotes come off its front.
#include "base/line_cursor.h"

namespace tandem {

bool LineCursor::at_numbered(char letter) {
  skip();
  if (at_ + 1 >= text_.size() || text_[at_] != letter) return false;
  size_t end = at_ + 1;
  while (end < text_.size() && std::isdigit(static_cast<unsigned char>(text_[end])) != 0) ++end;
  return end > at_ + 1 && (end == text_.size() || !is_word(text_[end]));
}

int32_t LineCursor::numbered(char letter) {
  if (!at_numbered(letter)) fail(std::string("expected `") + letter + "` and a number");
  ++at_;
  int64_t number = integer();
  if (number > 1'000'000'000) fail("number too large");
  return static_cast<int32_t>(number);
}

std::string_view LineCursor::bracketed() {
  expect("[");
  size_t end = text_.find(']', at_);
  if (end == std::string_view::npos) fail("expected `]`");
  std::string_view inside = text_.substr(at_, end - at_);
  at_ = end + 1;
  return inside;
}

std::string_view LineCursor::until(std::string_view token) {
  size_t end = text_.find(token, at_);
  if (end == std::string_view::npos) fail("expected `" + std::string(token) + "`");
  std::string_view before = text_.substr(at_, end - at_);
  at_ = end;
  return before;
}

std::string_view LineCursor::rest() {
  std::string_view all = text_.substr(at_);
  at_ = text_.size();
  return all;
}

std::string LineCursor::quoted() {
  expect("\"");
  std::string value;
  for (; at_ < text_.size() && text_[at_] != '"'; ++at_) {
    bool escaped = text_[at_] == '\\' && at_ + 1 < text_.size();
    if (escaped) ++at_;
    value += escaped && text_[at_] == 'n' ? '\n' : text_[at_];
  }
  expect("\"");
  return value;
}

/// The line without its comment: from the first `;` outside quotes.
std::string_view without_comment(std::string_view line) {
  bool quotes = false;
  for (size_t i = 0; i < line.size(); ++i) {
    if (quotes && line[i] == '\\') {
      ++i;
    } else if (line[i] == '"') {
      quotes = !quotes;
    } else if (line[i] == ';' && !quotes) {
      return line.substr(0, i);
    }
  }
  return line;
}

std::vector<std::string_view> parts_of(std::string_view list) {
  std::vector<std::string_view> parts;
  int depth = 0;
  size_t begin = 0;
  for (size_t i = 0; i <= list.size(); ++i) {
    const bool ends = i == list.size() || (list[i] == ',' && depth == 0);
    if (!ends) depth += list[i] == '(' ? 1 : list[i] == ')' ? -1 : 0;
    if (!ends) continue;
    parts.push_back(list.substr(begin, i - begin));
    begin = i + 1;
  }
  const bool is_blank = list.find_first_not_of(' ') == std::string_view::npos;
  return is_blank ? std::vector<std::string_view>{} : parts;
}

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (c == '\n') {
      out += "\\n";
      continue;
    }
    out += c;
  }
  return out + '"';
}

}  // namespace tandem
