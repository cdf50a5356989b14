// A key is compared whole, as bytes; that it has parts serves people, who ask why a program was
// compiled again. Text is compared line by line, so that of two graphs the first node that differs
// is named.
#include "base/cache_key.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/archive.h"

namespace tandem {
namespace {

constexpr size_t kShort = 120;  // bytes of a value that is shown whole

/// Bytes of numbers are not shown.
bool is_text(std::string_view value) {
  return std::ranges::all_of(value, [](unsigned char c) { return c >= ' ' || c == '\n'; });
}

std::string_view first_line(std::string_view& rest) {
  const size_t end = std::min(rest.find('\n'), rest.size());
  const std::string_view line = rest.substr(0, end);
  rest.remove_prefix(std::min(end + 1, rest.size()));
  return line;
}

std::string shown(std::string_view line) {
  return fmt::format("{}{}", line.substr(0, kShort), line.size() <= kShort ? "" : "…");
}

std::string first_difference(std::string_view here, std::string_view there) {
  for (int number = 1;; ++number) {
    const bool ends = here.empty() || there.empty();
    const std::string_view own = first_line(here);
    const std::string_view other = first_line(there);
    if (own != other || ends)
      return fmt::format("line {}: '{}' here, '{}' there", number, shown(own), shown(other));
  }
}

std::string difference(const KeyPart& part, std::string_view there) {
  if (!is_text(part.value) || !is_text(there)) return part.name + " differs";
  const bool is_short = std::max(part.value.size(), there.size()) <= kShort &&
                        (part.value + std::string(there)).find('\n') == std::string::npos;
  return part.name + ": " +
         (is_short ? fmt::format("'{}' here, '{}' there", part.value, there)
                   : first_difference(part.value, there));
}

}  // namespace

CacheKey key_of(const Target& target) {
  auto [cpu, features, isa, vector_bytes, cores, l1, l2, l3, gpu, tuning] = target;
  ArchiveWriter block;
  fields(block, gpu);
  ArchiveWriter numbers;
  fields(numbers, tuning);
  return {{"processor", cpu},
          {"features", features},
          {"vectors", fmt::format("{} {}", static_cast<int>(isa), vector_bytes)},
          {"cores", fmt::format("{}", cores)},
          {"caches", fmt::format("{} {} {}", l1, l2, l3)},
          {"gpu", block.take()},
          {"measured numbers", numbers.take()}};
}

std::string to_bytes(const CacheKey& key) {
  ArchiveWriter archive;
  CacheKey parts = key;
  archive(parts);
  return archive.take();
}

std::optional<CacheKey> take_key(std::string_view& bytes) {
  ArchiveReader archive(bytes);
  CacheKey key;
  archive(key);
  if (!archive.is_good()) return std::nullopt;
  bytes = archive.rest();
  return key;
}

std::string_view part_of(const CacheKey& key, std::string_view name) {
  for (const KeyPart& part : key)
    if (part.name == name) return part.value;
  return {};
}

std::vector<std::string> differences(const CacheKey& here, const CacheKey& there) {
  std::vector<std::string> lines;
  for (const KeyPart& part : here)
    if (part.value != part_of(there, part.name))
      lines.push_back(difference(part, part_of(there, part.name)));
  return lines;
}

}  // namespace tandem
