// Written by hand, so that a channel's number is not a line of its own; read by the library.
#include "quant/statistics.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "quant/toml_fields.h"

namespace tandem::quant {
namespace {

constexpr size_t kColumns = 100;

/// With a point or an exponent, as TOML has it for what is no integer.
std::string float_text(float number) {
  std::string text = fmt::format("{}", number);
  return text.find_first_of(".en") == std::string::npos ? text + ".0" : text;
}

std::string numbers_text(std::string_view key, const std::vector<float>& numbers) {
  if (numbers.size() == 1) return fmt::format("{} = {}\n", key, float_text(numbers[0]));
  std::string text = fmt::format("{} = [", key), line = "\n ";
  for (const float number : numbers) {
    const std::string next = " " + float_text(number) + ",";
    if (line.size() + next.size() > kColumns) {
      text += line;
      line = "\n ";
    }
    line += next;
  }
  return text + line + "\n]\n";
}

uint64_t hash_field(TomlFields& fields, std::string_view key) {
  const std::string text = fields.needed_text(key);
  uint64_t hash = 0;
  const std::from_chars_result end =
      std::from_chars(text.data(), text.data() + text.size(), hash, 16);
  if (!text.empty() && (end.ec != std::errc() || end.ptr != text.data() + text.size()))
    fields.problem(fmt::format("'{}' must be a hexadecimal number", key), fields.find(key));
  return hash;
}

void check_range(TomlFields& fields, const Range& range) {
  if (range.low.empty() || range.low.size() != range.high.size()) {
    fields.problem("'low' and 'high' must be there, with as many numbers each");
    return;
  }
  for (size_t i = 0; i < range.low.size(); ++i)
    if (!std::isfinite(range.low[i]) || !std::isfinite(range.high[i]) ||
        range.low[i] > range.high[i])
      fields.problem(fmt::format("low {} and high {} must be finite, and low not above high",
                                 range.low[i], range.high[i]),
                     fields.find("low"));
}

}  // namespace

std::string to_text(const Statistics& statistics) {
  std::string text = fmt::format(
      "# Ranges of values, found by calibration. `low` and `high` may be edited.\n"
      "recipe = {}\nrecipe_hash = \"{:016x}\"\nmodel_hash = \"{:016x}\"\n",
      quoted(statistics.recipe), statistics.recipe_hash, statistics.model_hash);
  for (const std::pair<const std::string, GroupStatistics>& entry : statistics.groups) {
    const GroupStatistics& group = entry.second;
    text += fmt::format("\n[groups.{}]\nobserver = {}\nvalues = {}\n", quoted(entry.first),
                        quoted(group.observer), group.values);
    text += numbers_text("low", group.range.low) + numbers_text("high", group.range.high);
  }
  return text;
}

Statistics parse_statistics(std::string_view text, const std::string& path) {
  const toml::table root = parse_toml(text, path);
  Diagnostics problems;
  Statistics statistics;
  TomlFields fields(&root, "statistics", path, problems);
  statistics.recipe = fields.needed_text("recipe");
  statistics.recipe_hash = hash_field(fields, "recipe_hash");
  statistics.model_hash = hash_field(fields, "model_hash");
  if (const toml::table* groups = fields.table("groups")) {
    for (const auto& [key, node] : *groups) {
      TomlFields group(node.as_table(), fmt::format("group '{}'", key.str()), path, problems);
      if (node.as_table() == nullptr) group.problem("must be a table", &node);
      GroupStatistics& found = statistics.groups[std::string(key.str())];
      found.observer = group.text("observer", "");
      found.values = group.integer("values", 0);
      found.range = {group.numbers("low"), group.numbers("high")};
      check_range(group, found.range);
      group.finish();
    }
  }
  fields.finish();
  problems.finish();
  return statistics;
}

}  // namespace tandem::quant
