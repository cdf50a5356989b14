// What a node, and the nodes before it, must be: patterns as data, and what was found where one
// fits.
//
//   call("aten::neg", {call("aten::neg", {keep("x")})})             -(-x)
//   call("aten::mul", {keep("x"), arg_that(is_one)}).commutes()     x * 1 and 1 * x
//   call("aten::where", {anything(), keep("x"), keep("x")})         where(c, x, x)
//
// Texts (names, operators, reasons) are kept as views: they must outlive the pattern.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ir/graph.h"

namespace tandem::ir {

struct Pattern;

/// What an argument must be. All that is said holds at once; nothing said: it may be anything.
struct ArgPattern {
  ArgPattern() = default;
  ArgPattern(Pattern made_by);  // NOLINT(google-explicit-constructor): patterns nest
  /// Of the parameter of this name, not of the one at its place. A call without it does not fit.
  ArgPattern of(std::string_view parameter) &&;
  /// And this holds of it.
  ArgPattern that(bool (*test)(const Arg&)) &&;

  std::string_view param;
  /// What a Match keeps a value under. Under one name stands one value.
  std::string_view name;
  bool (*holds)(const Arg&) = nullptr;
  std::optional<Arg> equals;
  std::vector<Pattern> made_by;  // one, or none
};

/// What a node must be.
struct Pattern {
  struct Operator {
    std::string_view name;      // "aten::mul"
    std::string_view overload;  // "Tensor"
    bool is_any = true;         // every overload
  };

  /// The first two arguments may be the other way round.
  Pattern commutes() &&;
  /// What a Match keeps the node under.
  Pattern named(std::string_view name) &&;
  /// Arguments that are not listed may be anything.
  Pattern whatever_else() &&;
  /// Nothing else reads its results, and none is a result of the graph.
  Pattern read_once(std::string_view reason = "") &&;
  /// Why a node that makes an argument, and is another one, does not fit.
  Pattern or_else(std::string_view reason) &&;

  std::vector<Operator> ops;  // any of them; none: `is` says
  bool (*is)(const Node&) = nullptr;
  std::string_view name;
  std::vector<ArgPattern> args;
  bool is_open = false;  // else arguments that are not listed have their defaults
  bool is_commutative = false;
  bool is_read_once = false;
  std::string_view if_other, if_shared;  // reasons
};

/// A call of the operator: "aten::mul" is every overload, "aten::mul.Tensor" that one. Arguments by
/// place; those that are not listed must have their defaults, so that none is overlooked.
Pattern call(std::string_view op, std::vector<ArgPattern> args);
/// Of any of these, whatever the arguments.
Pattern any_call(std::initializer_list<std::string_view> ops);
/// A node that answers a question with yes, whatever its arguments.
Pattern node_that(bool (*is)(const Node&));

ArgPattern anything();
/// A value (no number that the text says), kept by name.
ArgPattern keep(std::string_view name);
ArgPattern arg_that(bool (*holds)(const Arg&));
/// Numbers are compared as numbers: 1 equals 1.0.
ArgPattern equal_to(Arg arg);

/// What a pattern found.
class Match {
 public:
  /// Of what the pattern kept under the name; nothing else may be asked.
  Value* value(std::string_view name) const;
  Node& node(std::string_view name) const;
  /// The node that the pattern fits.
  Node& root() const { return *owned_.front(); }
  /// The root, and what the pattern wanted read once: each before those that make its arguments.
  const std::vector<Node*>& owned() const { return owned_; }

  /// The name stands for this value before anything is found.
  Match& knows(std::string_view name, Value* value);

 private:
  friend class Matcher;
  std::vector<std::pair<std::string_view, Value*>> values_;
  std::vector<std::pair<std::string_view, Node*>> named_;
  std::vector<Node*> owned_;
};

/// Whether the node's operator, or the question, is the pattern's.
bool is_candidate(const Pattern& pattern, const Node& node);

/// The pattern fits the node, and `match` says how; else it is as before, and `reason` (where it is
/// given) tells why a candidate does not fit, or is empty. Commutative calls are tried as written
/// first, then the other way round, in all combinations.
bool matches(const Pattern& pattern, Node& node, Match& match, std::string* reason = nullptr);

}  // namespace tandem::ir
