// Edits of a graph by its user (passes::CallerPass), checked: what ir::Graph takes for a bug is a
// UserError here. For Python; C++ may use it, or ir::Builder.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ir/builder.h"
#include "ir/text.h"

namespace tandem::driver {

/// Arguments by place and by name. Text for an element type or a size becomes that.
struct EditedCall {
  std::vector<ir::Arg> positional;
  std::vector<std::pair<std::string, ir::Arg>> keywords;
};

/// A size by its text, "s0*4 + 3". UserError where it is none.
sym::Expr size_named(const ir::Graph& graph, const std::string& text);

/// A node of an operator, "aten.mul.Tensor", before `before`, at the end where that is null; it
/// belongs to the half of the graph that `before` does. UserError names the operator and the rule.
ir::Node* insert_call(ir::Graph& graph, std::string_view op, EditedCall call, ir::Node* before);

/// All that reads `old` reads `replacement`, but for the node that makes the replacement. UserError
/// where element types or sizes differ.
void replace_value(ir::Graph& graph, ir::Value* old, ir::Value* replacement);

/// UserError where something reads its results, or it writes an input.
void erase_node(ir::Graph& graph, ir::Node* node);

}  // namespace tandem::driver
