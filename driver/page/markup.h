// Text of a page: names from a user's program are data there, never markup.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::driver::page {

/// For element content and quoted attributes.
std::string escaped(std::string_view text);
/// A JSON string, quotes included, that may stand in a script element.
std::string json_text(std::string_view text);
std::string json_list(const std::vector<int64_t>& numbers);
/// "1.5 MiB".
std::string bytes_text(int64_t bytes);
/// At most so many characters; what is cut off is an ellipsis. Never cuts a character in two.
std::string shortened(std::string_view text, size_t most);

}  // namespace tandem::driver::page
