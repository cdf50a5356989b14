// The steps from the tensor graph to mapped kernels, in their order. Each line says why it stands
// where it stands.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>

#include "base/check.h"
#include "base/diagnostic.h"
#include "base/flags.h"
#include "base/interrupt.h"
#include "base/pass_runner.h"
#include "schedule/check_groups.h"
#include "schedule/map.h"
#include "schedule/schedule.h"
#include "schedule/steps.h"
#include "schedule/text.h"

namespace tandem::schedule {
namespace {

template <void (*step)(KernelGraph&)>
void run(KernelGraph& graph, PassCtx&) {
  step(graph);
}

template <class F>
void for_each_kernel(KernelGraph& graph, F visit) {
  for (Group& group : graph.groups)
    if (!group.is_library() && group.kernel.scalars != nullptr) visit(group);
}

void run_share(KernelGraph& graph, PassCtx&) { for_each_kernel(graph, share_scratch); }
// Of a processor: who spells blocks of threads knows how theirs are.
void run_mark_loops(KernelGraph& graph, PassCtx&) {
  if (graph.target.is_gpu()) return;
  for_each_kernel(graph, [&](Group& group) { mark_loops(group.kernel, graph.target); });
}
void run_mark_memory(KernelGraph& graph, PassCtx&) {
  if (graph.target.is_gpu()) return;
  for_each_kernel(graph, [&](Group& group) { mark_memory(graph, group); });
}

constexpr std::array kSteps = {
    // From the readers up: what is not materialized is inlined into them.
    KernelPass{"materialize", run<materialize>, 0, kItems, 0},
    // Once all places are known; all later steps ask computations, none asks ops.
    KernelPass{"inline_values", run<inline_values>, kItems, kComputations, 0},
    // Of all values at once, before anybody counts on one.
    KernelPass{"choose_layouts", run<choose_layouts>, kComputations, 0, 0},
    // Blocks of a long sum are walks through memory, so layouts come first.
    KernelPass{"split_reductions", run<split_reductions>, kComputations, 0, 0},
    KernelPass{"form_groups", run<form_groups>, kComputations, kGroups, 0},
    KernelPass{"build_kernels", run<build_kernels>, kGroups, kKernels, 0},
    // Kernels that hand rows from product to product become one …
    KernelPass{"compute_at_rows", run<compute_at_rows>, kKernels, 0, 0},
    // … and sums that only windows read are computed where they are read.
    KernelPass{"compute_at_windows", run<compute_at_windows>, kKernels, 0, 0},
    // What a sum adds may be sums itself, each of which nothing else reads.
    KernelPass{"compute_at_groups", run<compute_at_groups>, kKernels, 0, 0},
    // Kernels are what they will be; how they are mapped follows from it.
    KernelPass{"follow_calls", run<follow_calls>, kKernels, 0, 0},
    // Disabled, kernels run point by point: slow, and the same numbers where sums have the same
    // order.
    KernelPass{"map_axes", run<map_kernels>, kKernels, 0, 0},
    // A mapped chain has scratch for all that one stage leaves for another.
    KernelPass{"share_scratch", run_share, kKernels, 0, 0},
    // Behind all that makes or changes loops: how they are spelled.
    KernelPass{"mark_loops", run_mark_loops, kKernels, 0, 0},
    // Of loops as they will run.
    KernelPass{"mark_memory", run_mark_memory, kKernels, 0, 0},
    KernelPass{"fuse_horizontally", run<fuse_horizontally>, kKernels, kOrdered, 0},
};

/// A step that another one needs was disabled: the user's doing.
void check_needs(const KernelPass& step, Facts facts) {
  const Facts missing = step.needs & ~facts;
  if (missing == 0) return;
  for (const KernelPass& giver : kSteps)
    if ((giver.gives & missing) != 0)
      throw UserError(fmt::format("step {} needs {}, which is disabled", step.name, giver.name));
}

/// A text lacks what an earlier step gives.
void check_done(const KernelPass& step, Facts facts) {
  for (const KernelPass& giver : kSteps)
    if ((giver.gives & step.needs & ~facts) != 0)
      throw UserError(
          fmt::format("[kernels] line 1: step {} comes after {}", step.name, giver.name));
}

/// What prints parses back to what prints the same. `known`: the last text that did, which most
/// steps leave as it is.
void check_text(const KernelGraph& graph, std::string_view step, std::string& known) {
  std::string text = to_string(graph);
  if (text == known) return;
  KernelGraph again(*graph.graph, graph.target);
  try {
    parse_kernel_graph(again, text);
  } catch (const UserError& error) {
    TD_CHECK(false) << "after " << step << ": " << error.what() << "\n" << text;
  }
  const std::string reread = to_string(again);
  TD_CHECK(reread == text) << "after " << step << " this is printed:\n"
                           << text << "and read as:\n"
                           << reread;
  known = std::move(text);
}

void verify_after(const KernelGraph& graph, std::string_view step, std::string& known) {
  if (!is_verifying()) return;
  const Problems problems = verify(graph);
  TD_CHECK(problems.empty()) << "after " << step << ": " << problems[0].text;
  if (flag_verify()) check_text(graph, step, known);
}

/// What a text shows of what has been done to it.
struct Traces {
  Facts facts = 0;
  bool has_partials = false;
  bool is_mapped = false;
};

bool is_mapped(const loop::Kernel& kernel) {
  const auto is_marked = [](const std::vector<loop::Axis>& axes) {
    return std::ranges::any_of(
        axes, [](const loop::Axis& axis) { return axis.kind != loop::AxisKind::serial; });
  };
  return is_marked(kernel.outer) || std::ranges::any_of(kernel.stages, [&](const auto& stage) {
           return is_marked(stage.axes) || is_marked(stage.reduce_axes);
         });
}

Traces traces_in(const KernelGraph& graph) {
  Traces found;
  if (!graph.items.empty()) found.facts |= kItems;
  for (const std::unique_ptr<Item>& item : graph.items) {
    if (item->computation.is_defined()) found.facts |= kComputations;
    found.has_partials |= item->partial_of != nullptr;
  }
  if (!graph.groups.empty()) found.facts |= kGroups;
  for (const Group& group : graph.groups) {
    if (group.kernel.scalars == nullptr) continue;
    found.facts |= kKernels;
    found.is_mapped |= is_mapped(group.kernel);
  }
  if (!graph.order.empty()) found.facts |= kOrdered;
  return found;
}

/// A step meets what the steps before it leave: none does its work twice, or behind a later one's.
void check_traces(const KernelGraph& graph, const KernelPass& step, std::string_view text) {
  const Traces found = traces_in(graph);
  Facts later = 0;
  for (const KernelPass* at = &step; at != kSteps.end(); ++at) later |= at->gives;
  const bool splits = step.name == "choose_layouts" || step.name == "split_reductions";
  const auto step_named = [](std::string_view name) {
    return std::ranges::find(kSteps, name, &KernelPass::name);
  };
  const bool maps = &step >= step_named("compute_at_rows") && &step <= step_named("map_axes");
  if ((found.facts & later) != 0 || (splits && found.has_partials) || (maps && found.is_mapped))
    throw UserError(fmt::format("[kernels] line 1: they are past step {}", step.name));
  if (maps) throw_if_any(problems_of_unmapped(graph), text);
}

/// Of one that was read. Nothing is missing where there is nothing to do.
Facts facts_of(const KernelGraph& graph) {
  if (graph.items.empty()) return kItems | kComputations | kGroups | kKernels;
  Facts facts = kItems;
  const auto computes = [](const std::unique_ptr<Item>& item) {
    return item->kind == Item::Kind::library || item->computation.is_defined();
  };
  if (std::ranges::all_of(graph.items, computes)) facts |= kComputations;
  if (!graph.groups.empty()) facts |= kGroups;
  const auto is_built = [](const Group& group) {
    return group.is_library() || group.kernel.scalars != nullptr;
  };
  if (!graph.groups.empty() && std::ranges::all_of(graph.groups, is_built)) facts |= kKernels;
  return graph.order.empty() ? facts : facts | kOrdered;
}

/// What gives a fact is needed by later steps; TANDEM_BISECT counts the others.
bool ends_before(const KernelPass& step, PassCtx& ctx) {
  if (step.gives != 0) return false;
  const std::optional<int64_t> most = flag_bisect_steps();
  return ctx.applications++ >= most.value_or(INT64_MAX);
}

void run_step(KernelGraph& graph, const KernelPass& step, PassCtx& ctx, std::string& known) {
  using Clock = std::chrono::steady_clock;
  poll_interrupt();
  if (is_pass_disabled(step.name) || ends_before(step, ctx)) return;
  check_needs(step, ctx.facts);
  const Clock::time_point start = Clock::now();
  step.run(graph, ctx);
  const double ms = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
  ctx.facts |= step.gives;
  report_pass({"schedule", step.name, ms}, [&] { return to_string(graph); });
  verify_after(graph, step.name, known);
}

}  // namespace

bool is_verifying() {
#ifdef NDEBUG
  return flag_verify();
#else
  return true;
#endif
}

std::vector<std::string_view> step_names() {
  std::vector<std::string_view> names;
  for (const KernelPass& step : kSteps) names.push_back(step.name);
  return names;
}

void run_steps(KernelGraph& graph) {
  PassCtx ctx;
  std::string known;
  for (const KernelPass& step : kSteps) {
    run_step(graph, step, ctx, known);
    if (flag_stop_after() == step.name)
      throw UserError(
          fmt::format("TANDEM_STOP_AFTER={}: no program is made; TANDEM_DUMP=after:{} "
                      "shows what there is",
                      step.name, step.name));
  }
  if ((ctx.facts & kKernels) == 0)
    throw UserError("a program needs kernels: build_kernels is disabled");
  if ((ctx.facts & kOrdered) == 0) launch_one_by_one(graph);
}

std::string after_step(const ir::Graph& graph, const Target& target, std::string_view step,
                       std::string_view kernels) {
  const auto last = std::ranges::find(kSteps, step, &KernelPass::name);
  if (last == kSteps.end()) throw UserError(fmt::format("there is no step {}", step));
  KernelGraph made(graph, target);
  PassCtx ctx;
  std::string known;
  if (!kernels.empty()) {
    parse_kernel_graph(made, kernels);
    check_traces(made, *last, kernels);
    ctx.facts = facts_of(made);
    check_done(*last, ctx.facts);
  }
  for (const KernelPass* at = kernels.empty() ? kSteps.begin() : last; at != last + 1; ++at)
    run_step(made, *at, ctx, known);
  return to_string(made);
}

}  // namespace tandem::schedule
