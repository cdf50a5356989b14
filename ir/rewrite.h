// Rewriting: a pattern, what speaks against it, and the value that then stands in its node's place.
//
//   {call("aten::neg", {call("aten::neg", {keep("x")})}), kept("x")}    -(-x) = x
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/builder.h"
#include "ir/pattern.h"

namespace tandem::ir {

/// The value that the root's first result equals; null: nothing changes after all. The builder
/// stands before the root and gives new nodes its stamp; nodes that are made and not used are dead.
using Replacement = std::function<Value*(Builder&, const Match&)>;
/// What the pattern kept under the name. -(-x) = x
Replacement kept(std::string_view name);

struct Rule {
  Pattern pattern;
  Replacement becomes;
  /// What speaks against it, of a node that the pattern fits; empty: nothing.
  std::function<std::string(const Match&)> why_not = {};
};

/// Who runs a rewriter may listen, and have a word.
struct RewriteOptions {
  /// A candidate that stays, and why: of each rule that has a reason.
  std::function<void(const Node&, const std::string& reason)> declined = {};
  /// Whether a result may become this value.
  std::function<bool(const Value& result, const Value& value)> allows = {};
};

/// Rules, tried in order; a node belongs to the first that changes it. One walk in program order:
/// operands are as the rules left them, and what a rule makes is not looked at again. Nodes that
/// mutate stay.
///
/// A value takes a result's place only where it is of the same type and sizes, and nothing reads
/// the node's other results. It takes over the node's recompute policy, if that is stronger. What
/// the pattern wanted read once is gone with the node.
class Rewriter {
 public:
  explicit Rewriter(std::vector<Rule> rules) : rules_(std::move(rules)) {}
  void run(Graph& graph, const RewriteOptions& options = {}) const;

 private:
  bool apply(const Rule& rule, Graph& graph, Node& node, const RewriteOptions& options) const;
  std::vector<Rule> rules_;
};

}  // namespace tandem::ir
