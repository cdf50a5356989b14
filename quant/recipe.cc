// A recipe is read whole before it is believed: unknown fields, ranges that the dtype has not,
// rules that name no specification are all told at once, each with its line.
#include "quant/recipe.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <set>

#include "base/diagnostic.h"
#include "quant/toml_fields.h"

namespace tandem::quant {
namespace {

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts{""};
  for (const char c : text) {
    if (c == separator)
      parts.emplace_back();
    else
      parts.back() += c;
  }
  return parts;
}

class RecipeReader {
 public:
  explicit RecipeReader(std::string path) : path_(std::move(path)) {}

  Recipe read(const toml::table& root) {
    TomlFields fields(&root, "recipe", path_, problems_);
    recipe_.name = fields.needed_text("name");
    read_specs(fields.table("specs"));
    read_rules(fields.array("rules"));
    recipe_.layers = exceptions(fields.table("layers"), "layer");
    recipe_.ops = exceptions(fields.table("ops"), "operator");
    if (recipe_.rules.empty()) fields.problem("there are no rules");
    fields.finish();
    problems_.finish();
    return std::move(recipe_);
  }

 private:
  void read_specs(const toml::table* specs) {
    if (specs == nullptr) return;
    for (const auto& [key, node] : *specs) {
      TomlFields fields(node.as_table(), fmt::format("specification '{}'", key.str()), path_,
                        problems_);
      if (node.as_table() == nullptr) fields.problem("must be a table", &node);
      recipe_.specs[std::string(key.str())] = spec(fields);
      fields.finish();
    }
  }

  template <class Enum, size_t n>
  Enum named(TomlFields& fields, std::string_view key, const std::array<Enum, n>& all) {
    const std::string name = fields.text(key, std::string(name_of(all[0])));
    std::string names;
    for (const Enum each : all) {
      if (name_of(each) == name) return each;
      names += (names.empty() ? "" : ", ") + std::string(name_of(each));
    }
    fields.problem(fmt::format("'{}' is one of {}", key, names), fields.find(key));
    return all[0];
  }

  QSpec spec(TomlFields& fields) {
    QSpec spec;
    const std::string dtype = fields.needed_text("dtype");
    const std::optional<DType> known = dtype_from_name(dtype);
    if (known != DType::i8 && known != DType::u8)
      fields.problem(fmt::format("dtype '{}' must be i8 or u8", dtype), fields.find("dtype"));
    spec.dtype = known.value_or(DType::u8);
    read_range(fields, spec);
    spec.symmetric = fields.boolean("symmetric", false);
    spec.per = named(fields, "per", std::array{Per::tensor, Per::channel, Per::group});
    spec.axis = fields.integer("axis", 0);
    spec.group_size = fields.integer("group_size", 0);
    spec.dynamic = fields.boolean("dynamic", false);
    spec.constant = fields.boolean("constant", false);
    spec.epsilon = fields.number("epsilon", spec.epsilon);
    spec.observer = named(fields, "observer",
                          std::array{ObserverKind::min_max, ObserverKind::moving_average,
                                     ObserverKind::histogram, ObserverKind::percentile});
    spec.percentile = fields.number("percentile", spec.percentile);
    spec.momentum = fields.number("momentum", spec.momentum);
    check(fields, spec);
    return spec;
  }

  static void read_range(TomlFields& fields, QSpec& spec) {
    spec.quant_min = spec.dtype == DType::u8 ? 0 : -128;
    spec.quant_max = spec.dtype == DType::u8 ? 255 : 127;
    const int64_t least = spec.quant_min, greatest = spec.quant_max;
    const std::vector<float> range = fields.numbers("range");
    if (range.empty()) return;
    const bool fits = range.size() == 2 && range[0] < range[1] &&
                      range[0] >= static_cast<float>(least) &&
                      range[1] <= static_cast<float>(greatest);
    if (!fits) {
      fields.problem(fmt::format("'range' must be two numbers from {} to {}, the least first",
                                 least, greatest),
                     fields.find("range"));
      return;
    }
    spec.quant_min = static_cast<int64_t>(range[0]);
    spec.quant_max = static_cast<int64_t>(range[1]);
  }

  /// Zero points of parts, and ranges that single values do not bound, have no operators or no
  /// observers here.
  static void check(TomlFields& fields, const QSpec& spec) {
    if (!(spec.epsilon > 0)) fields.problem("'epsilon' must be above 0");
    if (!(spec.percentile > 50 && spec.percentile <= 100))
      fields.problem("'percentile' must be above 50 and at most 100");
    if (!(spec.momentum > 0 && spec.momentum <= 1))
      fields.problem("'momentum' must be above 0 and at most 1");
    if (spec.per == Per::group && spec.group_size < 2)
      fields.problem("'group_size' must be at least 2 where per is \"group\"");
    if (spec.per == Per::tensor) return;
    if (!spec.constant || !spec.symmetric)
      fields.problem(
          fmt::format("per \"{}\" is for constant and symmetric values", name_of(spec.per)));
    if (spec.observer != ObserverKind::min_max)
      fields.problem(fmt::format("per \"{}\" has the observer min_max alone", name_of(spec.per)));
  }

  void read_rules(const toml::array* rules) {
    if (rules == nullptr) return;
    for (const toml::node& node : *rules) {
      TomlFields fields(node.as_table(), fmt::format("rule {}", recipe_.rules.size() + 1), path_,
                        problems_);
      recipe_.rules.push_back(rule(fields));
      fields.finish();
    }
  }

  Rule rule(TomlFields& fields) {
    Rule rule;
    rule.name = fields.needed_text("name");
    if (const toml::array* chain = fields.array("chain"))
      for (const toml::node& link : *chain)
        rule.chain.push_back(split(link.value_or(std::string()), '|'));
    if (rule.chain.empty()) fields.problem("'chain' names no operator");
    rule.inputs = spec_names(fields, fields.table("inputs"));
    if (rule.inputs.empty()) fields.problem("'inputs' names no operand");
    rule.other = fields.text("other", "");
    if (!rule.other.empty()) check_spec(fields, rule.other);
    rule.same_shape = fields.boolean("same_shape", false);
    rule.propagates = fields.boolean("propagates", false);
    rule.needs_reader = fields.boolean("needs_reader", false);
    if (rule.propagates && (rule.chain.size() != 1 || rule.inputs.size() != 1))
      fields.problem("a rule that propagates has one link and one operand");
    return rule;
  }

  void check_spec(TomlFields& fields, const std::string& name) {
    if (recipe_.specs.count(name) == 0)
      fields.problem(fmt::format("there is no specification '{}'", name));
  }

  /// `{ input = "activation" }`.
  std::map<std::string, std::string> spec_names(TomlFields& fields, const toml::table* table) {
    std::map<std::string, std::string> names;
    if (table == nullptr) return names;
    for (const auto& [key, node] : *table) {
      const std::string name = node.value_or(std::string());
      check_spec(fields, name);
      names[std::string(key.str())] = name;
    }
    return names;
  }

  std::map<std::string, Exception> exceptions(const toml::table* table, std::string_view of) {
    std::map<std::string, Exception> found;
    if (table == nullptr) return found;
    for (const auto& [key, node] : *table) {
      TomlFields fields(node.as_table(), fmt::format("{} '{}'", of, key.str()), path_, problems_);
      if (node.as_table() == nullptr) fields.problem("must be a table", &node);
      Exception exception;
      exception.quantize = fields.boolean("quantize", true);
      exception.specs = spec_names(fields, fields.table("specs"));
      fields.finish();
      found[std::string(key.str())] = std::move(exception);
    }
    return found;
  }

  std::string path_;
  Recipe recipe_;
  Diagnostics problems_;
};

}  // namespace

std::vector<std::string> Recipe::op_names() const {
  std::set<std::string> names;
  for (const Rule& rule : rules)
    for (const std::vector<std::string>& link : rule.chain) names.insert(link.begin(), link.end());
  return {names.begin(), names.end()};
}

Recipe parse_recipe(std::string_view text, const std::string& path) {
  const toml::table root = parse_toml(text, path);
  return RecipeReader(path).read(root);
}

}  // namespace tandem::quant
