// Problem: computing again is free for what runs inside of the kernel that reads it, and dear for
// all else; and a chain of free things is not free. Approach: each node is asked for a reason
// against it, first by itself, then by where its readers stand, then by the length of the chain
// that it ends.
#include "passes/partition/bans.h"

#include <algorithm>

#include "ops/opdef.h"

namespace tandem::passes {
namespace {

using ir::Node;
using ir::Value;

bool is_reduction(const Node& node) {
  const ops::OpDef& def = ops::def_of(node);
  if (node.op->mutates() || def.can_fail || !def.fast.empty() || is_light(node)) return false;
  int64_t largest = 0;
  ir::for_each_operand(node.args, [&](const Value* operand) {
    largest = std::max(largest, typical_bytes(operand));
  });
  return typical_bytes(node.results[0]) < largest;
}

class Bans {
 public:
  Bans(const ir::Graph& graph, const Halves& halves, const DenseMap<Node, char>& wide,
       const CutKnobs& knobs)
      : graph_(graph), halves_(halves), wide_(wide), knobs_(knobs) {
    if (!knobs.aggressive_recomputation) return;
    knobs_ = CutKnobs{.ban_recompute_used_far_apart = false,
                      .ban_recompute_long_fusible_chains = false,
                      .ban_recompute_materialized_backward = false,
                      .ban_recompute_not_in_allowlist = false,
                      .ban_recompute_reductions = knobs.ban_recompute_reductions};
  }

  DenseMap<Node, Ban> run() {
    for (const Node* node = graph_.first(); node != nullptr; node = node->next) {
      if (!halves_.is_forward(node) || node->op->mutates()) continue;
      bans_[node] = ban_of(*node);
    }
    if (knobs_.ban_recompute_used_far_apart) ban_used_far_apart();
    if (knobs_.ban_recompute_long_fusible_chains) ban_long_chains();
    return std::move(bans_);
  }

 private:
  bool may_ban(const Node& node) const {
    return !node.op->is_view() && !asked_to_recompute(node) && wide_.at(&node) == 0;
  }

  Ban ban_of(const Node& node) const {
    if (!may_ban(node)) return {};
    if (Ban ban = ban_for_ever(node); ban.is_ban()) return ban;
    if (node.policy == ir::RecomputePolicy::prefer_save)
      return {Ban::Kind::preferred, "it should be saved"};
    if (ops::def_of(node).random) return {Ban::Kind::dear, "it draws random numbers"};
    if (is_dear(node)) return {Ban::Kind::dear, "it takes a kernel of its own"};
    if (is_source(node)) return {};
    // Casts of weights: keeping a copy alive from step to step is worse than making it.
    const bool is_placed =
        knobs_.ban_recompute_materialized_backward && is_materialized_behind(node);
    if (is_placed && !reads_what_lives_anyway(node))
      return {Ban::Kind::placed, "backward needs it in memory"};
    if (knobs_.ban_recompute_reductions && shrinks(node))
      return {Ban::Kind::dear, "it is much smaller than what it is made from"};
    return {};
  }

  bool is_dear(const Node& node) const {
    const bool multiplies = ops::def_of(node).multiplies != ops::ProductKind::none;
    return !is_light(node) && (knobs_.ban_recompute_not_in_allowlist || multiplies);
  }

  /// A second run could give something else, or the user says so.
  static Ban ban_for_ever(const Node& node) {
    const auto never = [](const char* reason) { return Ban{Ban::Kind::never, reason}; };
    if (node.policy == ir::RecomputePolicy::must_save) return never("it must be saved");
    if (node.policy == ir::RecomputePolicy::must_recompute ||
        node.policy == ir::RecomputePolicy::prefer_recompute)
      return never("it fails or a later checkpoint region starts from it");
    // A body of control flow says what it draws; what the caller's framework runs does not.
    const ops::OpDef& def = ops::def_of(node);
    const bool runs_elsewhere = def.opaque && def.runs.empty();
    if (def.can_fail && !runs_elsewhere) return never("it can fail");
    if (!gives_the_same_again(node)) return never("a second run could give something else");
    return {};
  }

  static bool reads_what_lives_anyway(const Node& node) {
    bool all = true;
    ir::for_each_operand(node.args, [&](const Value* operand) { all &= lives_anyway(operand); });
    return all;
  }

  static bool shrinks(const Node& node) {
    int64_t read = 0;
    int64_t written = 0;
    ir::for_each_operand(node.args, [&](const Value* operand) { read += typical_bytes(operand); });
    for (const Value* result : node.results) written += typical_bytes(result);
    return 4 * written < read;
  }

  /// A reader that does not fuse, through views: the value gets memory anyway.
  bool is_materialized_behind(const Node& node) const {
    ir::Values open = node.results;
    while (!open.empty()) {
      const Value* at = open.back();
      open.pop_back();
      for (const ir::Use& use : at->uses) {
        if (use.node == nullptr) continue;
        if (!halves_.is_forward(use.node) && !fuses(*at, *use.node)) return true;
        if (use.node->op->is_view())
          open.insert(open.end(), use.node->results.begin(), use.node->results.end());
      }
    }
    return false;
  }

  /// A value read by a node near and by one far behind a product has to be in memory between the
  /// two: the far readers are kept instead of chaining both halves to it.
  void ban_used_far_apart() {
    std::vector<const Node*> forward = forward_nodes();
    DenseMap<Node, size_t> order;
    for (size_t i = 0; i < forward.size(); ++i) order[forward[i]] = i;
    for (const Node* node : forward) {
      size_t limit = first_unfusible_behind(*node, order);
      for_each_forward_reader(*node, [&](const Node& reader, const Value& value) {
        if (order.at(&reader) > limit && fuses(value, reader) && may_ban(reader) &&
            !bans_.at(&reader).is_ban())
          bans_[&reader] = {Ban::Kind::placed, "it and an earlier reader stand far apart"};
      });
    }
  }

  size_t first_unfusible_behind(const Node& node, const DenseMap<Node, size_t>& order) const {
    size_t last = 0;
    size_t first = SIZE_MAX;
    for_each_forward_reader(
        node, [&](const Node& reader, const Value&) { last = std::max(last, order.at(&reader)); });
    std::vector<const Node*> open;
    DenseMap<Node, char> seen;
    auto step = [&](const Node& reader, const Value& value) {
      if (order.at(&reader) > last || reader.op->mutates()) return;
      if (value.node != &node && !fuses(value, reader)) first = std::min(first, order.at(&reader));
      if (!seen.at(&reader)) open.push_back(&reader);
      seen[&reader] = true;
    };
    for_each_forward_reader(node, step);
    while (!open.empty()) {
      const Node* at = open.back();
      open.pop_back();
      for_each_forward_reader(*at, step);
    }
    return first == SIZE_MAX ? last : first;
  }

  std::vector<const Node*> forward_nodes() const {
    std::vector<const Node*> nodes;
    for (const Node* node = graph_.first(); node != nullptr; node = node->next)
      if (halves_.is_forward(node) && !node->op->mutates()) nodes.push_back(node);
    return nodes;
  }

  template <class F>
  void for_each_forward_reader(const Node& node, F f) const {
    for (const Value* result : node.results)
      for (const ir::Use& use : result->uses)
        if (use.node != nullptr && halves_.is_forward(use.node) && !use.node->op->mutates())
          f(*use.node, *result);
  }

  /// A copy of a chain may hold so many light nodes and no more: a kernel that computes hundreds of
  /// them again no longer waits for memory.
  void ban_long_chains() {
    static constexpr int kLongest = 100;
    DenseMap<Node, int> length;
    for (const Node* node : forward_nodes()) {
      int longest = 0;
      ir::for_each_operand(node->args, [&](const Value* operand) {
        bool chains = operand->node != nullptr && is_light(*operand->node) &&
                      !bans_.at(operand->node).is_ban();
        if (chains) longest = std::max(longest, length.at(operand->node));
      });
      length[node] = longest + 1;
      if (longest < kLongest || !may_ban(*node) || bans_.at(node).is_ban()) continue;
      bans_[node] = {Ban::Kind::placed, "the chain before it is long"};
      length[node] = 0;
    }
  }

  const ir::Graph& graph_;
  const Halves& halves_;
  const DenseMap<Node, char>& wide_;
  CutKnobs knobs_;
  DenseMap<Node, Ban> bans_;
};

}  // namespace

bool is_light(const Node& node) {
  const ops::OpDef& def = ops::def_of(node);
  if (node.op->mutates() || def.can_fail || !def.fast.empty()) return false;
  return def.pointwise || node.op->is_view() || is_source(node);
}

bool fuses(const Value& value, const Node& reader) {
  return (value.node == nullptr || is_light(*value.node)) &&
         (is_light(reader) || is_reduction(reader));
}

const char* why_saved(const Ban& ban) {
  return ban.is_ban() ? ban.reason : "smaller than what it is made from";
}

DenseMap<Node, Ban> bans_of(const ir::Graph& graph, const Halves& halves,
                            const Tuning::Chains& limits, const CutKnobs& knobs) {
  return bans_of(graph, halves, wide_nodes(graph, limits), knobs);
}

DenseMap<Node, Ban> bans_of(const ir::Graph& graph, const Halves& halves,
                            const DenseMap<Node, char>& wide, const CutKnobs& knobs) {
  return Bans(graph, halves, wide, knobs).run();
}

}  // namespace tandem::passes
