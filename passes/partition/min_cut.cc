// The partition that moves the fewest bytes between forward and backward: the cheapest cut, where
// keeping a value costs its bytes, and computing again costs nothing or is not done.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ir/text.h"
#include "ir/writes.h"
#include "passes/partition/bans.h"
#include "passes/partition/cut.h"

namespace tandem::passes {
namespace {

using ir::Node;
using ir::Value;

class MinCut {
 public:
  MinCut(ir::Graph& graph, const Halves& halves, const DenseMap<Node, Ban>& bans,
         const KeptBytes& kept, std::vector<std::string>& notes, const CutKnobs& knobs)
      : graph_(graph), kept_(kept), notes_(notes), halves_(halves), bans_(bans), knobs_(knobs) {}

  ir::Values run() {
    measure_distances();
    ir::Values saved = cheapest_cut(
        graph_, halves_,
        {[&](const Value* value) { return capacity(value); },
         [&](const Node* node) { return bans_.at(node).is_ban() ? kNever : int64_t{0}; }});
    for (const Value* value : saved)
      if (value->node != nullptr) note(*value->node);
    return saved;
  }

 private:
  static constexpr int kFar = 1'000'000'000;

  /// Steps from a value to the nearest reader outside forward. Kept values should be close to
  /// backward: a copy of a long chain costs more than a copy of a short one.
  void measure_distances() {
    for (const Node* node = graph_.last(); node != nullptr; node = node->prev)
      for (const Value* result : node->results) distance_[result] = measured(result);
    for (const Value* input : graph_.inputs()) distance_[input] = measured(input);
  }

  int measured(const Value* value) const {
    int nearest = kFar;
    for (const ir::Use& use : value->uses) {
      if (use.node == nullptr) continue;
      if (!halves_.is_forward(use.node)) return 1;
      for (const Value* result : use.node->results)
        nearest = std::min(nearest, distance_.at(result) + 1);
    }
    return std::min(nearest, kFar);
  }

  int64_t capacity(const Value* value) const {
    if (!value->type.is_tensor()) return 1;
    const bool is_free = lives_anyway(value);
    if (is_free && knobs_.treat_parameters_as_free_to_save) return 0;
    if (value->node != nullptr && is_never_kept(*value)) return kNever;
    int nearness = std::clamp(distance_.at(value), 1, 100);
    const auto bytes = static_cast<double>(is_free ? typical_bytes(value) : kept_.of(value));
    double weight = std::min<double>(bytes * std::pow(1.1, nearness), kMostPrice);
    return static_cast<int64_t>(weight) * (is_in_memory(*value) ? 1 : 2);
  }

  bool is_never_kept(const Value& value) const {
    const bool is_made = knobs_.recompute_views && value.node->op->is_view();
    return is_made || asked_to_recompute(*value.node) || shows_all_of_base(value);
  }

  /// Memory that the program needs whether backward reads it or not.
  static bool is_in_memory(const Value& value) {
    if (value.node == nullptr) return !ir::is_written(&value);
    return std::any_of(value.uses.begin(), value.uses.end(), [&](const ir::Use& use) {
      return use.node != nullptr && !fuses(value, *use.node);
    });
  }

  void note(const Node& node) {
    notes_.push_back(
        fmt::format("min_cut: saves {}: {}", ir::to_string(node), why_saved(bans_.at(&node))));
  }

  ir::Graph& graph_;
  const KeptBytes& kept_;
  std::vector<std::string>& notes_;
  const Halves& halves_;
  const DenseMap<Node, Ban>& bans_;
  const CutKnobs& knobs_;
  DenseMap<Value, int> distance_;
};

}  // namespace

ir::Values min_cut(ir::Graph& graph, const Tuning::Chains& limits, const KeptBytes& kept,
                   std::vector<std::string>& notes, const CutKnobs& knobs) {
  const Halves halves(graph);
  const DenseMap<Node, char> wide = wide_nodes(graph, limits);
  return min_cut(graph, halves, bans_of(graph, halves, wide, knobs), kept,
                 default_choice(graph, halves, wide, kept), notes, knobs);
}

ir::Values min_cut(ir::Graph& graph, const Halves& halves, const DenseMap<Node, Ban>& bans,
                   const KeptBytes& kept, const ir::Values& otherwise,
                   std::vector<std::string>& notes, const CutKnobs& knobs) {
  ir::Values saved = MinCut(graph, halves, bans, kept, notes, knobs).run();
  // Weights favour what is near to backward; where that ends with more bytes, the default computes
  // less again, too.
  if (kept.of(saved) <= kept.of(otherwise)) return saved;
  notes.push_back("min_cut: the default partition saves less");
  return otherwise;
}

}  // namespace tandem::passes
