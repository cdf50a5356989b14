// A pattern is a tree, and is compared from its root towards what makes the arguments. Only
// commutative calls leave a choice; a choice may turn out wrong far from where it was made (a value
// that is named twice), so each combination of choices is one comparison from the start: there are
// two for each commutative call, and patterns have one or two of these.
#include "ir/pattern.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"

namespace tandem::ir {
namespace {

constexpr uint32_t kMostCommutative = 8;

Pattern::Operator operator_of(std::string_view text) {
  const size_t point = text.find('.');
  if (point == std::string_view::npos) return {text, "", true};
  return {text.substr(0, point), text.substr(point + 1), false};
}

bool is_of(const Pattern::Operator& op, const Node& node) {
  const Schema& schema = node.op->schema;
  return schema.name == op.name && (op.is_any || schema.overload == op.overload);
}

uint32_t commutative_calls(const Pattern& pattern) {
  uint32_t count = pattern.is_commutative ? 1 : 0;
  for (const ArgPattern& arg : pattern.args)
    for (const Pattern& maker : arg.made_by) count += commutative_calls(maker);
  return count;
}

std::optional<double> number_of(const Arg& arg) {
  if (const double* number = std::get_if<double>(&arg)) return *number;
  const sym::Expr* expr = std::get_if<sym::Expr>(&arg);
  if (expr == nullptr || !expr->constant()) return std::nullopt;
  return static_cast<double>(*expr->constant());
}

bool are_equal(const Arg& a, const Arg& b) {
  if (a == b) return true;
  const std::optional<double> number = number_of(a);
  return number && number == number_of(b);
}

bool is_read_once(const Node& node) {
  size_t uses = 0;
  for (const Value* result : node.results) uses += result->uses.size();
  return uses == 1;
}

}  // namespace

/// One comparison, with one choice for each commutative call.
class Matcher {
 public:
  Matcher(Match& match, uint32_t swapped) : match_(&match), swapped_(swapped) {}

  bool fits(const Pattern& pattern, Node& node) {
    if (!is_candidate(pattern, node)) return fail(pattern.if_other);
    if (pattern.is_read_once && !is_read_once(node)) return fail(pattern.if_shared);
    if (pattern.is_read_once || match_->owned_.empty()) match_->owned_.push_back(&node);
    if (!pattern.name.empty()) match_->named_.emplace_back(pattern.name, &node);
    std::vector<char> listed(node.args.size());
    const bool swaps = pattern.is_commutative && ((swapped_ >> commutative_++) & 1) != 0;
    for (size_t place = 0; place < pattern.args.size(); ++place) {
      const size_t number = number_of_arg(pattern.args[place],
                                          swaps && place < 2 ? 1 - place : place, node.op->schema);
      if (number >= listed.size()) return fail("");
      listed[number] = 1;
      if (!fits(pattern.args[place], node.args[number])) return false;
    }
    return pattern.is_open || others_are_defaults(node, listed);
  }

  std::string take_reason() { return std::move(reason_); }

 private:
  static size_t number_of_arg(const ArgPattern& arg, size_t place, const Schema& schema) {
    return arg.param.empty() ? place : static_cast<size_t>(schema.find(arg.param));
  }

  bool fits(const ArgPattern& pattern, const Arg& arg) {
    if (pattern.holds != nullptr && !pattern.holds(arg)) return fail("");
    if (pattern.equals && !are_equal(*pattern.equals, arg)) return fail("");
    if (pattern.name.empty() && pattern.made_by.empty()) return true;
    Value* const* value = std::get_if<Value*>(&arg);
    if (value == nullptr || *value == nullptr) return fail(reason_of_maker(pattern));
    if (!pattern.name.empty() && !keeps(pattern.name, *value)) return fail("");
    if (pattern.made_by.empty()) return true;
    if ((*value)->node == nullptr) return fail(reason_of_maker(pattern));
    return fits(pattern.made_by.front(), *(*value)->node);
  }

  static std::string_view reason_of_maker(const ArgPattern& pattern) {
    return pattern.made_by.empty() ? "" : pattern.made_by.front().if_other;
  }

  bool keeps(std::string_view name, Value* value) {
    for (const std::pair<std::string_view, Value*>& kept : match_->values_)
      if (kept.first == name) return kept.second == value;
    match_->values_.emplace_back(name, value);
    return true;
  }

  bool others_are_defaults(const Node& node, const std::vector<char>& listed) {
    for (size_t i = 0; i < listed.size(); ++i) {
      const Param& param = node.op->schema.params[i];
      const Arg otherwise = param.default_value.value_or(None{});
      if (listed[i] == 0 && !are_equal(node.args[i], otherwise))
        return fail(fmt::format("its {} is {}", param.name, to_string(node.args[i])));
    }
    return true;
  }

  bool fail(std::string_view reason) {
    reason_ = reason;
    return false;
  }

  Match* match_;
  uint32_t swapped_;          // a bit for each commutative call, in the order of the pattern
  uint32_t commutative_ = 0;  // so many were met
  std::string reason_;
};

ArgPattern::ArgPattern(Pattern maker) { made_by.push_back(std::move(maker)); }

ArgPattern ArgPattern::of(std::string_view parameter) && {
  param = parameter;
  return std::move(*this);
}

ArgPattern ArgPattern::that(bool (*test)(const Arg&)) && {
  holds = test;
  return std::move(*this);
}

Pattern Pattern::commutes() && {
  is_commutative = true;
  return std::move(*this);
}

Pattern Pattern::named(std::string_view kept) && {
  name = kept;
  return std::move(*this);
}

Pattern Pattern::whatever_else() && {
  is_open = true;
  return std::move(*this);
}

Pattern Pattern::read_once(std::string_view reason) && {
  is_read_once = true;
  if_shared = reason;
  return std::move(*this);
}

Pattern Pattern::or_else(std::string_view reason) && {
  if_other = reason;
  return std::move(*this);
}

Pattern call(std::string_view op, std::vector<ArgPattern> args) {
  Pattern pattern;
  pattern.ops.push_back(operator_of(op));
  pattern.args = std::move(args);
  return pattern;
}

Pattern any_call(std::initializer_list<std::string_view> ops) {
  Pattern pattern;
  for (const std::string_view op : ops) pattern.ops.push_back(operator_of(op));
  pattern.is_open = true;
  return pattern;
}

Pattern node_that(bool (*is)(const Node&)) {
  Pattern pattern;
  pattern.is = is;
  pattern.is_open = true;
  return pattern;
}

ArgPattern anything() { return {}; }

ArgPattern keep(std::string_view name) {
  ArgPattern arg;
  arg.name = name;
  return arg;
}

ArgPattern arg_that(bool (*holds)(const Arg&)) { return ArgPattern().that(holds); }

ArgPattern equal_to(Arg wanted) {
  ArgPattern arg;
  arg.equals = std::move(wanted);
  return arg;
}

Value* Match::value(std::string_view name) const {
  for (const std::pair<std::string_view, Value*>& kept : values_)
    if (kept.first == name) return kept.second;
  TD_CHECK(false) << "the pattern keeps no value " << name;
  return nullptr;
}

Node& Match::node(std::string_view name) const {
  const auto kept = std::ranges::find(named_, name, &std::pair<std::string_view, Node*>::first);
  TD_CHECK(kept != named_.end()) << "the pattern keeps no node " << name;
  return *kept->second;
}

Match& Match::knows(std::string_view name, Value* value) {
  values_.emplace_back(name, value);
  return *this;
}

bool is_candidate(const Pattern& pattern, const Node& node) {
  if (pattern.is != nullptr && !pattern.is(node)) return false;
  if (pattern.ops.empty()) return true;
  return std::ranges::any_of(pattern.ops,
                             [&](const Pattern::Operator& op) { return is_of(op, node); });
}

bool matches(const Pattern& pattern, Node& node, Match& match, std::string* reason) {
  if (reason != nullptr) reason->clear();
  if (!is_candidate(pattern, node)) return false;
  const uint32_t choices = commutative_calls(pattern);
  TD_CHECK(choices <= kMostCommutative) << choices << " commutative calls in a pattern";
  for (uint32_t swapped = 0; swapped < uint32_t{1} << choices; ++swapped) {
    Match found = match;
    Matcher matcher(found, swapped);
    if (matcher.fits(pattern, node)) {
      match = std::move(found);
      return true;
    }
    if (reason != nullptr && swapped == 0) *reason = matcher.take_reason();
  }
  return false;
}

}  // namespace tandem::ir
