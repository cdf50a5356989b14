// What can be saved between the fewest bytes and the least time.
#pragma once

#include "base/target.h"
#include "passes/partition/partition.h"
#include "passes/passes.h"

namespace tandem::passes {

/// Values to save.
struct Choice {
  ir::Values saved;
  std::vector<const ir::Node*> again;  // of forward, by backward
  int64_t bytes = 0;                   // that keeping them takes
  double microseconds = 0;             // of forward's work, done again in backward
  double cost = 0;  // by which it is compared: what should be saved by its policy counts a
                    // thousand times
};

struct Frontier {
  std::vector<Choice> choices;  // each with more bytes and less cost than the one before
  int64_t cut_bytes = 0;        // of min_cut's choice, or of what is read as it is
};

/// The best choices found by the budget's cost and solver, whatever its room: minimum cuts at rates
/// of bytes for a microsecond, and with a knapsack's pick of what is dear tied down. Deterministic;
/// never empty. By operations, and of bytes that a step holds, arguments count nothing. `notes`
/// says where an exact knapsack was not solved to the end. frontier.cc
Frontier frontier_of(ir::Graph& graph, const Target& target, const Budget& budget,
                     const SavedStorage& storage, std::vector<std::string>& notes);

/// Of the choices the one that takes least time within a fraction, or the ends; whatever a step
/// holds at once.
const Choice& within_share(const Frontier& frontier, const Budget& budget);

/// The cheapest cut where keeping a value costs its bytes and a microsecond costs so many bytes.
/// frontier.cc
ir::Values priced_choice(ir::Graph& graph, const Target& target, const SavedStorage& storage);

/// What `ctx.caller_partition` gives, with what must be saved beside it. UserError, which names it,
/// for values that forward does not have, and where it edits the graph. caller_partition.cc
ir::Values caller_choice(ir::Graph& graph, GraphCtx& ctx);

/// What to save, by `ctx.partition`. choose.cc
ir::Values chosen_values(ir::Graph& graph, GraphCtx& ctx);

/// For the report, as `ctx` and TANDEM_DUMP ask. choose.cc
void describe_choice(ir::Graph& graph, GraphCtx& ctx, const ir::Values& saved);

/// The choice that takes least time within the budget. More of a budget never saves fewer bytes and
/// never costs more time. Of a fraction by time that `ctx.step_bytes` says holds more at once than
/// what a tenth above it takes, the latter: with tenths what a step holds falls.
/// Of bytes that a step holds at once, `ctx.step_bytes` says how many; UserError names the fewest
/// where no choice keeps to the budget.
ir::Values within_budget(ir::Graph& graph, GraphCtx& ctx);

}  // namespace tandem::passes
