// What changed between two texts, for people.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tandem::golden {

/// Lines without their ends; text that ends in a newline has no empty last line.
std::vector<std::string> lines_of(std::string_view text);

/// Unified diff with three lines of context; empty when the texts have equal lines.
std::string unified_diff(std::string_view old_text, std::string_view new_text,
                         const std::string& old_name, const std::string& new_name);

}  // namespace tandem::golden
