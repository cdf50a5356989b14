// Around every pass: facts checked, the graph verified, dumps when it changed, time taken.
#include <fmt/format.h>

#include <chrono>

#include "base/check.h"
#include "base/flags.h"
#include "base/interrupt.h"
#include "base/pass_runner.h"
#include "driver/compiler.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "passes/passes.h"

namespace tandem::driver {
namespace {

/// Runs `f`. A check that fails in it tells of the pass, the graph as it stands then, and the
/// command that runs it again.
template <class F>
void with_context(const ir::Graph& graph, std::string_view pass, F f) {
  try {
    f();
  } catch (const InternalError& error) {
    if (!error.context().empty()) throw;
    throw InternalError(error.what(), fmt::format("in pass {0} on\n{1}\nrun again: tandem opt "
                                                  "--pass {0} <the graph above>",
                                                  pass, ir::to_string(graph)));
  }
}

void verify_after(const ir::Graph& graph, const GraphPass& pass) {
  std::vector<Diagnostic> problems = ir::verify(graph);
  std::vector<Diagnostic> facts = passes::check_facts(graph, pass.gives);
  problems.insert(problems.end(), facts.begin(), facts.end());
  TD_CHECK(problems.empty()) << "after " << pass.name << ": " << problems[0].render();
}

/// A pass that is asked for by name may meet a graph that is not ready for it: the user's problem.
void check_needs(const ir::Graph& graph, const GraphPass& pass, const GraphCtx& ctx) {
  std::vector<Diagnostic> problems = passes::check_facts(graph, pass.needs & ~ctx.facts);
  if (problems.empty()) return;
  for (Diagnostic& problem : problems)
    problem.text = fmt::format("pass {} needs more: {}", pass.name, problem.text);
  throw UserError(std::move(problems));
}

bool ends_here(const GraphCtx& ctx) {
  std::optional<int64_t> bisect = flag_bisect();
  return ctx.stopped || (bisect && ctx.applications >= *bisect);
}

}  // namespace

namespace {

void run_checked(ir::Graph& graph, const GraphPass& pass, GraphCtx& ctx) {
  uint64_t epoch = graph.epoch();
  std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
  pass.run(graph, ctx);
  double ms =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  ctx.diagnostics.finish();
  ctx.facts = (ctx.facts | pass.gives) & ~pass.breaks;
  ++ctx.applications;
  ctx.stopped = flag_stop_after() == pass.name;
  report_pass({"passes", pass.name, ms, graph.epoch() != epoch},
              [&] { return ir::to_string(graph); });
  if (flag_verify()) verify_after(graph, pass);
}

}  // namespace

void run_pass(ir::Graph& graph, const GraphPass& pass, GraphCtx& ctx) {
  poll_interrupt();
  if (is_pass_disabled(pass.name) || ends_here(ctx)) return;
  check_needs(graph, pass, ctx);
  with_context(graph, pass.name, [&] { run_checked(graph, pass, ctx); });
}

}  // namespace tandem::driver
