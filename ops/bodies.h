// Graphs of a module that ops of its other graphs run: the bodies of loops and branches.
#pragma once

#include <string>
#include <vector>

#include "ops/opdef.h"

namespace tandem::ops {

/// Names of the graphs that the node runs, in the order of its parameters.
std::vector<std::string> bodies_of(const ir::Node& node);

/// What `graph` runs, directly or through a body: each graph once, behind all that it runs itself.
/// UserError where there is no such graph, or one runs itself.
std::vector<ir::Graph*> bodies_of(const ir::Graph& graph);

/// Symbols that the body is given as numbers, by inputs of their names (passes::size_inputs).
void collect_given(const ir::Graph& body, std::vector<sym::Expr>& symbols);
/// Of all that the node of `graph` runs. UserError where there is no such graph.
void collect_given(const ir::Graph& graph, const ir::Node& node, std::vector<sym::Expr>& symbols);

/// The graph, then what it runs: a text that stands for itself.
std::string text_with_bodies(const ir::Graph& graph);

/// UserError where bodies do not fit the nodes of `graph` that run them.
void check_bodies(const ir::Graph& graph);

}  // namespace tandem::ops
