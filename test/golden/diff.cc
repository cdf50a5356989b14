// Lines of the longest common subsequence stay, the rest are removed or added. Golden files are
// short, so the quadratic table is no matter. Changes with at most six equal lines between them
// share a hunk.
#include "test/golden/diff.h"

#include <fmt/format.h>

#include <algorithm>

namespace tandem::golden {
namespace {

constexpr size_t kContext = 3;

struct Edit {
  char kind;  // ' ', '-' or '+'
  std::string text;
};
using Lines = std::vector<std::string>;

/// common[i][j]: length of the longest common subsequence of old[i..] and new[j..].
std::vector<std::vector<size_t>> common_lengths(const Lines& old_lines, const Lines& new_lines) {
  std::vector<std::vector<size_t>> common(old_lines.size() + 1,
                                          std::vector<size_t>(new_lines.size() + 1, 0));
  for (size_t i = old_lines.size(); i-- > 0;)
    for (size_t j = new_lines.size(); j-- > 0;)
      common[i][j] = old_lines[i] == new_lines[j] ? common[i + 1][j + 1] + 1
                                                  : std::max(common[i + 1][j], common[i][j + 1]);
  return common;
}

std::vector<Edit> edits_between(const Lines& old_lines, const Lines& new_lines) {
  std::vector<std::vector<size_t>> common = common_lengths(old_lines, new_lines);
  std::vector<Edit> edits;
  size_t i = 0;
  size_t j = 0;
  while (i < old_lines.size() || j < new_lines.size()) {
    bool both = i < old_lines.size() && j < new_lines.size();
    if (both && old_lines[i] == new_lines[j]) {
      edits.push_back({' ', old_lines[i++]});
      ++j;
    } else if (j == new_lines.size() || (both && common[i + 1][j] >= common[i][j + 1])) {
      edits.push_back({'-', old_lines[i++]});
    } else {
      edits.push_back({'+', new_lines[j++]});
    }
  }
  return edits;
}

/// Edits near enough to a change to be shown.
std::vector<bool> shown(const std::vector<Edit>& edits) {
  std::vector<bool> show(edits.size(), false);
  for (size_t i = 0; i < edits.size(); ++i) {
    if (edits[i].kind == ' ') continue;
    size_t end = std::min(edits.size(), i + kContext + 1);
    for (size_t k = i - std::min(i, kContext); k < end; ++k) show[k] = true;
  }
  return show;
}

}  // namespace

std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    size_t end = std::min(text.find('\n'), text.size());
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

std::string unified_diff(std::string_view old_text, std::string_view new_text,
                         const std::string& old_name, const std::string& new_name) {
  std::vector<Edit> edits = edits_between(lines_of(old_text), lines_of(new_text));
  std::vector<bool> show = shown(edits);
  std::string hunks;
  size_t old_line = 1;
  size_t new_line = 1;
  for (size_t i = 0; i < edits.size();) {
    std::string body;
    size_t old_start = old_line;
    size_t new_start = new_line;
    bool inside = show[i];
    for (; i < edits.size() && show[i] == inside; ++i) {
      if (inside) body += edits[i].kind + edits[i].text + "\n";
      old_line += edits[i].kind != '+';
      new_line += edits[i].kind != '-';
    }
    if (inside)
      hunks += fmt::format("@@ -{},{} +{},{} @@\n{}", old_start, old_line - old_start, new_start,
                           new_line - new_start, body);
  }
  if (hunks.empty()) return "";
  return fmt::format("--- {}\n+++ {}\n{}", old_name, new_name, hunks);
}

}  // namespace tandem::golden
