// A body is a program of its own, and sizes that its tensors do not tell are numbers that it is
// given: an i64 input for each such symbol, of the symbol's name. What runs the body knows their
// values.
#include <algorithm>

#include "ops/bodies.h"
#include "passes/passes.h"

namespace tandem::passes {
namespace {

void collect(const ir::Type& type, std::vector<sym::Expr>& symbols) {
  for (sym::Expr size : type.sizes) sym::collect_symbols(size, symbols);
  for (sym::Expr stride : type.strides) sym::collect_symbols(stride, symbols);
}

void collect(const ir::Node& node, std::vector<sym::Expr>& symbols) {
  for (const ir::Value* result : node.results) collect(result->type, symbols);
  for (const ir::Arg& arg : node.args) {
    if (const sym::Expr* one = std::get_if<sym::Expr>(&arg)) sym::collect_symbols(*one, symbols);
    if (const ir::Ints* many = std::get_if<ir::Ints>(&arg))
      for (sym::Expr each : *many) sym::collect_symbols(each, symbols);
  }
}

/// What bodies of the graph are given.
void collect_of_bodies(const ir::Graph& graph, std::vector<sym::Expr>& symbols) {
  for (const ir::Graph* body : ops::bodies_of(graph))
    for (const ir::Value* input : body->inputs())
      if (!input->type.is_tensor() && input->role != ir::Role::seed)
        sym::collect_symbols(*graph.pool().find_symbol(input->name), symbols);
}

bool tells(const ir::Value* input, sym::Expr symbol) {
  return input->name == symbol.name() ||
         std::ranges::find(input->type.sizes, symbol) != input->type.sizes.end();
}

}  // namespace

void size_inputs(ir::Graph& graph, GraphCtx&) {
  std::vector<sym::Expr> symbols;
  for (const ir::Value* input : graph.inputs()) collect(input->type, symbols);
  for (const ir::Node* node = graph.first(); node != nullptr; node = node->next)
    collect(*node, symbols);
  collect_of_bodies(graph, symbols);
  for (sym::Expr symbol : symbols)
    if (std::ranges::none_of(graph.inputs(),
                             [&](const ir::Value* input) { return tells(input, symbol); }))
      graph.add_input(symbol.name(), ir::Type::scalar(DType::i64));
}

}  // namespace tandem::passes
