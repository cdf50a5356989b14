// A parser refuses most random texts at their first byte. Changes of whole tokens keep the rest of
// an input meaningful, so that what is wrong stands anywhere in it, also behind the parser.
#include "test/fuzz/mutate.h"

#include <algorithm>
#include <cctype>
#include <cstring>

namespace tandem::fuzz {
namespace {

constexpr size_t kLongest = 1 << 16;  // of an input, but for repeated pieces

const std::vector<std::string>& edges() {
  static const std::vector<std::string> kEdges = {"0",
                                                  "1",
                                                  "-1",
                                                  "2",
                                                  "3",
                                                  "7",
                                                  "64",
                                                  "65",
                                                  "255",
                                                  "1000000",
                                                  "2147483647",
                                                  "2147483648",
                                                  "4294967295",
                                                  "4611686018427387904",
                                                  "9223372036854775807",
                                                  "9223372036854775808",
                                                  "-9223372036854775808",
                                                  "18446744073709551616",
                                                  "0.5",
                                                  "1e308",
                                                  "-1e-320",
                                                  "nan",
                                                  "inf",
                                                  "99999999999999999999999999",
                                                  ""};
  return kEdges;
}

enum class Kind { space, word, other };

Kind kind_of(char c) {
  const unsigned char byte = static_cast<unsigned char>(c);
  if (c == ' ') return Kind::space;
  return std::isalnum(byte) != 0 || c == '_' || c == '.' ? Kind::word : Kind::other;
}

bool is_number(const std::string& token) {
  return std::isdigit(static_cast<unsigned char>(token[0])) != 0;
}

using Tokens = std::vector<std::string>;

std::ptrdiff_t place(const Tokens& tokens, Random& random) {
  return static_cast<std::ptrdiff_t>(random.below(tokens.size()));
}

/// A short run of tokens, or the rest of a line.
std::ptrdiff_t end_of(const Tokens& tokens, std::ptrdiff_t begin, Random& random) {
  if (!random.one_in(3))
    return std::min<std::ptrdiff_t>(begin + 1 + static_cast<std::ptrdiff_t>(random.below(4)),
                                    std::ssize(tokens));
  const Tokens::const_iterator line =
      std::find(tokens.begin() + begin, tokens.end(), std::string("\n"));
  return line == tokens.end() ? std::ssize(tokens) : line - tokens.begin() + 1;
}

void replace(Tokens& tokens, const std::vector<std::string>& others, Random& random) {
  std::string& token = tokens[random.below(tokens.size())];
  if (is_number(token) || random.one_in(4)) {
    token = random.pick(edges());
    return;
  }
  const Tokens from = tokens_of(random.pick(others));
  if (!from.empty()) token = random.pick(from);
}

void change_letter(Tokens& tokens, Random& random) {
  std::string& token = tokens[random.below(tokens.size())];
  token[random.below(token.size())] = static_cast<char>(random.next());
}

void splice(Tokens& tokens, const std::vector<std::string>& others, Random& random) {
  const Tokens from = tokens_of(random.pick(others));
  if (from.empty()) return;
  const std::ptrdiff_t begin = place(from, random);
  const std::ptrdiff_t end = end_of(from, begin, random);
  tokens.insert(tokens.begin() + place(tokens, random), from.begin() + begin, from.begin() + end);
}

void repeat(Tokens& tokens, Random& random) {
  const std::ptrdiff_t begin = place(tokens, random);
  const Tokens piece(tokens.begin() + begin, tokens.begin() + end_of(tokens, begin, random));
  std::string text;
  for (const std::string& token : piece) text += token;
  std::string many;
  const size_t most = random.one_in(8) ? 20000 : 200;
  for (size_t i = 0; i < most && many.size() < kLongest; ++i) many += text;
  tokens.insert(tokens.begin() + begin, many);
}

void change(Tokens& tokens, const std::vector<std::string>& others, Random& random) {
  const std::ptrdiff_t begin = place(tokens, random);
  const std::ptrdiff_t end = end_of(tokens, begin, random);
  switch (random.below(8)) {
    case 0: tokens.erase(tokens.begin() + begin, tokens.begin() + end); return;
    case 1: {
      const Tokens piece(tokens.begin() + begin, tokens.begin() + end);
      tokens.insert(tokens.begin() + place(tokens, random), piece.begin(), piece.end());
      return;
    }
    case 2:
      std::swap(tokens[random.below(tokens.size())], tokens[random.below(tokens.size())]);
      return;
    case 3: splice(tokens, others, random); return;
    case 4: return random.one_in(40) ? repeat(tokens, random) : change_letter(tokens, random);
    default: replace(tokens, others, random); return;
  }
}

}  // namespace

std::vector<std::string> tokens_of(const std::string& text) {
  Tokens tokens;
  for (size_t at = 0; at < text.size();) {
    const Kind kind = kind_of(text[at]);
    size_t end = at + 1;
    while (kind != Kind::other && end < text.size() && kind_of(text[end]) == kind) ++end;
    tokens.push_back(text.substr(at, end - at));
    at = end;
  }
  return tokens;
}

std::string mutate_text(const std::string& text, const std::vector<std::string>& others,
                        Random& random) {
  Tokens tokens = tokens_of(text);
  for (size_t left = random.below(random.one_in(3) ? 8 : 2) + 1; left > 0; --left) {
    std::erase(tokens, std::string());
    if (!tokens.empty()) change(tokens, others, random);
  }
  std::string result;
  for (const std::string& token : tokens) result += token;
  return result.substr(0, 4 * kLongest);
}

std::string mutate_numbers(const std::string& text, Random& random) {
  Tokens tokens = tokens_of(text);
  std::vector<size_t> numbers;
  for (size_t i = 0; i < tokens.size(); ++i)
    if (is_number(tokens[i])) numbers.push_back(i);
  for (size_t left = random.below(2) + 1; left > 0 && !numbers.empty(); --left) {
    std::string& number = tokens[random.pick(numbers)];
    number = random.one_in(2) ? random.pick(edges()) : std::to_string(random.below(6));
    if (random.one_in(6)) number = "-" + number;
  }
  std::string result;
  for (const std::string& token : tokens) result += token;
  return result;
}

std::string mutate_bytes(std::string bytes, Random& random) {
  for (size_t left = random.below(random.one_in(3) ? 8 : 2) + 1; left > 0; --left) {
    if (bytes.empty()) return bytes;
    const size_t at = random.below(bytes.size());
    const size_t length = std::min(bytes.size() - at, random.below(16) + 1);
    switch (random.below(7)) {
      case 0: bytes[at] = static_cast<char>(bytes[at] ^ (1 << random.below(8))); break;
      case 1: bytes[at] = static_cast<char>(random.next()); break;
      case 2: bytes.erase(at, length); break;
      case 3: bytes.insert(random.below(bytes.size()), bytes.substr(at, length)); break;
      case 4: bytes.resize(random.one_in(4) ? at : bytes.size()); break;
      default: {
        const uint64_t near = random.below(5) - 2 + (uint64_t{1} << random.below(64));
        const uint64_t number = random.one_in(2) ? near : random.below(300);
        const size_t size = std::min(bytes.size() - at, size_t{1} << random.below(4));
        std::memcpy(bytes.data() + at, &number, size);
      }
    }
  }
  return bytes;
}

}  // namespace tandem::fuzz
