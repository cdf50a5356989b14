// What forward saves for backward: a minimum cut (min_cut.cc), what fits a budget (budget.cc), or
// the default: what backward reads is saved as it is, but for what is cheaper made than kept. Views
// are made again from their base, fills from nothing, casts and masks from what they read where
// that is kept anyway or is smaller, long attention from queries and keys. Walking backwards
// decides a value before what it is made from.
#include <algorithm>
#include <cstdio>

#include "base/flags.h"
#include "ir/text.h"
#include "ops/opdef.h"
#include "passes/partition/budget.h"
#include "passes/partition/cut_report.h"
#include "passes/partition/joint_text.h"
#include "passes/partition/partition.h"
#include "passes/passes.h"

namespace tandem::passes {
namespace {

using ir::Node;
using ir::Value;

class Chooser {
 public:
  Chooser(ir::Graph& graph, const Halves& halves, const DenseMap<Node, char>& wide,
          const KeptBytes& kept)
      : graph_(graph), kept_bytes_(kept), halves_(halves), wide_(wide) {}

  ir::Values run() {
    for (Value* value : crossing(graph_, halves_)) needed_[value] = true;
    for (Node* node = graph_.last(); node != nullptr; node = node->prev)
      if (halves_.is_forward(node) && !node->op->mutates()) visit(*node);
    ir::Values saved;
    for (Value* input : graph_.inputs())
      if (needed_.at(input)) saved.push_back(input);
    saved.insert(saved.end(), kept_.rbegin(), kept_.rend());
    return saved;
  }

 private:
  void visit(const Node& node) {
    bool needed = std::any_of(node.results.begin(), node.results.end(),
                              [&](const Value* v) { return needed_.at(v) != 0; });
    if (!needed) return;
    if (is_recomputed(node)) {
      ir::for_each_operand(node.args, [&](const Value* operand) { needed_[operand] = true; });
      return;
    }
    for (size_t i = node.results.size(); i-- > 0;)
      if (needed_.at(node.results[i])) kept_.push_back(node.results[i]);
  }

  bool is_recomputed(const Node& node) const {
    const ops::OpDef& def = ops::def_of(node);
    if (node.op->is_view()) return true;
    if (def.can_fail) return false;
    if (asked_to_recompute(node) || wide_.at(&node) != 0) return true;
    if (node.policy != ir::RecomputePolicy::none || def.random) return false;
    return is_source(node) || (is_cast_or_mask(node) && saves_bytes(node));
  }

  static bool is_cast_or_mask(const Node& node) {
    if (!ops::def_of(node).pointwise || node.results.size() != 1) return false;
    int tensors = 0;
    bool converts = false;
    ir::for_each_operand(node.args, [&](const Value* operand) {
      tensors += operand->type.is_tensor();
      converts |= operand->type.dtype != node.results[0]->type.dtype;
    });
    return !is_float(node.results[0]->type.dtype) || (tensors == 1 && converts);
  }

  /// What would be kept in its place is kept already, or smaller.
  bool saves_bytes(const Node& node) const {
    std::vector<const Value*> bases;
    ir::for_each_operand(node.args, [&](Value* operand) { bases.push_back(base_of(operand)); });
    std::sort(bases.begin(), bases.end(),
              [](const Value* a, const Value* b) { return a->id < b->id; });
    bases.erase(std::unique(bases.begin(), bases.end()), bases.end());
    int64_t more = 0;
    for (const Value* base : bases) {
      bool is_free = needed_.at(base) || lives_anyway(base) || !base->type.is_tensor();
      bool is_fill =
          base->node != nullptr && is_source(*base->node) && !ops::def_of(*base->node).random;
      if (!is_free && !is_fill) more += kept_bytes_.of(base);
    }
    return more == 0 || more < kept_bytes_.of(node.results[0]);
  }

  ir::Graph& graph_;
  const KeptBytes& kept_bytes_;
  const Halves& halves_;
  const DenseMap<Node, char>& wide_;
  DenseMap<Value, char> needed_;
  ir::Values kept_;  // last first
};

}  // namespace

ir::Values default_choice(ir::Graph& graph, const Tuning::Chains& limits, const KeptBytes& kept) {
  return default_choice(graph, Halves(graph), wide_nodes(graph, limits), kept);
}

ir::Values default_choice(ir::Graph& graph, const Halves& halves, const DenseMap<Node, char>& wide,
                          const KeptBytes& kept) {
  return Chooser(graph, halves, wide, kept).run();
}

ir::Values chosen_values(ir::Graph& graph, GraphCtx& ctx) {
  const Tuning::Chains& limits = ctx.target.tuning.chains;
  if (ctx.partition == Partition::budget) return within_budget(graph, ctx);
  if (ctx.partition == Partition::caller) return caller_choice(graph, ctx);
  if (ctx.partition == Partition::priced) return priced_choice(graph, ctx.target, ctx.storage);
  const KeptBytes kept(graph, ctx.storage);
  if (ctx.partition == Partition::min_cut)
    return min_cut(graph, limits, kept, ctx.notes, ctx.budget.knobs);
  return default_choice(graph, limits, kept);
}

namespace {

std::string choices_text(ir::Graph& graph, GraphCtx& ctx) {
  return pareto_text(frontier_of(graph, ctx.target, ctx.budget, ctx.storage, ctx.notes));
}

}  // namespace

void describe_choice(ir::Graph& graph, GraphCtx& ctx, const ir::Values& saved) {
  if (ctx.describes_cut) ctx.cut_table = cut_table(graph, ctx, saved);
  if (ctx.describes_cut) ctx.cut = cut_text(ctx.cut_table);
  if (ctx.describes_choices) ctx.cut += choices_text(graph, ctx);
  if (flag_dump().when == DumpFlag::When::pareto)
    std::fprintf(stderr, "; choices of @%s\n%s", graph.name().c_str(),
                 choices_text(graph, ctx).c_str());
  if (flag_dump().when == DumpFlag::When::joint)
    std::fputs(joint_text(graph, saved).c_str(), stderr);
}

namespace {

/// Under which the report lists them, and options name them: numbers in the programs that are cut
/// from here are others.
std::vector<std::string> names_of(const ir::Graph& graph, const GraphCtx& ctx,
                                  const ir::Values& saved) {
  std::vector<std::string> names;
  if (!ctx.describes_cut && ctx.storage.except.empty()) return names;
  const DenseMap<Value, std::string> all = ir::value_names(graph);
  for (bool tensors : {true, false})  // in the order of set_saved
    for (const Value* value : saved)
      if (value->type.is_tensor() == tensors) names.push_back("%" + all.at(value));
  return names;
}

}  // namespace

void choose(ir::Graph& graph, GraphCtx& ctx) {
  if (ctx.partition == Partition::none) return;
  const ir::Values saved = chosen_values(graph, ctx);
  describe_choice(graph, ctx, saved);
  const std::vector<std::string> names = names_of(graph, ctx, saved);
  set_saved(graph, saved);
  if (!names.empty()) name_saved(graph, names);
  ctx.notes.push_back("choose: " + describe_saved(graph));
}

}  // namespace tandem::passes
