// Damage to texts and bytes that keeps most of their structure.
#pragma once

#include <string>
#include <vector>

#include "test/fuzz/random.h"

namespace tandem::fuzz {

/// Words, numbers, punctuation and space; joined they are the text again.
std::vector<std::string> tokens_of(const std::string& text);

/// One to eight changes of tokens and lines; now and then of one letter, and very rarely a piece
/// that is repeated thousands of times. New tokens are those of `others`, or numbers at the edges
/// of types.
std::string mutate_text(const std::string& text, const std::vector<std::string>& others,
                        Random& random);

/// One or two numbers become others; nothing else changes, so most rules of the text still hold.
std::string mutate_numbers(const std::string& text, Random& random);

/// Bits, bytes, numbers of 1 to 8 bytes, and pieces that are removed, doubled or cut off.
std::string mutate_bytes(std::string bytes, Random& random);

}  // namespace tandem::fuzz
