// Problem: what reads a size has no edge to the node that makes it. Approach: one walk in program
// order; a node waits for the numbers among its arguments, for the makers of its symbols, and for
// all that its operands wait for, since these may be computed where it is.
#include "schedule/numbers_read.h"

#include <algorithm>
#include <map>
#include <string>

#include "ir/data_sizes.h"
#include "ops/opdef.h"

namespace tandem::schedule {

using ir::Value;

namespace {

using Makers = std::map<std::string, const Value*>;

Makers makers_of(const ir::Graph& graph) {
  Makers makers;
  for (const ir::Node* node = graph.first(); node != nullptr; node = node->next)
    if (const std::optional<sym::Expr> symbol = ir::symbol_made_by(graph, *node))
      makers.emplace(symbol->name(), node->results[0]);
  return makers;
}

bool reads_numbers(const ir::Graph& graph) {
  for (const ir::Node* node = graph.first(); node != nullptr; node = node->next)
    for (const Value* result : node->results)
      if (!result->type.is_tensor()) return true;
  return false;
}

void add(std::vector<const Value*>& numbers, const Value* number) {
  if (std::ranges::find(numbers, number) == numbers.end()) numbers.push_back(number);
}

}  // namespace

NumbersRead::NumbersRead(const ir::Graph& graph) {
  if (!reads_numbers(graph)) return;
  const Makers makers = makers_of(graph);
  std::vector<const Value*> all;
  for (const ir::Node* node = graph.first(); node != nullptr; node = node->next) {
    std::vector<const Value*> own;
    ir::for_each_operand(node->args, [&](const Value* operand) {
      if (operand->node == nullptr) return;
      if (!operand->type.is_tensor()) add(own, operand);
      for (const Value* number : needed_.at(operand->node)) add(own, number);
    });
    std::vector<sym::Expr> symbols;
    ir::collect_symbols(*node, symbols);
    for (sym::Expr symbol : symbols)
      if (const Makers::const_iterator maker = makers.find(symbol.name()); maker != makers.end())
        add(own, maker->second);
    if (!ops::def_of(*node).runs.empty())  // its bodies may be given any of them
      for (const Value* number : all) add(own, number);
    for (const Value* result : node->results)
      if (!result->type.is_tensor()) all.push_back(result);
    needed_[node] = std::move(own);
  }
}

const std::vector<const Value*>& NumbersRead::read_for(const ir::Node& node) const {
  const std::vector<const Value*>* found = needed_.find(&node);
  return found == nullptr ? none_ : *found;
}

}  // namespace tandem::schedule
