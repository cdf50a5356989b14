// Backwards once: a node whose results have no uses left goes, and frees its operands for the same.
// What writes stays; what can fail stays too, since its error is part of the program's meaning.
#include "ir/data_sizes.h"
#include "ops/opdef.h"
#include "passes/passes.h"

namespace tandem::passes {

void dce(ir::Graph& graph, GraphCtx&) {
  for (ir::Node* node = graph.last(); node != nullptr;) {
    ir::Node* previous = node->prev;
    bool used = node->op->mutates() || (ops::def_of(*node).can_fail && !node->backward);
    used |= ir::gives_number(*node);  // it may be a size, which has no edges
    for (const ir::Value* result : node->results) used |= !result->uses.empty();
    if (!used) graph.erase(node);
    node = previous;
  }
}

}  // namespace tandem::passes
