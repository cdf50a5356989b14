// A body is a program of its own, and sizes that its tensors do not tell are numbers that it is
// given: an i64 input for each such symbol, of the symbol's name. What runs the body knows their
// values. A symbol that a node of the body makes is its own.
#include <algorithm>

#include "ir/data_sizes.h"
#include "ops/bodies.h"
#include "passes/passes.h"

namespace tandem::passes {
namespace {

/// What bodies of the graph are given.
void collect_of_bodies(const ir::Graph& graph, std::vector<sym::Expr>& symbols) {
  for (const ir::Graph* body : ops::bodies_of(graph)) ops::collect_given(*body, symbols);
}

bool tells(const ir::Value* input, sym::Expr symbol) {
  return input->name == symbol.name() ||
         std::ranges::find(input->type.sizes, symbol) != input->type.sizes.end();
}

}  // namespace

void size_inputs(ir::Graph& graph, GraphCtx&) {
  std::vector<sym::Expr> symbols;
  for (const ir::Value* input : graph.inputs()) ir::collect_symbols(input->type, symbols);
  for (const ir::Node* node = graph.first(); node != nullptr; node = node->next)
    ir::collect_symbols(*node, symbols);
  collect_of_bodies(graph, symbols);
  const std::vector<sym::Expr> made = ir::symbols_made_in(graph);
  for (sym::Expr symbol : symbols)
    if (std::ranges::find(made, symbol) == made.end() &&
        std::ranges::none_of(graph.inputs(),
                             [&](const ir::Value* input) { return tells(input, symbol); }))
      graph.add_input(symbol.name(), ir::Type::scalar(DType::i64));
}

}  // namespace tandem::passes
