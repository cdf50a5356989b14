// Problem: a program hands a number that it read to its backward as a number, but what a loop keeps
// of its steps are tensors. Approach: of a body, the tensor is kept, and the backward half reads
// the number as the forward half did: `read_scalar` behind the first one, marked as backward.
#include "passes/numbers_again.h"

#include <algorithm>

#include "ir/builder.h"
#include "ir/data_sizes.h"
#include "passes/partition/partition.h"

namespace tandem::passes {
namespace {

using ir::Node;
using ir::OutputKind;
using ir::Value;

std::vector<Node*> backward_nodes(const ir::Graph& joint, const Halves& halves) {
  std::vector<Node*> nodes;
  for (Node* node = joint.first(); node != nullptr; node = node->next)
    if (!halves.is_forward(node)) nodes.push_back(node);
  return nodes;
}

bool reads(const Node& node, const Value* number) {
  bool found = false;
  ir::for_each_operand(node.args, [&](const Value* operand) { found |= operand == number; });
  return found;
}

bool reads(const Node& node, const std::optional<sym::Expr>& symbol) {
  if (!symbol || !symbol->is_symbol()) return false;
  std::vector<sym::Expr> symbols;
  ir::collect_symbols(node, symbols);
  return std::ranges::find(symbols, *symbol) != symbols.end();
}

/// Readers of `number` read `other`.
void give(ir::Graph& graph, Node& reader, const Value* number, Value* other) {
  for (size_t i = 0; i < reader.args.size(); ++i)
    graph.set_arg(&reader, i, ir::map_operands(reader.args[i], [&](Value* operand) {
      return operand == number ? other : operand;
    }));
}

/// The tensor that the backward half reads the number from; null where it needs none.
Value* read_again(ir::Graph& joint, Node* node, const std::vector<Node*>& backward) {
  Value* number = node->results[0];
  const std::optional<sym::Expr> symbol = ir::symbol_made_by(joint, *node);
  if (std::ranges::none_of(backward, [&](const Node* reader) {
        return reads(*reader, number) || reads(*reader, symbol);
      }))
    return nullptr;
  Node* again = ir::clone_node(joint, *node, [](Value* value) { return value; }, node->next);
  again->backward = true;
  for (Node* reader : backward)
    if (reads(*reader, number)) give(joint, *reader, number, again->results[0]);
  return std::get<Value*>(node->args[0]);
}

}  // namespace

void read_numbers_again(ir::Graph& joint) {
  const Halves halves(joint);
  const std::vector<Node*> backward = backward_nodes(joint, halves);
  ir::Values sources;
  for (Node* node = joint.first(); node != nullptr; node = node->next)
    if (ir::gives_number(*node) && halves.is_forward(node))
      if (Value* source = read_again(joint, node, backward)) sources.push_back(source);
  if (sources.empty()) return;
  const std::vector<ir::Output> outputs = joint.outputs();
  joint.clear_outputs();
  ir::Values saved;
  for (const ir::Output& output : outputs) {
    const bool is_saved = output.kind == OutputKind::saved;
    if (is_saved && output.value->type.is_tensor()) saved.push_back(output.value);
    if (!is_saved) joint.add_output(output);
  }
  for (Value* source : sources)
    if (std::ranges::find(saved, source) == saved.end()) saved.push_back(source);
  set_saved(joint, saved);
}

}  // namespace tandem::passes
