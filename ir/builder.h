// Writes nodes into a graph: fills in defaults, checks arguments against the schema, infers types.
#pragma once

#include <string_view>
#include <utility>
#include <vector>

#include "ir/graph.h"

namespace tandem::ir {

using Keyword = std::pair<std::string_view, Arg>;

/// Arguments in schema order with defaults filled in and literals converted to the parameter's type
/// (an int for a float, one number for `int[2]`). Throws UserError on a misfit.
std::vector<Arg> complete_args(const Op& op, std::vector<Arg> positional,
                               std::vector<Keyword> keywords);

class Builder {
 public:
  /// Inserts before `before`; at the end when null.
  explicit Builder(Graph& graph, Node* before = nullptr) : graph_(&graph), before_(before) {}

  Graph& graph() const { return *graph_; }
  Node* before() const { return before_; }

  /// By "aten.mm" or "aten::mm"; UserError when there is no such op. A number given for a tensor
  /// parameter selects the overload `.Scalar`, as in PyTorch.
  Node* call(std::string_view op, std::vector<Arg> positional, std::vector<Keyword> keywords = {});
  Node* call(const Op& op, std::vector<Arg> positional, std::vector<Keyword> keywords = {});

  /// A node of an op that has no type rule.
  Node* call_typed(const Op& op, std::vector<Arg> positional, std::vector<Type> types);

  /// What new nodes carry: origin, no_grad, region, policy, budget, backward.
  struct Stamp {
    Origin origin;
    bool no_grad = false;
    bool backward = false;
    int32_t region = 0;
    RecomputePolicy policy = RecomputePolicy::none;
    std::optional<double> memory_budget;
  };
  Stamp& stamp() { return stamp_; }
  static Stamp stamp_of(const Node& node);

 private:
  Node* stamped(Node* node) const;

  Graph* graph_;
  Node* before_;
  Stamp stamp_;
};

/// Copies `node` with its arguments mapped; types are inferred again when a mapped operand's type
/// differs.
template <class F>
Node* clone_node(Graph& graph, const Node& node, F map, Node* before);

Node* clone_node_with_args(Graph& graph, const Node& node, std::vector<Arg> args, Node* before);

template <class F>
Node* clone_node(Graph& graph, const Node& node, F map, Node* before) {
  std::vector<Arg> args;
  for (const Arg& arg : node.args) args.push_back(map_operands(arg, map));
  return clone_node_with_args(graph, node, std::move(args), before);
}

}  // namespace tandem::ir
