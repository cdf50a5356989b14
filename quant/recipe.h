// What is quantized and how, as data: patterns of operators with a specification for each operand,
// in the order in which they are tried, and exceptions by layer or operator. A TOML file says the
// same; the built-in recipes are such texts (builtin_recipes.cc shows the form).
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "quant/qspec.h"

namespace tandem::quant {

/// A pattern: operators of which each alone reads the one before it. A node belongs to the first
/// rule that takes it.
struct Rule {
  std::string name;
  /// Operators of each link, any of them.
  std::vector<std::vector<std::string>> chain;
  /// Specification by parameter of the first link.
  std::map<std::string, std::string> inputs;
  /// Specification of the other operand of an addition in the chain; empty: it is not quantized.
  std::string other;
  /// All tensor operands of the first link have one shape.
  bool same_shape = false;
  /// The op hands quantized values on: only where all its operands are results of quantized layers,
  /// and operands and result share their scale.
  bool propagates = false;
  /// Only where a quantized layer reads the result.
  bool needs_reader = false;
};

/// Of a layer (and those below it: "blocks.0" is also "blocks.0.fc") or of an operator. A layer
/// without a weight has the name of its operator here: "cat", whatever its number.
struct Exception {
  bool quantize = true;
  std::map<std::string, std::string> specs;  // in place of the rule's, by its name there
};

struct Recipe {
  std::string name;
  std::map<std::string, QSpec> specs;
  std::vector<Rule> rules;
  std::map<std::string, Exception> layers;  // over ops, and those over rules
  std::map<std::string, Exception> ops;

  /// Operators that rules name: annotate must meet them whole, not taken apart.
  std::vector<std::string> op_names() const;
};

/// x86_default (u8 activations with histograms, i8 weights by channel), x86_reduced_range (the
/// same, activations from 0 to 127, for processors without VNNI), x86_dynamic (activations of
/// linear layers at each call), weight_only_int8, weight_only_int4 (groups of 32). UserError for
/// others, with the names that there are.
Recipe recipe_named(std::string_view name);
std::vector<std::string_view> recipe_names();
/// The text of a built-in recipe, to start an own one from.
std::string_view recipe_text(std::string_view name);

/// Reads the text of a recipe. UserError with every problem, each at its line of `path`.
Recipe parse_recipe(std::string_view text, const std::string& path);
/// Everything that the recipe says, as a text that reads back; equal recipes give equal texts.
std::string to_text(const Recipe& recipe);

}  // namespace tandem::quant
