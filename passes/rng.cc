// Random ops become pure: each gets a stream number in program order and the program's seed. Copies
// made later (recomputation, the backward pass) keep both and so draw the same numbers. So does a
// loop or branch whose bodies, which come first, draw; each of its steps has a seed of its own.
#include <algorithm>

#include "ops/bodies.h"
#include "passes/passes.h"

namespace tandem::passes {
namespace {

ir::Value* seed_input(ir::Graph& graph) {
  for (ir::Value* input : graph.inputs())
    if (input->role == ir::Role::seed) return input;
  return graph.add_input(graph.free_input_name("seed"), ir::Type::scalar(DType::i64),
                         ir::Role::seed);
}

bool has_seed(const ir::Graph* graph) {
  return std::ranges::any_of(graph->inputs(),
                             [](const ir::Value* input) { return input->role == ir::Role::seed; });
}

/// What runs bodies draws where one of them does.
bool draws(const ir::Graph& graph, const ir::Node& node) {
  if (ops::def_of(node).random) return true;
  const std::vector<std::string> bodies = ops::bodies_of(node);
  return std::ranges::any_of(
      bodies, [&](const std::string& name) { return has_seed(graph.module().find(name)); });
}

/// What a caller's pass adds to a graph that was numbered draws behind it; behind the highest
/// number from 0 again.
int64_t first_free_stream(const ir::Graph& graph) {
  int64_t stream = 0;
  for (const ir::Node* node = graph.first(); node != nullptr; node = node->next) {
    const ir::Schema& schema = node->op->schema;
    if (!draws(graph, *node) || schema.find("seed") < 0 || !node->call().has("seed")) continue;
    const uint64_t behind = static_cast<uint64_t>(node->call().constant("stream")) + 1;
    stream = std::max(stream, static_cast<int64_t>(behind & INT64_MAX));
  }
  return stream;
}

}  // namespace

void rng(ir::Graph& graph, GraphCtx&) {
  int64_t stream = first_free_stream(graph);
  for (ir::Node* node = graph.first(); node != nullptr; node = node->next) {
    if (!draws(graph, *node)) continue;
    const ir::Schema& schema = node->op->schema;
    int seed = schema.find("seed");
    int number = schema.find("stream");
    if (seed < 0 || !std::holds_alternative<ir::None>(node->args[seed])) continue;
    graph.set_arg(node, static_cast<size_t>(seed), seed_input(graph));
    graph.set_arg(node, static_cast<size_t>(number), sym::Expr(stream++));
  }
}

}  // namespace tandem::passes
