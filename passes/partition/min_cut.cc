// The partition that moves the fewest bytes between forward and backward, as a minimum cut: the
// source stands for what forward has at hand, the sink for what only backward computes, a value is
// an edge of the bytes it takes to keep it, and reading is an edge that cannot be cut. Values below
// the cut are computed again, so what is too dear to compute twice is tied to the source.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/flow_network.h"
#include "ir/text.h"
#include "passes/partition/bans.h"

namespace tandem::passes {
namespace {

using ir::Node;
using ir::Value;

/// More than all values together weigh: such an edge is in no minimum cut.
constexpr int64_t kUncuttable = int64_t{1} << 60;
/// No weight exceeds this, so that a million of them stay below kUncuttable.
constexpr int64_t kMaxWeight = int64_t{1} << 40;

class MinCut {
 public:
  MinCut(ir::Graph& graph, const Tuning::Chains& limits, std::vector<std::string>& notes)
      : graph_(graph),
        notes_(notes),
        halves_(graph),
        banned_(banned_nodes(graph, halves_, limits)) {}

  ir::Values run() {
    measure_distances();
    FlowNetwork network = build();
    int64_t flow = network.flow(kSource, kSink);
    TD_CHECK(flow < kUncuttable) << "a value can be neither saved nor computed again";
    std::vector<char> above = network.source_side(kSource);
    DenseMap<Value, char> cut;
    for_each_value([&](Value* value) { cut[value] = above[in(value)] && !above[out(value)]; });
    ir::Values saved = read_of(cut);
    for (const Value* value : saved)
      if (value->node != nullptr) note(*value->node);
    return saved;
  }

 private:
  static constexpr size_t kSource = 0;
  static constexpr size_t kSink = 1;
  static constexpr int kFar = 1'000'000'000;

  static size_t in(const Value* value) { return 2 + 2 * size_t{value->id}; }
  static size_t out(const Value* value) { return 3 + 2 * size_t{value->id}; }

  /// What may be kept: inputs, and results that no tangent reaches.
  template <class F>
  void for_each_value(F f) const {
    for (Value* input : graph_.inputs())
      if (input->role != ir::Role::tangent) f(input);
    for (const Node* node = graph_.first(); node != nullptr; node = node->next)
      if (!halves_.needs_tangent(node) && !node->op->mutates())
        for (Value* result : node->results) f(result);
  }

  /// What backward reads of the cut, in graph order: an edge that weighs nothing may be cut for no
  /// reader.
  ir::Values read_of(const DenseMap<Value, char>& cut) const {
    DenseMap<Value, char> read;
    for (const ir::Output& output : graph_.outputs())
      if (output.kind == ir::OutputKind::gradient && output.value != nullptr)
        read[output.value] = true;
    for (const Node* node = graph_.last(); node != nullptr; node = node->prev) {
      bool runs = halves_.needs_tangent(node);
      for (const Value* result : node->results) runs |= read.at(result) && !cut.at(result);
      if (runs)
        ir::for_each_operand(node->args, [&](const Value* operand) { read[operand] = true; });
    }
    ir::Values values;
    for_each_value([&](Value* value) {
      if (read.at(value) && cut.at(value)) values.push_back(value);
    });
    return values;
  }

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

  // --- the network
  // ---------------------------------------------------------------------------------

  FlowNetwork build() const {
    FlowNetwork network(2 + 2 * graph_.value_ids());
    for_each_value([&](const Value* value) {
      bool is_given = value->node == nullptr || banned_.at(value->node);
      if (is_given) network.connect(kSource, in(value), kUncuttable);
      network.connect(in(value), out(value), capacity(value));
      for (const ir::Use& use : value->uses) connect_reader(network, *value, use);
    });
    return network;
  }

  void connect_reader(FlowNetwork& network, const Value& value, const ir::Use& use) const {
    if (use.node == nullptr) {
      bool is_gradient = graph_.outputs()[use.arg].kind == ir::OutputKind::gradient;
      if (is_gradient) network.connect(out(&value), kSink, kUncuttable);
    } else if (halves_.needs_tangent(use.node)) {
      network.connect(out(&value), kSink, kUncuttable);
    } else if (!use.node->op->mutates()) {
      for (const Value* result : use.node->results)
        network.connect(out(&value), in(result), kUncuttable);
    }
  }

  int64_t capacity(const Value* value) const {
    if (!value->type.is_tensor()) return 1;
    if (lives_anyway(value)) return 0;
    if (value->node != nullptr && (asked_to_recompute(*value->node) || shows_all_of_base(*value)))
      return kUncuttable;
    int nearness = std::clamp(distance_.at(value), 1, 100);
    double weight = std::min<double>(
        static_cast<double>(typical_bytes(value)) * std::pow(1.1, nearness), kMaxWeight);
    return static_cast<int64_t>(weight) * (is_in_memory(*value) ? 1 : 2);
  }

  /// A copy of it would be no smaller than its base.
  static bool shows_all_of_base(const Value& value) {
    if (!value.node->op->is_view()) return false;
    return typical_bytes(&value) >= typical_bytes(base_of(const_cast<Value*>(&value)));
  }

  /// Memory that the program needs whether backward reads it or not.
  static bool is_in_memory(const Value& value) {
    if (value.node == nullptr) return !is_overwritten(&value);
    return std::any_of(value.uses.begin(), value.uses.end(), [&](const ir::Use& use) {
      return use.node != nullptr && !fuses(value, *use.node);
    });
  }

  void note(const Node& node) {
    const char* reason = banned_.at(&node);
    notes_.push_back(fmt::format("min_cut: saves {}: {}", ir::to_string(node),
                                 reason != nullptr ? reason : "smaller than what it is made from"));
  }

  ir::Graph& graph_;
  std::vector<std::string>& notes_;
  Halves halves_;
  DenseMap<Node, const char*> banned_;
  DenseMap<Value, int> distance_;
};

}  // namespace

ir::Values min_cut(ir::Graph& graph, const Tuning::Chains& limits,
                   std::vector<std::string>& notes) {
  ir::Values saved = MinCut(graph, limits, notes).run();
  // Weights favour what is near to backward; where that ends with more bytes, the default computes
  // less again, too.
  ir::Values otherwise = default_choice(graph, limits);
  if (typical_bytes(saved) <= typical_bytes(otherwise)) return saved;
  notes.push_back("min_cut: the default partition saves less");
  return otherwise;
}

}  // namespace tandem::passes
