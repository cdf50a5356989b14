// Equal op, equal arguments: one node. Random ops are pure after `rng`, so they merge only when
// they draw the same numbers anyway. Recompute policies merge, must_save over all others.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "ir/data_sizes.h"
#include "ops/opdef.h"
#include "passes/passes.h"

namespace tandem::passes {
namespace {

struct KeyPrinter {
  std::string operator()(ir::Value* value) const { return fmt::format("%{}", value->id); }
  std::string operator()(const ir::Values& values) const {
    std::string text = "[";
    for (const ir::Value* value : values)
      text += value == nullptr ? "-," : fmt::format("%{},", value->id);
    return text + "]";
  }
  template <class T>
  std::string operator()(const T& plain) const {
    return ir::to_string(ir::Arg(plain));
  }
};

std::string key_of(const ir::Node& node) {
  std::string key = node.op->name() + (node.no_grad ? "!" : "");
  for (const ir::Arg& arg : node.args) key += "|" + std::visit(KeyPrinter{}, arg);
  return key;
}

}  // namespace

void cse(ir::Graph& graph, GraphCtx&) {
  std::map<std::string, ir::Node*> seen;
  for (ir::Node* node = graph.first(); node != nullptr;) {
    ir::Node* next = node->next;
    const bool makes_size = ir::data_dim(*node->op, node->args) >= 0;  // a symbol of its own
    if (!node->op->mutates() && !ops::def_of(*node).opaque && !makes_size) {
      std::pair<std::map<std::string, ir::Node*>::iterator, bool> entry =
          seen.emplace(key_of(*node), node);
      if (!entry.second) {
        ir::Node* first = entry.first->second;
        first->policy = std::max(first->policy, node->policy);
        first->memory_budget = std::max(first->memory_budget, node->memory_budget);
        first->backward = first->backward && node->backward;
        for (size_t i = 0; i < node->results.size(); ++i)
          graph.replace_all_uses(node->results[i], first->results[i]);
        graph.erase(node);
      }
    }
    node = next;
  }
}

}  // namespace tandem::passes
