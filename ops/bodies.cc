// Problem: a graph's bodies have to be ready before it is, and bodies have bodies. Approach: a walk
// in depth, with a stack of its own, as nesting is the user's; a graph on the way to itself would
// have no end.
#include "ops/bodies.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/diagnostic.h"
#include "ir/text.h"

namespace tandem::ops {
namespace {

ir::Graph& find_body(const ir::Graph& graph, const ir::Node& node, const std::string& name) {
  ir::Graph* body = graph.module().find(name);
  if (body == nullptr)
    throw UserError(fmt::format("[{}] there is no graph @{}", node.op->schema.full_name(), name),
                    node.origin.place);
  return *body;
}

std::vector<ir::Graph*> direct_bodies(const ir::Graph& graph) {
  std::vector<ir::Graph*> found;
  for (const ir::Node* node = graph.first(); node != nullptr; node = node->next)
    for (const std::string& name : bodies_of(*node)) {
      ir::Graph* body = &find_body(graph, *node, name);
      if (std::ranges::find(found, body) == found.end()) found.push_back(body);
    }
  return found;
}

/// A graph whose bodies are being visited; `next`: the one to go on with.
struct Visit {
  const ir::Graph* graph;
  std::vector<ir::Graph*> bodies;
  size_t next = 0;
};

constexpr size_t kDeepest = 64;  // the runtime calls bodies of bodies on its stack

void check_end(const std::vector<Visit>& path, const ir::Graph* body) {
  if (path.size() > kDeepest)
    throw Unsupported(fmt::format("loops and branches nest deeper than {}", kDeepest));
  if (std::ranges::any_of(path, [&](const Visit& visit) { return visit.graph == body; }))
    throw UserError(fmt::format("graph @{} runs itself: that has no end", body->name()));
}

}  // namespace

std::vector<std::string> bodies_of(const ir::Node& node) {
  std::vector<std::string> names;
  for (std::string_view parameter : def_of(node).runs)
    names.push_back(node.call().string(parameter));
  return names;
}

std::vector<ir::Graph*> bodies_of(const ir::Graph& graph) {
  std::vector<ir::Graph*> done;
  std::vector<Visit> path;
  path.push_back({&graph, direct_bodies(graph)});
  while (!path.empty()) {
    Visit& visit = path.back();
    if (visit.next < visit.bodies.size()) {
      ir::Graph* body = visit.bodies[visit.next++];
      check_end(path, body);
      if (std::ranges::find(done, body) == done.end()) path.push_back({body, direct_bodies(*body)});
      continue;
    }
    if (visit.graph != &graph) done.push_back(const_cast<ir::Graph*>(visit.graph));
    path.pop_back();
  }
  return done;
}

void collect_given(const ir::Graph& body, std::vector<sym::Expr>& symbols) {
  for (const ir::Value* input : body.inputs())
    if (!input->type.is_tensor() && input->role != ir::Role::seed)
      if (const std::optional<sym::Expr> symbol = body.pool().find_symbol(input->name))
        sym::collect_symbols(*symbol, symbols);
}

void collect_given(const ir::Graph& graph, const ir::Node& node, std::vector<sym::Expr>& symbols) {
  for (const std::string& name : bodies_of(node))
    collect_given(find_body(graph, node, name), symbols);
}

std::string text_with_bodies(const ir::Graph& graph) {
  std::string text = ir::to_string(graph);
  for (const ir::Graph* body : bodies_of(graph)) text += "\n" + ir::to_string(*body);
  return text;
}

void check_bodies(const ir::Graph& graph) {
  for (const ir::Node* node = graph.first(); node != nullptr; node = node->next)
    if (def_of(*node).check_bodies != nullptr)
      def_of(*node).check_bodies(node->call(), graph.module());
}

}  // namespace tandem::ops
