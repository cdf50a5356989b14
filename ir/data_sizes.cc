// Problem: how many elements of a mask hold is known only while a program runs, and all that comes
// behind has that size. Approach: the size is a symbol like any other, but no input tells it: the
// node that makes it does. So types stay what they are, and only who orders nodes has to know that
// a symbol may be there from a node on.
#include "ir/data_sizes.h"

#include <string>

namespace tandem::ir {

int64_t data_dim(const Op& op, const std::vector<Arg>& args) {
  return op.data_sized.dim == nullptr ? -1 : op.data_sized.dim(Call(op, args));
}

std::vector<Type> data_sized_types(const Op& op, const std::vector<Arg>& args, sym::Expr size) {
  return op.data_sized.types(Call(op, args), size);
}

sym::Expr new_size(sym::Pool& pool, sym::Range range) {
  int64_t number = 0;
  while (pool.find_symbol("data" + std::to_string(number))) ++number;
  return pool.symbol("data" + std::to_string(number), range);
}

bool gives_number(const Node& node) {
  return !node.results.empty() && node.results[0]->type.kind == Type::Kind::scalar;
}

std::optional<sym::Expr> symbol_made_by(const Graph& graph, const Node& node) {
  if (node.results.empty()) return std::nullopt;
  const Value& first = *node.results[0];
  if (first.type == Type::scalar(DType::i64)) return graph.pool().find_symbol(first.name);
  const int64_t dim = data_dim(*node.op, node.args);
  if (dim < 0) return std::nullopt;
  return first.type.sizes[static_cast<size_t>(dim)];
}

std::vector<sym::Expr> symbols_made_in(const Graph& graph) {
  std::vector<sym::Expr> symbols;
  for (const Node* node = graph.first(); node != nullptr; node = node->next)
    if (const std::optional<sym::Expr> symbol = symbol_made_by(graph, *node))
      symbols.push_back(*symbol);
  return symbols;
}

void collect_symbols(const Type& type, std::vector<sym::Expr>& symbols) {
  for (sym::Expr size : type.sizes) sym::collect_symbols(size, symbols);
  for (sym::Expr stride : type.strides) sym::collect_symbols(stride, symbols);
}

void collect_symbols(const Node& node, std::vector<sym::Expr>& symbols) {
  for (const Arg& arg : node.args) {
    if (const sym::Expr* one = std::get_if<sym::Expr>(&arg)) sym::collect_symbols(*one, symbols);
    if (const Ints* many = std::get_if<Ints>(&arg))
      for (sym::Expr each : *many) sym::collect_symbols(each, symbols);
  }
  for (const Value* result : node.results) collect_symbols(result->type, symbols);
}

}  // namespace tandem::ir
