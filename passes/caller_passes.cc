// Problem: who compiles may know of its graphs what no pass here does, and wants to look at or
// rewrite them where forward and backward are one graph still. Approach: its functions run at that
// place, and what they leave is held to what every pass is held to, so that a mistake is an error
// that names the function and not a wrong number later.
#include <fmt/format.h>

#include "base/diagnostic.h"
#include "ir/verify.h"
#include "passes/passes.h"

namespace tandem::passes {

void caller_passes(ir::Graph& graph, GraphCtx& ctx) {
  for (const CallerPass& pass : ctx.caller_passes) {
    pass.run(graph);
    std::vector<Diagnostic> problems = ir::verify(graph);
    if (problems.empty()) problems = check_facts(graph, kFunctional);
    if (problems.empty()) continue;
    for (Diagnostic& problem : problems)
      problem.text = fmt::format("[joint_passes] behind '{}': {}", pass.name, problem.text);
    throw UserError(std::move(problems));
  }
}

}  // namespace tandem::passes
