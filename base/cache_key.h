// What an entry of a cache depends on, in parts that have names: so two keys can be told apart in
// words.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/target.h"

namespace tandem {

struct KeyPart {
  std::string name;
  std::string value;  // text, or bytes
};
template <class A>
void fields(A& archive, KeyPart& part) {
  auto& [name, value] = part;
  archive(name, value);
}
using CacheKey = std::vector<KeyPart>;

/// Parts of a key: its processor, caches, and what was measured of it.
CacheKey key_of(const Target& target);

/// Bytes that tell their own length; and back, off the beginning of `bytes`. Nothing where they are
/// none.
std::string to_bytes(const CacheKey& key);
std::optional<CacheKey> take_key(std::string_view& bytes);

/// The value of a part; empty where there is none.
std::string_view part_of(const CacheKey& key, std::string_view name);

/// A line for each part that differs: "memory_budget: 'default' here, '0.5' there"; of long text
/// the first line that differs.
std::vector<std::string> differences(const CacheKey& here, const CacheKey& there);

}  // namespace tandem
