// Random ops become pure: each gets a stream number in program order and the program's seed. Copies
// made later (recomputation, the backward pass) keep both and so draw the same numbers.
#include "ops/opdef.h"
#include "passes/passes.h"

namespace tandem::passes {
namespace {

ir::Value* seed_input(ir::Graph& graph) {
  for (ir::Value* input : graph.inputs())
    if (input->role == ir::Role::seed) return input;
  return graph.add_input(graph.free_input_name("seed"), ir::Type::scalar(DType::i64),
                         ir::Role::seed);
}

}  // namespace

void rng(ir::Graph& graph, GraphCtx&) {
  int64_t stream = 0;
  for (ir::Node* node = graph.first(); node != nullptr; node = node->next) {
    if (!ops::def_of(*node).random) continue;
    const ir::Schema& schema = node->op->schema;
    int seed = schema.find("seed");
    int number = schema.find("stream");
    if (seed < 0 || !std::holds_alternative<ir::None>(node->args[seed])) continue;
    graph.set_arg(node, static_cast<size_t>(seed), seed_input(graph));
    graph.set_arg(node, static_cast<size_t>(number), sym::Expr(stream++));
  }
}

}  // namespace tandem::passes
