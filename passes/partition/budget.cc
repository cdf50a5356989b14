// Problem: of the choices that there are, take the one that computes least again within a budget.
// Approach: a fraction is a number of bytes that are saved, and each choice says how many it saves.
// What a step holds at once is known when it is laid out, so choices are laid out, few of them: for
// a budget in bytes, and for a fraction, since saving less may mean to hold more. Where it would,
// the fraction takes what a larger one takes, which computes less again too.
#include "passes/partition/budget.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "ir/data_sizes.h"

namespace tandem::passes {
namespace {

int64_t room_of(const Budget& budget, const Frontier& frontier) {
  const int64_t least = frontier.choices.front().bytes;
  switch (budget.kind) {
    case Budget::Kind::min_memory: return least;
    case Budget::Kind::min_time: return INT64_MAX;
    case Budget::Kind::bytes:
    case Budget::Kind::fraction: break;
  }
  return least + static_cast<int64_t>(
                     std::floor(budget.fraction * static_cast<double>(frontier.cut_bytes - least)));
}

/// The last that fits.
size_t within_room(const Frontier& frontier, const Budget& budget) {
  const int64_t room = room_of(budget, frontier);
  size_t chosen = 0;
  for (size_t at = 0; at < frontier.choices.size(); ++at)
    if (frontier.choices[at].bytes <= room) chosen = at;
  return chosen;
}

/// What the tenths above a fraction would take, the nearest first, behind what it takes itself.
std::vector<size_t> from_fraction_up(const Frontier& frontier, const Budget& budget) {
  constexpr int kParts = 10;
  std::vector<size_t> all{within_room(frontier, budget)};
  Budget larger = budget;
  for (int tenth = 0; tenth <= kParts; ++tenth) {
    larger.fraction = static_cast<double>(tenth) / kParts;
    const size_t at = within_room(frontier, larger);
    if (larger.fraction > budget.fraction && at != all.back()) all.push_back(at);
  }
  return all;
}

bool has_symbols(const ir::Graph& graph) {
  std::vector<sym::Expr> symbols;
  for (const ir::Value* input : graph.inputs()) ir::collect_symbols(input->type, symbols);
  for (const ir::Node* node = graph.first(); node != nullptr; node = node->next)
    ir::collect_symbols(*node, symbols);
  return !symbols.empty();
}

/// The fewest bytes are saved whatever a step holds, and by operations a fraction is PyTorch's, of
/// saved bytes too. Who is shown all choices is shown the fraction's own among them.
bool asks_what_a_step_holds(const ir::Graph& graph, const GraphCtx& ctx) {
  const Budget& budget = ctx.budget;
  const bool is_of_memory = budget.fraction > 0 && budget.cost != Budget::Cost::flops;
  return is_of_memory && !ctx.describes_choices && ctx.step_bytes && !has_symbols(graph);
}

/// A smaller tenth never holds more at once than a larger one: of the tenths from this fraction up
/// the choice that holds least. Where sizes are not known it is what saves so much.
size_t within_fraction(const ir::Graph& graph, const Frontier& frontier, GraphCtx& ctx) {
  const std::vector<size_t> tried = from_fraction_up(frontier, ctx.budget);
  if (tried.size() == 1 || !asks_what_a_step_holds(graph, ctx)) return tried.front();
  size_t best = tried.front();
  int64_t least = INT64_MAX;
  for (const size_t at : tried) {
    const int64_t bytes = ctx.step_bytes(graph, frontier.choices[at].saved);
    if (bytes >= least) continue;
    least = bytes;
    best = at;
  }
  if (best != tried.front())
    ctx.notes.push_back(
        fmt::format("budget: saving {} bytes would hold more at once than saving {}, with {}",
                    frontier.choices[tried.front()].bytes, frontier.choices[best].bytes, least));
  return best;
}

/// Laying out a step takes long, and what it holds neither rises nor falls with what is saved: few
/// saved bytes may mean a long recomputation that is alive at once. So every so many choices are
/// tried from the fastest on, then those between the first that fits and the one before it.
class ByteSearch {
 public:
  ByteSearch(const ir::Graph& graph, const GraphCtx& ctx, const std::vector<Choice>& choices)
      : graph_(graph), ctx_(ctx), choices_(choices), bytes_(choices.size()) {}

  size_t run() {
    const size_t count = choices_.size();
    const size_t stride = std::max<size_t>(1, (count - 1) / kCoarse);
    size_t before = count;
    for (size_t left = count; left > 0; left -= std::min(left, stride)) {
      if (fits(left - 1)) return first_that_fits(before, left - 1).value_or(left - 1);
      before = left - 1;
    }
    const size_t best = least();
    const size_t above = std::min(count, best + stride);
    const size_t below = best >= stride ? best - stride : 0;
    if (const std::optional<size_t> found = first_that_fits(above, below)) return *found;
    throw UserError(fmt::format(
        "[memory_budget] no choice found holds a step in {} bytes: it takes {}, arguments included",
        ctx_.budget.bytes, *bytes_[least()]));
  }

  int64_t bytes_of(size_t at) {
    if (!bytes_[at]) bytes_[at] = ctx_.step_bytes(graph_, choices_[at].saved);
    return *bytes_[at];
  }

 private:
  static constexpr size_t kCoarse = 8;

  bool fits(size_t at) { return bytes_of(at) <= ctx_.budget.bytes; }

  /// Of those between the two, the fastest.
  std::optional<size_t> first_that_fits(size_t above, size_t below) {
    for (size_t at = above; at-- > below + 1;)
      if (fits(at)) return at;
    return std::nullopt;
  }

  /// Of those that were laid out.
  size_t least() const {
    size_t best = 0;
    for (size_t at = 0; at < bytes_.size(); ++at)
      if (bytes_[at] && (!bytes_[best] || *bytes_[at] < *bytes_[best])) best = at;
    return best;
  }

  const ir::Graph& graph_;
  const GraphCtx& ctx_;
  const std::vector<Choice>& choices_;
  std::vector<std::optional<int64_t>> bytes_;
};

size_t within_bytes(const ir::Graph& graph, const Frontier& frontier, GraphCtx& ctx) {
  if (!ctx.step_bytes)
    throw UserError("[memory_budget] bytes of a step are known where it is compiled only");
  ByteSearch search(graph, ctx, frontier.choices);
  const size_t found = search.run();
  ctx.notes.push_back(
      fmt::format("budget: a step holds {} bytes of {}", search.bytes_of(found), ctx.budget.bytes));
  return found;
}

size_t index_within(const ir::Graph& graph, const Frontier& frontier, GraphCtx& ctx) {
  switch (ctx.budget.kind) {
    case Budget::Kind::bytes: return within_bytes(graph, frontier, ctx);
    case Budget::Kind::fraction: return within_fraction(graph, frontier, ctx);
    case Budget::Kind::min_memory:
    case Budget::Kind::min_time: break;
  }
  return within_room(frontier, ctx.budget);
}

}  // namespace

const Choice& within_share(const Frontier& frontier, const Budget& budget) {
  return frontier.choices[within_room(frontier, budget)];
}

ir::Values within_budget(ir::Graph& graph, GraphCtx& ctx) {
  const Frontier frontier = frontier_of(graph, ctx.target, ctx.budget, ctx.storage, ctx.notes);
  const Choice& chosen = frontier.choices[index_within(graph, frontier, ctx)];
  const std::vector<Choice>& all = frontier.choices;
  ctx.notes.push_back(fmt::format(
      "budget: of {} choices between {} bytes with {:.1f} us computed again and {} with {:.1f}: "
      "{} with {:.1f}",
      all.size(), all.front().bytes, all.front().microseconds, all.back().bytes,
      all.back().microseconds, chosen.bytes, chosen.microseconds));
  return chosen.saved;
}

}  // namespace tandem::passes
