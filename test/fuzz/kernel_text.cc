// A damaged word of a kernel graph is refused where it stands. What is legal line by line and wrong
// as a whole goes further, so here words become others of their kind, and lines and blocks move.
#include "test/fuzz/kernel_text.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "test/fuzz/mutate.h"

namespace tandem::fuzz {
namespace {

using Lines = std::vector<std::string>;

Lines lines_of(const std::string& text) {
  Lines lines;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size() - 1);
    lines.push_back(text.substr(at, end - at + 1));
    at = end + 1;
  }
  return lines;
}

std::string joined(const Lines& lines) {
  std::string text;
  for (const std::string& line : lines) text += line;
  return text;
}

std::ptrdiff_t place(const Lines& lines, Random& random) {
  return 1 + static_cast<std::ptrdiff_t>(random.below(lines.size() - 1));
}

bool begins_block(const std::string& line) {
  return line.starts_with("item ") || line.starts_with("group ") || line.starts_with("kernel ") ||
         line.starts_with("  stage");
}

/// From a line that begins an item, a group, a kernel or a stage to the next that does.
std::pair<std::ptrdiff_t, std::ptrdiff_t> block_of(const Lines& lines, Random& random) {
  std::vector<std::ptrdiff_t> begins;
  for (std::ptrdiff_t i = 1; i < std::ssize(lines); ++i)
    if (begins_block(lines[static_cast<size_t>(i)])) begins.push_back(i);
  if (begins.empty()) return {1, 1};
  const size_t chosen = random.below(begins.size());
  const std::ptrdiff_t end =
      chosen + 1 < begins.size() ? begins[chosen + 1] : std::ssize(lines) - 1;
  return {begins[chosen], end};
}

void change_lines(Lines& lines, const Lines& other, Random& random) {
  const std::ptrdiff_t at = place(lines, random);
  const std::ptrdiff_t to = place(lines, random);
  switch (random.below(4)) {
    case 0: lines.erase(lines.begin() + at); break;
    case 1: lines.insert(lines.begin() + to, std::string(lines[static_cast<size_t>(at)])); break;
    case 2: std::swap(lines[static_cast<size_t>(at)], lines[static_cast<size_t>(to)]); break;
    default: lines.insert(lines.begin() + to, other[static_cast<size_t>(place(other, random))]);
  }
}

void change_blocks(Lines& lines, const Lines& other, Random& random) {
  const auto [begin, end] = block_of(lines, random);
  Lines block(lines.begin() + begin, lines.begin() + end);
  switch (random.below(3)) {
    case 0: lines.erase(lines.begin() + begin, lines.begin() + end); return;
    case 1: lines.insert(lines.begin() + place(lines, random), block.begin(), block.end()); return;
    default: break;
  }
  const auto [from, until] = block_of(other, random);
  lines.erase(lines.begin() + begin, lines.begin() + end);
  lines.insert(lines.begin() + begin, other.begin() + from, other.begin() + until);
}

// --- words of a kind

constexpr std::array<std::array<const char*, 9>, 11> kKinds = {{
    {"map", "reduce", "scan", "scatter", "library"},
    {"full", "row", "columns"},
    {"loops", "alone", "library", "chain"},
    {"read", "write", "read_write", "scratch"},
    {"sum", "dot", "prod", "min", "max", "argmax", "any", "all", "logaddexp"},
    {"f32", "i64", "bool", "bf16", "f64", "f16", "i32"},
    {"task", "vector", "unroll"},
    {"load", "element"},
    {"axis", "reduce", "outer"},
    {"stage", "after"},
    {"add", "mul", "sub", "max", "fma", "neg", "exp", "select", "lt"},
}};

/// Another word of its kind; empty for one that has no kind.
std::string like(const std::string& word, Random& random) {
  for (const auto& kind : kKinds) {
    const auto end = std::ranges::find(kind, nullptr);
    if (std::find(kind.begin(), end, word) == end) continue;
    return kind[random.below(static_cast<size_t>(end - kind.begin()))];
  }
  return "";
}

bool is_name(const std::string& token) {
  const bool has_digit = std::isdigit(static_cast<unsigned char>(token.back())) != 0;
  return has_digit && token.size() < 8 && token.find('_') == std::string::npos;
}

/// Numbers and names with numbers (b0, x1, r0, %3) become others of the text; words others of their
/// kind.
void change_words(Lines& lines, Random& random) {
  std::vector<std::string> tokens = tokens_of(joined(lines));
  std::vector<size_t> named;
  std::vector<size_t> kinds;
  for (size_t i = 4; i < tokens.size(); ++i) {
    if (is_name(tokens[i])) named.push_back(i);
    if (!like(tokens[i], random).empty()) kinds.push_back(i);
  }
  if (!kinds.empty() && random.one_in(3)) {
    std::string& word = tokens[random.pick(kinds)];
    word = like(word, random);
  } else if (!named.empty()) {
    std::string& word = tokens[random.pick(named)];
    std::vector<std::string> same;
    for (const size_t i : named)
      if (tokens[i][0] == word[0] || random.one_in(50)) same.push_back(tokens[i]);
    word = random.pick(same);
  }
  std::string text;
  for (const std::string& token : tokens) text += token;
  lines = lines_of(text);
}

}  // namespace

std::string mutate_kernels(const std::string& text, const std::vector<std::string>& others,
                           Random& random) {
  if (random.one_in(12)) return mutate_text(text, others, random);
  Lines lines = lines_of(text);
  for (size_t left = random.below(random.one_in(3) ? 4 : 2) + 1; left > 0; --left) {
    if (lines.size() < 3) break;
    const Lines other = lines_of(random.pick(others));
    switch (random.below(6)) {
      case 0: change_lines(lines, other, random); break;
      case 1: change_blocks(lines, other, random); break;
      case 2: {
        const Lines tail(lines.begin() + 1, lines.end());
        lines = lines_of(lines[0] + mutate_numbers(joined(tail), random));
        break;
      }
      default: change_words(lines, random);
    }
  }
  return joined(lines);
}

}  // namespace tandem::fuzz
