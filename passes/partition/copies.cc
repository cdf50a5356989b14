// Walks from a value to what is missing of it with a stack of its own: chains are as long as the
// program.
#include "passes/partition/copies.h"

#include "base/check.h"
#include "ir/builder.h"

namespace tandem::passes {

using ir::Node;
using ir::Value;

bool Copies::is_available(const Value* value) const {
  return is_at_hand_(value) || copies_.at(value) != nullptr;
}

Value* Copies::now(Value* value) const {
  Value* copy = copies_.at(value);
  return copy == nullptr ? value : copy;
}

void Copies::serve(Node& reader) {
  for (size_t i = 0; i < reader.args.size(); ++i) {
    ir::Arg seen =
        ir::map_operands(reader.args[i], [&](Value* v) { return available(v, &reader); });
    if (seen != reader.args[i]) graph_.set_arg(&reader, i, std::move(seen));
  }
}

Value* Copies::available(Value* value, Node* before) {
  std::vector<Value*> stack{value};
  while (!stack.empty()) {
    Value* top = stack.back();
    Value* missing = is_available(top) ? nullptr : first_missing(*top);
    if (missing != nullptr) {
      stack.push_back(missing);
      continue;
    }
    if (!is_available(top)) copy(*top->node, before);
    stack.pop_back();
  }
  return now(value);
}

Value* Copies::first_missing(const Value& value) const {
  TD_CHECK(value.node != nullptr) << "backward reads input %" << value.name
                                  << ", which is not saved";
  Value* missing = nullptr;
  ir::for_each_operand(value.node->args, [&](Value* operand) {
    if (missing == nullptr && !is_available(operand)) missing = operand;
  });
  return missing;
}

void Copies::copy(const Node& node, Node* before) {
  Node* made = ir::clone_node(graph_, node, [&](Value* v) { return now(v); }, before);
  made->backward = true;
  made->origin.forward = node.id;
  for (size_t i = 0; i < node.results.size(); ++i)
    if (!is_at_hand_(node.results[i])) copies_[node.results[i]] = made->results[i];
  ++made_;
}

}  // namespace tandem::passes
