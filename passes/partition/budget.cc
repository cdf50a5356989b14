// Problem: of all choices that save at most so many bytes, find the one that computes least again.
// With a price for a microsecond it is a minimum cut, which sees what a value needs to be made
// from: cuts at rising prices give the corners of what is possible. Between two corners, where a
// dozen equal layers change sides at once, a knapsack picks which of the dear values are tied down,
// and a cut around them chooses the rest; by operations, where few nodes differ, choices are then
// extended product by product where that is known to give a better one. What is found is kept where
// nothing else is better in both, and it does not depend on the budget, so that a larger budget
// cannot choose worse.
#include "passes/partition/budget.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <optional>

#include "ir/text.h"
#include "passes/partition/bans.h"
#include "passes/partition/cut.h"
#include "passes/partition/recompute_cost.h"

namespace tandem::passes {
namespace {

using ir::Node;
using ir::Value;

/// Of the default. Activations and attention's scores are worth their time, products with weights
/// and convolutions are not: docs/partition.md has both measured.
constexpr double kBytesForMicrosecond = 4096;

constexpr int64_t kRooms = 24;
constexpr int64_t kMostBetween = 256;

/// By operations few nodes differ, so that what lies between two rooms shows: the more rooms the
/// smaller the graph, as a cut takes time by its nodes.
int64_t rooms_of_flops(const ir::Graph& graph) {
  const int64_t nodes = std::max<int64_t>(1, static_cast<int64_t>(graph.node_ids()));
  return std::clamp(kRooms / 2 * 5000 / nodes, kRooms / 2, kRooms * 8);
}

/// How many there may be, how long each takes and what it is worth all go by the nodes.
int64_t cuts_between(const ir::Graph& graph) {
  constexpr double kNodesOfAll = 3300;
  const double nodes = static_cast<double>(std::max<size_t>(1, graph.node_ids()));
  const double share = std::min(1.0, std::pow(kNodesOfAll / nodes, 3));
  return static_cast<int64_t>(static_cast<double>(kMostBetween) * share);
}

/// The choices that no other one beats in bytes and in cost; the first of equal ones.
class Front {
 public:
  bool beats(int64_t bytes, double cost) const {
    const auto above = by_bytes_.upper_bound(bytes);
    return above != by_bytes_.begin() && std::prev(above)->second.cost <= cost;
  }

  void add(const Choice& choice) {
    if (beats(choice.bytes, choice.cost)) return;
    const auto first = by_bytes_.lower_bound(choice.bytes);
    auto end = first;
    while (end != by_bytes_.end() && end->second.cost >= choice.cost) ++end;
    by_bytes_.erase(first, end);
    by_bytes_.emplace(choice.bytes, choice);
  }

  /// The next one of more bytes; null: there is none.
  const Choice* above(int64_t bytes) const {
    const auto next = by_bytes_.upper_bound(bytes);
    return next == by_bytes_.end() ? nullptr : &next->second;
  }

  std::vector<Choice> choices() const {
    std::vector<Choice> all;
    for (const auto& [bytes, choice] : by_bytes_) all.push_back(choice);
    return all;
  }

 private:
  std::map<int64_t, Choice> by_bytes_;  // cost falls
};

class Search {
 public:
  Search(ir::Graph& graph, const Target& target, const Budget& budget, const SavedStorage& storage,
         std::vector<std::string>& notes)
      : graph_(graph),
        target_(target),
        solver_(budget.solver),
        counts_(budget.cost),
        notes_(notes),
        halves_(graph),
        bans_(bans_of(graph, halves_, target.tuning.chains)),
        kept_(graph, storage),
        network_(graph, halves_, [this](const Value* value) { return keeping(*value); }) {
    for (const Node* node = graph.first(); node != nullptr; node = node->next)
      if (halves_.is_forward(node) && !node->op->mutates()) measure(*node);
  }

  /// Long attention, and random numbers in it, are made again inside of the kernel that reads it:
  /// its time is no reason.
  Choice at_rate(double bytes_for_microsecond) {
    const DenseMap<Node, char> wide = wide_nodes(graph_, target_.tuning.chains);
    for (const Node* node = graph_.first(); node != nullptr; node = node->next) {
      const bool has_kernel_anyway = !bans_.at(node).is_ban() && !is_light(*node);
      if (has_kernel_anyway || wide.at(node) != 0) costs_[node] = 0;
    }
    return cut(bytes_for_microsecond, {});
  }

  Frontier run() {
    std::vector<std::string> unused;
    Frontier frontier;
    add(default_choice(graph_, target_.tuning.chains, kept_));
    frontier.cut_bytes = add(min_cut(graph_, target_.tuning.chains, kept_, unused)).bytes;
    add_corners();
    if (counts_ == Budget::Cost::time) {
      add_packed(kRooms, [](const Node*) { return true; });
    } else {
      add_packed(rooms_of_flops(graph_), [](const Node*) { return true; });
      add_packed(rooms_of_flops(graph_), [](const Node* node) { return product_flops(*node) > 0; });
      add_between();
    }
    frontier.choices = front_.choices();
    return frontier;
  }

 private:
  // Bytes that a microsecond is worth: next to nothing, so that only ties are decided by time …
  static constexpr double kOnlyMemory = 1e-3;
  static constexpr double kOnlyTime = 1e9;  // … and more than any value takes
  static constexpr int kMostCorners = 24;
  static constexpr double kPreference = 1000;
  static constexpr double kBesideProducts = 1e-3;
  static constexpr double kLeastGain = 0.01;  // of a choice between two, of what all may cost

  /// What checkpointing asks to be computed again is no choice, so nothing is kept to spare it, nor
  /// what backward alone makes from it.
  void measure(const Node& node) {
    const double time = microseconds_again(node, target_);
    const bool is_preferred = bans_.at(&node).kind == Ban::Kind::preferred;
    microseconds_[&node] = time;
    const double cost = counts_ == Budget::Cost::flops ? mostly_products(node, time) : time;
    costs_[&node] = asked_to_recompute(node) ? 0 : is_preferred ? kPreference * cost : cost;
  }

  /// In microseconds too, so that prices mean the same.
  double mostly_products(const Node& node, double time) const {
    const Tuning::Rates& rates = target_.tuning.rates;
    const double lanes = static_cast<double>(rates.lane_flops) * target_.lanes() * target_.cores;
    return product_flops(node) / lanes + kBesideProducts * time;
  }

  Choice add(ir::Values saved) {
    const std::vector<const Node*> again = computed_again(graph_, halves_, saved);
    return add({std::move(saved), again});
  }

  Choice add(Cut cut) {
    Choice choice;
    for (const Value* value : cut.saved) choice.bytes += kept_.of(value);
    for (const Node* node : cut.again) {
      choice.microseconds += microseconds_.at(node);
      choice.cost += costs_.at(node);
    }
    choice.saved = std::move(cut.saved);
    choice.again = std::move(cut.again);
    front_.add(choice);
    return choice;
  }

  // --- cuts
  // -----------------------------------------------------------------------------------------

  /// `tied`: what is not computed again beside what must not be.
  Choice cut(double bytes_for_microsecond, const DenseMap<Node, char>& tied) {
    return add(network_.cheapest([&](const Node* node) {
      const bool never = tied.at(node) != 0 || bans_.at(node).kind == Ban::Kind::never;
      return never ? kNever : price(costs_.at(node) * bytes_for_microsecond);
    }));
  }

  static int64_t price(double bytes) {
    constexpr double kPartsOfByte = 64;
    return static_cast<int64_t>(std::min(bytes * kPartsOfByte, static_cast<double>(kMostPrice)));
  }

  int64_t keeping(const Value& value) const {
    if (!value.type.is_tensor()) return 1;
    if (value.node != nullptr && (asked_to_recompute(*value.node) || shows_all_of_base(value)))
      return kNever;
    return price(static_cast<double>(kept_.of(&value)));
  }

  void add_corners() {
    std::deque<std::pair<Choice, Choice>> open{{cut(kOnlyMemory, {}), cut(kOnlyTime, {})}};
    for (int corners = 0; !open.empty() && corners < kMostCorners; ++corners) {
      const auto [less, more] = std::move(open.front());
      open.pop_front();
      if (less.bytes >= more.bytes || less.cost <= more.cost) continue;
      const double bytes = static_cast<double>(more.bytes - less.bytes);
      const Choice between = cut(bytes / (less.cost - more.cost), {});
      if (between.bytes <= less.bytes || between.bytes >= more.bytes) continue;
      open.emplace_back(less, between);
      open.emplace_back(between, more);
    }
  }

  // --- what is tied down
  // ---------------------------------------------------------------------------------------------

  /// Backward reads a result, or what is made from it.
  DenseMap<Node, char> before_backward() const {
    DenseMap<Node, char> before;
    for (const Node* node = graph_.last(); node != nullptr; node = node->prev) {
      bool reaches = halves_.needs_tangent(node);
      for (const Value* result : node->results)
        for (const ir::Use& use : result->uses)
          reaches |= use.node == nullptr
                         ? graph_.outputs()[use.arg].kind == ir::OutputKind::gradient
                         : before.at(use.node) != 0;
      before[node] = reaches;
    }
    return before;
  }

  template <class F>
  void find_items(F may_be_tied) {
    items_.clear();
    item_nodes_.clear();
    const DenseMap<Node, char> before = before_backward();
    for (const Node* node = graph_.first(); node != nullptr; node = node->next) {
      const Ban::Kind kind = bans_.at(node).kind;
      if (kind != Ban::Kind::dear && kind != Ban::Kind::preferred) continue;
      if (!may_be_tied(node)) continue;
      KnapsackItem item{0, costs_.at(node)};
      for (const Value* result : node->results) item.bytes += kept_.of(result);
      if (item.bytes == 0 || !before.at(node)) continue;
      item_nodes_.push_back(node);
      items_.push_back(item);
    }
  }

  template <class F>
  void add_packed(int64_t count, F may_be_tied) {
    find_items(may_be_tied);
    int64_t all = 0;
    for (const KnapsackItem& item : items_) all += item.bytes;
    std::vector<int64_t> rooms;
    for (int64_t i = 1; i < count; ++i) rooms.push_back(all / count * i);
    const std::vector<Knapsack> packed = pack_each(items_, rooms, solver_);
    for (size_t i = 0; i < packed.size(); ++i) {
      note(packed[i], rooms[i]);
      if (i > 0 && packed[i].kept == packed[i - 1].kept) continue;
      DenseMap<Node, char> tied;
      for (size_t k = 0; k < items_.size(); ++k) tied[item_nodes_[k]] = packed[i].kept[k];
      cut(kOnlyMemory, tied);
    }
  }

  // --- what lies between two choices
  // ---------------------------------------------------------------------------------------------

  /// All that are not computed again; what else spared one of them, statistics of a norm for one,
  /// is not tied, and goes where it is no longer needed.
  DenseMap<Node, char> tied_by(const Choice& choice) const {
    DenseMap<Node, char> tied;
    for (const Node* node : item_nodes_) tied[node] = 1;
    for (const Node* node : choice.again) tied[node] = 0;
    return tied;
  }

  /// bytes(T + p) <= bytes(T) + bytes(p), and backward runs p no more: where no choice is as good
  /// as that, tying p down gives a better one. Upwards, so that what was found is extended as well.
  void add_between() {
    find_items([](const Node* node) { return product_flops(*node) > 0; });
    int64_t cuts = cuts_between(graph_);
    const double least_gain = kLeastGain * front_.above(-1)->cost;
    for (const Choice* at = front_.above(-1); at != nullptr && cuts > 0;) {
      const Choice from = *at;
      cuts -= extend(from, least_gain, cuts);
      at = front_.above(from.bytes);
    }
  }

  /// Gives how many cuts that took, `most` of them.
  int64_t extend(const Choice& from, double least_gain, int64_t most) {
    DenseMap<Node, char> tied = tied_by(from);
    cut(kOnlyMemory, tied);
    int64_t cuts = 1;
    for (size_t k = 0; k < items_.size() && cuts < most; ++k) {
      const int64_t bytes = from.bytes + items_[k].bytes;
      const double cost = from.cost - items_[k].worth + least_gain;
      if (tied.at(item_nodes_[k]) != 0 || front_.beats(bytes, cost)) continue;
      tied[item_nodes_[k]] = 1;
      cut(kOnlyMemory, tied);
      tied[item_nodes_[k]] = 0;
      ++cuts;
    }
    return cuts;
  }

  void note(const Knapsack& packed, int64_t room) {
    if (solver_ == KnapsackSolver::exact && packed.bound > packed.worth)
      notes_.push_back(fmt::format("budget: the knapsack of {} bytes is solved to {:.3f} %", room,
                                   100 * (packed.bound / packed.worth - 1)));
  }

  ir::Graph& graph_;
  const Target& target_;
  KnapsackSolver solver_;
  Budget::Cost counts_;
  std::vector<std::string>& notes_;
  Halves halves_;
  DenseMap<Node, Ban> bans_;
  KeptBytes kept_;
  CutNetwork network_;
  DenseMap<Node, double> microseconds_;  // of forward's nodes; others run once, wherever
  DenseMap<Node, double> costs_;
  std::vector<const Node*> item_nodes_;
  std::vector<KnapsackItem> items_;
  Front front_;
};

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

}  // namespace

namespace {

/// Who keeps values in fewer bits wants memory: the price falls as their bytes do. Else more would
/// be saved then, attention's scores for one, than in full.
double bytes_for_microsecond(const SavedStorage& storage) {
  if (storage.kind == SavedStorage::Kind::whole) return kBytesForMicrosecond;
  return kBytesForMicrosecond * static_cast<double>(element_bytes(storage.kind)) /
         static_cast<double>(size_of(DType::f32));
}

}  // namespace

ir::Values priced_choice(ir::Graph& graph, const Target& target, const SavedStorage& storage) {
  std::vector<std::string> notes;
  return Search(graph, target, Budget(), storage, notes)
      .at_rate(bytes_for_microsecond(storage))
      .saved;
}

Frontier frontier_of(ir::Graph& graph, const Target& target, const Budget& budget,
                     const SavedStorage& storage, std::vector<std::string>& notes) {
  return Search(graph, target, budget, storage, notes).run();
}

namespace {

const Choice& within_room(const Frontier& frontier, const Budget& budget) {
  const int64_t room = room_of(budget, frontier);
  const Choice* chosen = &frontier.choices.front();
  for (const Choice& choice : frontier.choices)
    if (choice.bytes <= room) chosen = &choice;
  return *chosen;
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

const Choice& within_bytes(const ir::Graph& graph, const Frontier& frontier, GraphCtx& ctx) {
  if (!ctx.step_bytes)
    throw UserError("[memory_budget] bytes of a step are known where it is compiled only");
  ByteSearch search(graph, ctx, frontier.choices);
  const size_t found = search.run();
  ctx.notes.push_back(
      fmt::format("budget: a step holds {} bytes of {}", search.bytes_of(found), ctx.budget.bytes));
  return frontier.choices[found];
}

}  // namespace

ir::Values within_budget(ir::Graph& graph, GraphCtx& ctx) {
  const Frontier frontier = frontier_of(graph, ctx.target, ctx.budget, ctx.storage, ctx.notes);
  const Choice& chosen = ctx.budget.kind == Budget::Kind::bytes ? within_bytes(graph, frontier, ctx)
                                                                : within_room(frontier, ctx.budget);
  const std::vector<Choice>& all = frontier.choices;
  ctx.notes.push_back(fmt::format(
      "budget: of {} choices between {} bytes with {:.1f} us computed again and {} with {:.1f}: "
      "{} with {:.1f}",
      all.size(), all.front().bytes, all.front().microseconds, all.back().bytes,
      all.back().microseconds, chosen.bytes, chosen.microseconds));
  return chosen.saved;
}

}  // namespace tandem::passes
