// Every field is written, those that keep their default too: the hash of this text says whether two
// recipes are the same.
#include <fmt/format.h>

#include "quant/recipe.h"
#include "quant/toml_fields.h"

namespace tandem::quant {
namespace {

std::string inline_table(const std::map<std::string, std::string>& names) {
  std::string text;
  for (const std::pair<const std::string, std::string>& entry : names)
    text += fmt::format("{}{} = {}", text.empty() ? "" : ", ", quoted(entry.first),
                        quoted(entry.second));
  return "{ " + text + " }";
}

std::string spec_text(const QSpec& spec) {
  return fmt::format(
      "dtype = \"{}\"\nrange = [{}, {}]\nsymmetric = {}\nper = \"{}\"\naxis = {}\n"
      "group_size = {}\ndynamic = {}\nconstant = {}\nepsilon = {}\nobserver = \"{}\"\n"
      "percentile = {}\nmomentum = {}\n",
      name_of(spec.dtype), spec.quant_min, spec.quant_max, spec.symmetric, name_of(spec.per),
      spec.axis, spec.group_size, spec.dynamic, spec.constant, spec.epsilon, name_of(spec.observer),
      spec.percentile, spec.momentum);
}

std::string rule_text(const Rule& rule) {
  std::string links;
  for (const std::vector<std::string>& link : rule.chain)
    links += (links.empty() ? "" : ", ") + quoted(fmt::format("{}", fmt::join(link, "|")));
  return fmt::format(
      "name = {}\nchain = [{}]\ninputs = {}\nother = {}\nsame_shape = {}\n"
      "propagates = {}\nneeds_reader = {}\n",
      quoted(rule.name), links, inline_table(rule.inputs), quoted(rule.other), rule.same_shape,
      rule.propagates, rule.needs_reader);
}

std::string exceptions_text(std::string_view key, const std::map<std::string, Exception>& all) {
  std::string text;
  for (const std::pair<const std::string, Exception>& entry : all)
    text += fmt::format("\n[{}.{}]\nquantize = {}\nspecs = {}\n", key, quoted(entry.first),
                        entry.second.quantize, inline_table(entry.second.specs));
  return text;
}

}  // namespace

std::string to_text(const Recipe& recipe) {
  std::string text = fmt::format("name = {}\n", quoted(recipe.name));
  for (const std::pair<const std::string, QSpec>& entry : recipe.specs)
    text += fmt::format("\n[specs.{}]\n{}", quoted(entry.first), spec_text(entry.second));
  for (const Rule& rule : recipe.rules) text += "\n[[rules]]\n" + rule_text(rule);
  return text + exceptions_text("layers", recipe.layers) + exceptions_text("ops", recipe.ops);
}

}  // namespace tandem::quant
