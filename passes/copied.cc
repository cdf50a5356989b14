// The order of nodes is kept, so that copying is one walk with a map of what was copied.
#include "passes/copied.h"

#include "base/check.h"

namespace tandem::passes {

using ir::Node;
using ir::Value;

Value* at(const Moved& moved, const Value* value) {
  const Moved::const_iterator found = moved.find(value);
  TD_CHECK(found != moved.end()) << "a body reads %" << value->name << ", which it does not have";
  return found->second;
}

void copy_nodes(const ir::Graph& from, ir::Graph& to, Moved& moved, Node* before) {
  for (const Node* node = from.first(); node != nullptr; node = node->next) {
    const Node* made =
        ir::clone_node(to, *node, [&](const Value* value) { return at(moved, value); }, before);
    for (size_t i = 0; i < node->results.size(); ++i) moved[node->results[i]] = made->results[i];
  }
}

ir::Values tensors_of(const ir::Graph& body) {
  ir::Values tensors;
  for (Value* input : body.inputs())
    if (input->type.is_tensor()) tensors.push_back(input);
  return tensors;
}

}  // namespace tandem::passes
