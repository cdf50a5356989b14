// Operands come first, so one walk is enough for rules that look at what made them. A rule may add
// nodes and then think better of it: they stand before the node, and dce takes them.
#include "ir/rewrite.h"

#include <algorithm>

namespace tandem::ir {
namespace {

bool is_read(const Node& node) {
  return std::ranges::any_of(node.results,
                             [](const Value* result) { return !result->uses.empty(); });
}

bool stands_for(const Value& value, const Node& node) {
  const bool is_alone = std::all_of(node.results.begin() + 1, node.results.end(),
                                    [](const Value* other) { return other->uses.empty(); });
  return is_alone && value.type.same_elements(node.results[0]->type);
}

/// A node that the pattern wanted read once may still serve one that others read.
void erase_dead(Graph& graph, const Match& match) {
  for (Node* node : match.owned())
    if (!is_read(*node)) graph.erase(node);
}

}  // namespace

Replacement kept(std::string_view name) {
  return [name](Builder&, const Match& match) { return match.value(name); };
}

bool Rewriter::apply(const Rule& rule, Graph& graph, Node& node,
                     const RewriteOptions& options) const {
  Match match;
  std::string reason;
  const bool fits = matches(rule.pattern, node, match, &reason);
  if (fits && rule.why_not) reason = rule.why_not(match);
  if (!reason.empty() && options.declined) options.declined(node, reason);
  if (!fits || !reason.empty() || node.results.empty()) return false;
  Builder builder(graph, &node);
  builder.stamp() = Builder::stamp_of(node);
  Value* value = rule.becomes(builder, match);
  if (value == nullptr || !stands_for(*value, node)) return false;
  if (options.allows && !options.allows(*node.results[0], *value)) return false;
  if (value->node != nullptr) value->node->policy = std::max(value->node->policy, node.policy);
  graph.replace_all_uses(node.results[0], value);
  erase_dead(graph, match);
  return true;
}

void Rewriter::run(Graph& graph, const RewriteOptions& options) const {
  for (Node* node = graph.first(); node != nullptr;) {
    Node* next = node->next;
    for (const Rule& rule : rules_)
      if (!node->op->mutates() && apply(rule, graph, *node, options)) break;
    node = next;
  }
}

}  // namespace tandem::ir
