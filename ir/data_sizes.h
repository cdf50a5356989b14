// Sizes that only data tell: each is a symbol, and one node of the graph gives it its value.
#pragma once

#include <optional>
#include <vector>

#include "ir/graph.h"

namespace tandem::ir {

/// Of a call that makes a size: the dimension of its first result that has it; else -1.
int64_t data_dim(const Op& op, const std::vector<Arg>& args);
/// Types of the results of such a call.
std::vector<Type> data_sized_types(const Op& op, const std::vector<Arg>& args, sym::Expr size);

/// A symbol that nothing has yet.
sym::Expr new_size(sym::Pool& pool, sym::Range range = {0, sym::Range::kMax});

/// Reads a number while the program runs.
bool gives_number(const Node& node);
/// The symbol that the node gives its value, or the number that it must be: a size of its first
/// result, or an i64 result that has the symbol's name.
std::optional<sym::Expr> symbol_made_by(const Graph& graph, const Node& node);
/// Those of all nodes, in their order.
std::vector<sym::Expr> symbols_made_in(const Graph& graph);

/// Symbols in the node's arguments and in the types of its results.
void collect_symbols(const Node& node, std::vector<sym::Expr>& symbols);
void collect_symbols(const Type& type, std::vector<sym::Expr>& symbols);

}  // namespace tandem::ir
