// Problem: operators, names of parameters and source places may hold any character, and two
// grammars read the page, HTML and the JSON in its script elements. Approach: one function for
// each grammar, and nothing reaches the page but through one of them.
#include "driver/page/markup.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <cmath>

namespace tandem::driver::page {
namespace {

std::string_view entity_of(char character) {
  switch (character) {
    case '&': return "&amp;";
    case '<': return "&lt;";
    case '>': return "&gt;";
    case '"': return "&quot;";
    case '\'': return "&#39;";
    default: return {};
  }
}

/// Of what JSON does not take as it is, and of what would end a script element.
bool needs_code(char character) {
  return static_cast<unsigned char>(character) < 0x20 || character == '"' || character == '\\' ||
         character == '<' || character == '>' || character == '&';
}

/// Inside of a character of UTF-8.
bool is_continued(char byte) { return (static_cast<unsigned char>(byte) & 0xc0) == 0x80; }

}  // namespace

std::string escaped(std::string_view text) {
  std::string out;
  for (const char character : text) {
    const std::string_view entity = entity_of(character);
    if (entity.empty()) {
      out += character;
    } else {
      out += entity;
    }
  }
  return out;
}

std::string json_text(std::string_view text) {
  std::string out = "\"";
  for (const char character : text)
    out +=
        needs_code(character)
            ? fmt::format("\\u{:04x}", static_cast<unsigned>(static_cast<unsigned char>(character)))
            : std::string(1, character);
  return out + "\"";
}

std::string json_list(const std::vector<int64_t>& numbers) {
  return fmt::format("[{}]", fmt::join(numbers, ","));
}

std::string bytes_text(int64_t bytes) {
  constexpr std::array<const char*, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  double number = static_cast<double>(bytes);
  size_t unit = 0;
  while (std::abs(number) >= 1024 && unit + 1 < kUnits.size()) number /= 1024, ++unit;
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.2f} {}", number, kUnits[unit]);
}

std::string shortened(std::string_view text, size_t most) {
  size_t characters = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    if (is_continued(text[at])) continue;
    if (characters++ == most) return std::string(text.substr(0, at)) + "…";
  }
  return std::string(text);
}

}  // namespace tandem::driver::page
