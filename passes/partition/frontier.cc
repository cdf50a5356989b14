// Problem: of all choices of what to save, find those that no other one beats in bytes and in work
// done again. With a price for a microsecond it is a minimum cut, which sees what a value needs to
// be made from: cuts at rising prices give the corners of what is possible. Between two corners,
// where a dozen equal layers change sides at once, a knapsack picks which of the dear values are
// tied down, and a cut around them chooses the rest; by operations, where few nodes differ, choices
// are then bettered product by product (exchange.h). What is found is kept where nothing else is
// better in both, and it does not depend on the budget, so that a larger budget cannot choose
// worse.
#include <fmt/format.h>

#include <algorithm>
#include <deque>

#include "passes/partition/bans.h"
#include "passes/partition/budget.h"
#include "passes/partition/cut.h"
#include "passes/partition/exchange.h"
#include "passes/partition/front.h"
#include "passes/partition/recompute_cost.h"

namespace tandem::passes {
namespace {

using ir::Node;
using ir::Value;

/// What a budget counts. By operations a choice is compared as PyTorch compares it, beside
/// arguments; what a step holds has them in it whatever is saved. In both an argument costs nothing
/// to keep. A fraction by time counts those that backward keeps from being freed.
KeptBytes::Arguments counted_arguments(const Budget& budget) {
  const bool are_free = budget.cost == Budget::Cost::flops || budget.kind == Budget::Kind::bytes;
  return are_free ? KeptBytes::Arguments::free : KeptBytes::Arguments::counted;
}

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
        wide_(wide_nodes(graph, target.tuning.chains)),
        knobs_(budget.knobs),
        bans_(bans_of(graph, halves_, wide_, budget.knobs)),
        whole_(graph, storage),
        kept_(graph, storage, counted_arguments(budget)),
        network_(
            graph, halves_, [this](const Value* value) { return keeping(*value); },
            target.tuning.saving) {
    for (const Node* node = graph.first(); node != nullptr; node = node->next)
      if (halves_.is_forward(node) && !node->op->mutates()) measure(*node);
  }

  /// Long attention, and random numbers in it, are made again inside of the kernel that reads it:
  /// its time is no reason.
  Choice at_rate(double bytes_for_microsecond) {
    for (const Node* node = graph_.first(); node != nullptr; node = node->next) {
      const bool has_kernel_anyway = !bans_.at(node).is_ban() && !is_light(*node);
      if (has_kernel_anyway || wide_.at(node) != 0) costs_[node] = 0;
    }
    return cut(bytes_for_microsecond, {});
  }

  Frontier run() {
    std::vector<std::string> unused;
    Frontier frontier;
    // Beside arguments either may be the smaller one.
    const ir::Values as_read = default_choice(graph_, halves_, wide_, whole_);
    const ir::Values least = min_cut(graph_, halves_, bans_, whole_, as_read, unused, knobs_);
    frontier.cut_bytes = std::min(add(as_read).bytes, add(least).bytes);
    add_corners();
    add_packed([](const Node*) { return true; });
    if (counts_ == Budget::Cost::flops) {
      add_packed([](const Node* node) { return product_flops(*node) > 0; });
      exchange_products();
    }
    frontier.choices = front_.choices();
    return frontier;
  }

 private:
  // Bytes that a microsecond is worth: next to nothing, so that only ties are decided by time …
  static constexpr double kOnlyMemory = 1e-3;
  static constexpr double kOnlyTime = 1e9;  // … and more than any value takes
  // … and what keeps numbers of rows, which spare passes over them: of attention a sum of 128
  // exponentials is 4 bytes for 40 ns, where products are 3,000 bytes a microsecond and more.
  static constexpr double kNumbersOfRows = 200;
  // How many cuts there are at most, of corners and, twice, of each kind of packing: each takes
  // time by the edges of the graph, and with more of them what lies between two is less.
  static constexpr int kMostCorners = 24;
  static constexpr int64_t kRooms = 24;
  static constexpr double kPreference = 1000;
  static constexpr double kBesideProducts = 1e-3;

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
      return tied.at(node) != 0 ? kNever : price_at(node, bytes_for_microsecond);
    }));
  }

  static int64_t price(double bytes) {
    const double parts = bytes * static_cast<double>(kPartsOfByte);
    return static_cast<int64_t>(std::min(parts, static_cast<double>(kMostPrice)));
  }

  int64_t price_at(const Node* node, double bytes_for_microsecond) const {
    const bool never = bans_.at(node).kind == Ban::Kind::never;
    return never ? kNever : price(costs_.at(node) * bytes_for_microsecond);
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
  void add_packed(F may_be_tied) {
    find_items(may_be_tied);
    int64_t all = 0;
    for (const KnapsackItem& item : items_) all += item.bytes;
    std::vector<int64_t> rooms;
    for (int64_t i = 1; i < kRooms; ++i) rooms.push_back(all / kRooms * i);
    const std::vector<Knapsack> packed = pack_each(items_, rooms, solver_);
    for (size_t i = 0; i < packed.size(); ++i) {
      note(packed[i], rooms[i]);
      if (i > 0 && packed[i].kept == packed[i - 1].kept) continue;
      DenseMap<Node, char> tied;
      for (size_t k = 0; k < items_.size(); ++k) tied[item_nodes_[k]] = packed[i].kept[k];
      cut(kOnlyMemory, tied);
      cut(kNumbersOfRows, tied);
    }
  }

  // --- what lies between two choices
  // ---------------------------------------------------------------------------------------------

  /// A search of few nodes may take as long as one of many, and exchanges at least as long as the
  /// cuts before them.
  int64_t steps_of_exchange() const {
    const Tuning::Saving& limits = target_.tuning.saving;
    const int64_t nodes = static_cast<int64_t>(graph_.node_ids());
    return std::max(network_.steps(), limits.edges_of_search - limits.edges_of_node * nodes);
  }

  /// Behind a packing of products.
  void exchange_products() {
    cut(kOnlyMemory, {});
    std::vector<ExchangeItem> items;
    for (const Node* node : item_nodes_)
      if (network_.has(node)) items.push_back({node, costs_.at(node), price_at(node, kOnlyMemory)});
    Exchange(network_, front_, std::move(items), [this](Cut cut) {
      add(std::move(cut));
    }).run(steps_of_exchange());
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
  DenseMap<Node, char> wide_;
  CutKnobs knobs_;
  DenseMap<Node, Ban> bans_;
  KeptBytes whole_;  // arguments, too
  KeptBytes kept_;
  CutNetwork network_;
  DenseMap<Node, double> microseconds_;  // of forward's nodes; others run once, wherever
  DenseMap<Node, double> costs_;
  std::vector<const Node*> item_nodes_;
  std::vector<KnapsackItem> items_;
  Front front_;
};

/// Activations and attention's scores are worth their time, products with weights and convolutions
/// are not: docs/partition.md has both measured. Who keeps values in fewer bits wants memory: the
/// price falls as their bytes do. Else more would be saved then, attention's scores for one, than
/// in full.
double bytes_for_microsecond(const Target& target, const SavedStorage& storage) {
  const double whole = static_cast<double>(target.tuning.saving.bytes_for_microsecond);
  if (storage.kind == SavedStorage::Kind::whole) return whole;
  return whole * static_cast<double>(element_bytes(storage.kind)) /
         static_cast<double>(size_of(DType::f32));
}

}  // namespace

ir::Values priced_choice(ir::Graph& graph, const Target& target, const SavedStorage& storage) {
  std::vector<std::string> notes;
  return Search(graph, target, Budget(), storage, notes)
      .at_rate(bytes_for_microsecond(target, storage))
      .saved;
}

Frontier frontier_of(ir::Graph& graph, const Target& target, const Budget& budget,
                     const SavedStorage& storage, std::vector<std::string>& notes) {
  return Search(graph, target, budget, storage, notes).run();
}

}  // namespace tandem::passes
